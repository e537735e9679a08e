"""The container image without a container engine: the Dockerfile's own steps, in a folder.

Absolute paths of the image become paths below a root, in the steps and in what they name. Each stage has that root to
itself while it is built, so that what is copied from one stage to the next lies at the same path in both, as scripts of
a virtual environment need it. Only what the Dockerfile copies and .dockerignore lets in can get in, and a step that is
not known here fails.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.e2e.build_context import BuildContext

STEP_SECONDS: Final = 480  # a package index may be slow
_VARIABLE: Final = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_ABSOLUTE: Final = re.compile(r"(?<![\w./$}-])/(?=\w)")  # where an absolute path begins
_SYSTEM_PATH: Final = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True, slots=True)
class Step:
    word: str
    rest: str


@dataclass(slots=True)
class BuildStage:
    """`files` is where the stage's root lies once it is built."""

    name: str
    files: Path
    folder: str = "/"
    env: dict[str, str] = field(default_factory=dict)
    given: dict[str, str] = field(default_factory=dict)  # build arguments that the stage asks for
    labels: dict[str, str] = field(default_factory=dict)
    user: str = "root"
    ports: frozenset[int] = frozenset()
    entrypoint: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)

    def filled_in(self, text: str) -> str:
        """`text` with the stage's variables; those it does not know are empty."""
        return _filled_in(text, {**self.given, **self.env})


@dataclass(frozen=True, slots=True)
class Image:
    """What the last stage leaves: files below `root`, and how a container of it starts."""

    root: Path
    stage: BuildStage

    def command(self, command: list[str] | None = None, arguments: list[str] | None = None) -> list[str]:
        """What a container with that `command` and those `args` runs, by Kubernetes' rules for leaving them out."""
        if command:
            return [self._program(command[0]), *command[1:], *(arguments or [])]
        words = [*self.stage.entrypoint, *(self.stage.arguments if arguments is None else arguments)]
        return [self._program(words[0]), *words[1:]]

    def _program(self, name: str) -> str:
        found = shutil.which(name, path=self.env({})["PATH"])
        if found is None or not Path(found).is_relative_to(self.root):
            raise FileNotFoundError(f"{name} is not in the image: {found}")
        return found

    def env(self, more: Mapping[str, str]) -> dict[str, str]:
        """The environment of a container: the image's own and `more`, nothing of ours."""
        return {"PATH": _SYSTEM_PATH, "HOME": "/", **self.stage.env, **more}


def steps_of(dockerfile: str) -> Iterator[Step]:
    lines = [line for line in dockerfile.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        word, _, rest = line.strip().partition(" ")
        yield Step(word.upper(), " ".join(rest.split()))


def build(dockerfile: Path, folder: Path, given: Mapping[str, str], *, app: Path | None = None) -> Image:
    """Run the steps in `folder`, which must not exist yet, with the Dockerfile's own folder as the context.

    `given` are the build's arguments. `app`: a virtual environment that stands where the steps would make one; none of
    them installs or copies anything then.
    """
    folder.mkdir(parents=True)
    root, stages = folder / "root", list[BuildStage]()
    before = dict[str, str]()  # what stands before the first stage, and reaches those that ask for it
    for step in steps_of(dockerfile.read_text()):
        if step.word == "FROM":
            if stages:
                stages[-1].files = root.rename(folder / f"stage-{len(stages)}")
            stages.append(_stage(_filled_in(step.rest, before), root))
        elif step.word == "ARG":
            name, _, default = step.rest.partition("=")
            known = stages[-1].given if stages else before
            known[name] = given.get(name, default or before.get(name, ""))
        elif app is None or step.word not in ("RUN", "COPY"):
            _run(step, root, stages, dockerfile.parent)
    if app is not None:
        (root / "app").symlink_to(app)
    return Image(root, stages[-1])


def _stage(rest: str, root: Path) -> BuildStage:
    base, _, name = rest.partition(" AS ")
    if not base.startswith("python:"):
        raise ValueError(f"FROM: {base} is no Python image")
    # What such an image has: an interpreter by that name, and a place for temporary files.
    (root / "usr/local/bin").mkdir(parents=True)
    (root / "usr/local/bin/python").symlink_to(os.path.realpath(sys.executable))
    return BuildStage(name, root, env={"PATH": f"{root}/usr/local/bin:{_SYSTEM_PATH}"})


def _filled_in(text: str, variables: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda found: variables.get(found[1] or found[2], ""), text)


def _run(step: Step, root: Path, stages: list[BuildStage], context: Path) -> None:
    stage = stages[-1]
    match step.word:
        case "WORKDIR":
            stage.folder = step.rest
            _below(root, stage.folder).mkdir(parents=True, exist_ok=True)
        case "COPY":
            _copy(step.rest, root, stages, context)
        case "RUN":
            _shell(step.rest, root, stage)
        case "ENV":
            for pair in shlex.split(step.rest):
                name, _, value = pair.partition("=")
                stage.env[name] = stage.filled_in(_ABSOLUTE.sub(f"{root}/", value))
        case "LABEL":
            stage.labels |= dict(stage.filled_in(pair).split("=", 1) for pair in shlex.split(step.rest))
        case "EXPOSE":
            stage.ports |= {int(port) for port in step.rest.split()}
        case "ENTRYPOINT":
            stage.entrypoint = json.loads(step.rest)
        case "CMD":
            stage.arguments = json.loads(step.rest)
        case "USER":
            stage.user = step.rest
        case _:
            raise ValueError(f"{step.word}: nothing is known of that step")


def _below(root: Path, path: str, folder: str = "/") -> Path:
    return root / Path(folder, path).relative_to("/")


def _copy(rest: str, root: Path, stages: list[BuildStage], context: Path) -> None:
    words = rest.split()
    source = context
    if words[0].startswith("--from="):
        name = words.pop(0).removeprefix("--from=")
        source = next(stage.files for stage in stages if stage.name == name)
    *names, target = words
    into = _below(root, target, stages[-1].folder)
    for name in names:
        found = source / name.lstrip("/")
        if source == context:
            _copy_sent(name, into, BuildContext(context), context, into_folder=target.endswith("/") or len(names) > 1)
        elif found.is_dir():
            shutil.copytree(found, into, symlinks=True, dirs_exist_ok=True)
        else:
            into.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(found, into)


def _copy_sent(name: str, into: Path, sent: BuildContext, context: Path, *, into_folder: bool) -> None:
    """What the engine was sent of that folder or file of the context."""
    files = list(sent.files(name))
    if not files:
        raise FileNotFoundError(f"COPY {name}: nothing of it is in the context")
    for file in files:
        inside = Path(file).relative_to(name) if file != name else Path(Path(name).name if into_folder else "")
        to = into / inside
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(context / file, to)


def _shell(command: str, root: Path, stage: BuildStage) -> None:
    # Where packages come from is the machine's matter, as it is in a build behind a proxy.
    mine = {name: value for name, value in os.environ.items() if name.startswith("PIP_") or "proxy" in name.lower()}
    mine |= {name: os.environ[name] for name in ("HOME", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE") if name in os.environ}
    done = subprocess.run(
        ["/bin/sh", "-euc", _ABSOLUTE.sub(f"{root}/", command)],
        cwd=_below(root, stage.folder),
        env={**mine, **{name: value for name, value in stage.given.items() if value}, **stage.env},
        text=True,
        capture_output=True,
        timeout=STEP_SECONDS,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"RUN {command}: exit code {done.returncode}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
