"""Our item of `extenders`: written anew, added to those of others, or put in the place of our older one."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from ruamel.yaml.comments import CommentedMap, CommentedSeq

from controller.model.names import EXTENDER_RESOURCE
from controller.scheduler_config import tree
from controller.scheduler_config.draft import WHY, Draft
from controller.scheduler_config.options import (
    FILES,
    LONGEST_TIMEOUT_MILLISECONDS,
    SERVICE,
    CertificateData,
    CertificateDirectory,
    Options,
)

WEIGHT: Final = 1
_TRUE: Final = ("true", "yes", "on", "y")
"""How kube-scheduler's YAML writes it; only `true` is read as more than text here."""


@dataclass(frozen=True, slots=True)
class _Choices:
    """What somebody may have chosen in our entry, and no option of the command changes unasked."""

    ignorable: bool
    weight: int = WEIGHT
    binds: bool = False


def set_extender(draft: Draft) -> None:
    """Puts our entry where an older one of ours stands, else after those of others."""
    extenders = draft.document.get("extenders")
    unasked = _Choices(draft.options.ignorable or False)
    if not extenders:
        draft.put(draft.document, "extenders", CommentedSeq([_entry(draft, unasked)]), 0)
        return
    ours = [index for index, extender in enumerate(extenders) if _is_ours(extender, draft.options)]
    if len(ours) > 1:
        places = " and ".join(f"extenders[{index}]" for index in ours)
        draft.fail("extenders", f"{places} are both entries of {SERVICE}; remove one")
    tree.in_block_style(extenders)
    if not ours:
        tree.append(extenders, _entry(draft, unasked))
        return
    old, where = extenders[ours[0]], f"extenders[{ours[0]}]"
    others = _resources(old) - {EXTENDER_RESOURCE}
    if others:
        draft.fail(
            f"{where}.managedResources", f"names {', '.join(sorted(others))} too; give these an entry of their own"
        )
    entry = _entry(draft, _choices(draft, where, old))
    _note_changes(draft, where, tree.plain(old), tree.plain(entry))
    tree.replace(extenders, ours[0], entry)


def _choices(draft: Draft, where: str, old: CommentedMap) -> _Choices:
    """The choices of the older entry, unless the options say otherwise; what is unusual is noted."""
    asked = draft.options.ignorable
    ignorable = _is_true(old.get("ignorable")) if asked is None else asked
    if ignorable and asked is None:
        draft.note(
            f"{where}.ignorable", "true is kept; with --no-ignorable pods wait while the extender is unavailable"
        )
    weight = tree.plain(old.get("weight"))
    if not isinstance(weight, int) or isinstance(weight, bool) or weight <= 0:
        weight = WEIGHT
    if weight != WEIGHT:
        draft.note(f"{where}.weight", f"{weight} is kept; {WEIGHT} is usual")
    binds = bool(old.get("bindVerb"))
    if binds:
        draft.note(f"{where}.bindVerb", "is kept; without it kube-scheduler binds the pods itself")
    return _Choices(ignorable, weight, binds)


def _is_true(value: object) -> bool:
    return str(tree.plain(value)).lower() in _TRUE


def _note_changes(draft: Draft, where: str, old: dict[str, Any], new: dict[str, Any]) -> None:
    for name in sorted({*old, *new}):
        if old.get(name) == new.get(name) or (new.get(name) is True and _is_true(old.get(name))):
            continue
        if name == "tlsConfig":
            draft.note(f"{where}.{name}", "is replaced")
        elif name in old:
            draft.note(f"{where}.{name}", f"was {old[name]!r}, is {new.get(name, 'not set')!r}")


def _is_ours(extender: dict[str, Any], options: Options) -> bool:
    """An entry for the flag resource, or for our Service under its name or under the address that was given."""
    if EXTENDER_RESOURCE in _resources(extender):
        return True
    try:
        parts = urlsplit(str(extender.get("urlPrefix", "")))
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return False
    return host.split(".")[0] == SERVICE or (host, port) == (options.host, options.port)


def _resources(extender: dict[str, Any]) -> set[str]:
    resources = extender.get("managedResources")
    if not isinstance(resources, list):
        return set()
    return {str(resource.get("name")) for resource in resources if isinstance(resource, dict)}


def _entry(draft: Draft, choices: _Choices) -> CommentedMap:
    """Our item of `extenders`. Its first line has its comment beside it: one above would belong to the item before."""
    options, why = draft.options, dict(WHY)
    if options.timeout_milliseconds > LONGEST_TIMEOUT_MILLISECONDS:
        why["httpTimeout"] = WHY["longTimeout"]
    if choices.ignorable:
        why["ignorable"] = WHY["ignored"]
    if isinstance(options.certificates, CertificateDirectory):
        why["tlsConfig"] = WHY["tlsFiles"]
    values: dict[str, Any] = {
        "urlPrefix": options.url,
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "weight": choices.weight,
        "preemptVerb": "preempt",
        **({"bindVerb": "bind"} if choices.binds else {}),  # else kube-scheduler binds by itself
        **_tls(options),
        "nodeCacheCapable": True,
        "ignorable": choices.ignorable,
        "httpTimeout": options.timeout,
        "managedResources": [{"name": EXTENDER_RESOURCE, "ignoredByScheduler": True}],
    }
    entry = tree.explained(values, why, draft.layout.sequence, draft.layout)
    why_address = "its name" if options.host == options.server_name else "an address of it"
    entry.yaml_add_eol_comment(f"the Service {SERVICE}, by {why_address}", "urlPrefix")
    return entry


def _tls(options: Options) -> dict[str, Any]:
    certificates = options.certificates
    if certificates is None:
        return {}
    if isinstance(certificates, CertificateData):
        material = {f"{name}Data": b64encode(getattr(certificates, name)).decode() for name in FILES}
    else:
        material = {f"{name}File": f"{certificates.path.rstrip('/')}/{file}" for name, file in FILES.items()}
    return {"enableHTTPS": True, "tlsConfig": {"insecure": False, **material, "serverName": options.server_name}}
