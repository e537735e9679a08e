"""YAML as Kubernetes' own tools read it: one document, keys are strings, times stay text. By the C library if there."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import yaml

from controller.plan.objects import InputError

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
MAX_DEPTH: Final = 200
MAX_DIGITS: Final = 100
_TIME_TAG: Final = "tag:yaml.org,2002:timestamp"


class _Loader(_Base):  # type: ignore[misc]
    """The safe loader without times: an object's `creationTimestamp` is text, in quotes or not."""

    yaml_implicit_resolvers: ClassVar = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIME_TAG]
        for first, resolvers in _Base.yaml_implicit_resolvers.items()
    }

    _depth = 0

    def descend_resolver(self, _node: Any, _index: Any) -> None:
        """One level down. The C library recurses without looking at its stack. (There are no path resolvers to ask.)"""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise yaml.composer.ComposerError(None, None, f"nested deeper than {MAX_DEPTH} levels")

    def ascend_resolver(self) -> None:
        self._depth -= 1

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if len(set(keys)) < len(keys):
            twin = next(key for key in keys if keys.count(key) > 1)
            raise yaml.constructor.ConstructorError(None, None, f"{twin!r} stands there twice", node.start_mark)
        found: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        for key in found:
            if not isinstance(key, str):
                raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} is no string", node.start_mark)
        return found

    def construct_yaml_int(self, node: Any) -> int:
        """Python would spend minutes on, or refuse to print, what no field can hold anyway."""
        if len(node.value) > MAX_DIGITS:
            raise yaml.constructor.ConstructorError(None, None, "a number of too many digits", node.start_mark)
        return int(super().construct_yaml_int(node))


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)


def load_yaml(text: str) -> object:
    """The one document in `text`; InputError with line and column for what is no YAML."""
    try:
        found: object = yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise InputError("", "", f"is not YAML: {_one_line(error)}") from error
    return found


def _one_line(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    return (
        f"{problem}, line {mark.line + 1}, column {mark.column + 1}" if mark is not None else " ".join(problem.split())
    )
