"""The profile that `--scheduler-name` asks for, beside those that there are.

kube-scheduler has the profile default-scheduler by itself only where no profile is listed, takes a single one without a
name for it, and starts only when all profiles order the queue in the same way.
"""

from __future__ import annotations

from typing import Final

from ruamel.yaml.comments import CommentedMap, CommentedSeq

from controller.model.names import DEFAULT_SCHEDULER
from controller.process.flags import split_names
from controller.scheduler_config import tree
from controller.scheduler_config.draft import Draft

DEFAULT_ORDER: Final = "PrioritySort"
"""The plugin that orders the queue where nothing else is said."""
FIT: Final = "NodeResourcesFit"
"""The plugin that looks for resources on nodes."""


def set_profile(draft: Draft) -> None:
    """Lists the profile of that name once; no pod loses the profile that it has."""
    wanted, profiles = draft.options.scheduler_name, draft.document.get("profiles")
    if not wanted:
        return
    if not profiles:
        _list_profiles(draft, wanted)
        return
    if wanted in _names(profiles):
        return
    added = CommentedMap(schedulerName=wanted)
    _copy_order(draft, profiles[0], added)
    _name_the_only_one(draft, profiles[0])
    tree.append(tree.in_block_style(profiles), added)


def note_unlisted(draft: Draft) -> None:
    """Tells of each profile whose pods nobody checks, although it asks the extender about those that request it."""
    listed = split_names(draft.options.scheduler_names)
    for index, profile in enumerate(draft.document.get("profiles") or ()):
        if (name := str(profile.get("schedulerName") or DEFAULT_SCHEDULER)) not in listed:
            text = f"is {name}: its pods go unchecked unless --scheduler-names (chart: schedulerNames) lists it"
            draft.note(f"profiles[{index}].schedulerName", text)


def _list_profiles(draft: Draft, wanted: str) -> None:
    profile = CommentedMap(schedulerName=wanted)
    if wanted == DEFAULT_SCHEDULER:
        draft.put(draft.document, "profiles", CommentedSeq([profile]), 0)
    else:
        both = CommentedSeq([CommentedMap(schedulerName=DEFAULT_SCHEDULER), profile])
        draft.put(draft.document, "profiles", both, 0, "bothProfiles")


def keep_fit(draft: Draft) -> None:
    """Lets kube-scheduler start with our entry, and tells what it does to each profile.

    It writes the resources that extenders have `ignoredByScheduler` into the arguments of FIT, in place of what stands
    in `ignoredResources`, and ends where a profile has no such arguments (`pkg/scheduler/scheduler.go`,
    `buildExtenders`): they are there by default only while the plugin is enabled.
    """
    for index, profile in enumerate(draft.document.get("profiles") or ()):
        where = f"profiles[{index}].pluginConfig"
        settings = profile.get("pluginConfig") or CommentedSeq()
        if not isinstance(settings, CommentedSeq):
            draft.fail(where, "is not a list")
        ours = [place for place, item in enumerate(settings) if _name(item) == FIT]
        if not ours and not _runs_fit(profile):
            added = CommentedMap(name=FIT, args=CommentedMap())
            if settings:
                tree.append(tree.in_block_style(settings), added)
            else:
                profile["pluginConfig"] = CommentedSeq([added])
            draft.note(where, f"{FIT} is added: without it kube-scheduler does not start with an extender's resources")
        for place in ours:
            _note_ignored(draft, f"{where}[{place}].args.ignoredResources", settings[place].get("args"))


def _note_ignored(draft: Draft, where: str, args: object) -> None:
    if not isinstance(args, CommentedMap):
        return
    extenders = [one for one in draft.document.get("extenders") or () if isinstance(one.get("managedResources"), list)]
    managed = [one for extender in extenders for one in extender["managedResources"] if isinstance(one, dict)]
    ignored = {one.get("name") for one in managed if one.get("ignoredByScheduler")}
    names, groups = (args.get(key) or () for key in ("ignoredResources", "ignoredResourceGroups"))
    if not isinstance(names, list | tuple) or not isinstance(groups, list | tuple):
        draft.fail(where, "is not a list, or ignoredResourceGroups beside it")
    left = tuple(f"{group}/" for group in groups)
    lost = [name for name in names if name not in ignored and not str(name).startswith(left)]
    if lost:
        draft.note(
            where,
            f"kube-scheduler replaces it beside an extender's resources and looks for {', '.join(map(str, lost))} on "
            "nodes again; name the group in ignoredResourceGroups instead",
        )


def _runs_fit(profile: CommentedMap) -> bool:
    """Whether FIT is enabled at any point, so that it has arguments by default."""
    plugins = profile.get("plugins")
    parts = plugins.items() if isinstance(plugins, CommentedMap) else ()
    points = {key: part for key, part in parts if isinstance(part, CommentedMap)}
    if any(FIT in _plugins(part, "enabled") for part in points.values()):
        return True
    return not {"*", FIT} & _plugins(points.get("multiPoint", CommentedMap()), "disabled")


def _names(profiles: CommentedSeq) -> list[str]:
    names = [profile.get("schedulerName") for profile in profiles]
    if names == [None]:
        return [DEFAULT_SCHEDULER]
    return [str(name or "") for name in names]


def _name_the_only_one(draft: Draft, profile: CommentedMap) -> None:
    """A single profile needs no name, several do."""
    if profile.get("schedulerName") is not None:
        return
    if "schedulerName" in profile:
        profile["schedulerName"] = DEFAULT_SCHEDULER
    else:
        profile.insert(0, "schedulerName", DEFAULT_SCHEDULER)
    draft.note(
        "profiles[0].schedulerName",
        f"was not set, is {DEFAULT_SCHEDULER}: the default, which has to be written when there are several profiles",
    )


def _copy_order(draft: Draft, profile: CommentedMap, added: CommentedMap) -> None:
    """Makes the added profile order the queue as the others do; ConfigError where queueSort alone does not say how."""
    name = draft.options.scheduler_name
    plugins = _mapping(draft, profile, "plugins", "")
    sort, multi = (_mapping(draft, plugins, part, "plugins.") for part in ("queueSort", "multiPoint"))
    enabled = _plugins(sort, "enabled")
    if not _says_order(sort, multi):
        draft.fail(
            f"profiles[0].plugins.{'queueSort' if enabled else 'multiPoint'}",
            f"{DEFAULT_ORDER} does not order the queue, and all profiles must order it alike; add the profile {name} "
            "to the file yourself, with what orders the queue in this one",
        )
    if not sort:
        return
    added["plugins"] = CommentedMap(queueSort=tree.copy_of(sort))
    settings = [item for item in profile.get("pluginConfig") or () if _name(item) in enabled]
    if settings:
        added["pluginConfig"] = CommentedSeq([tree.copy_of(item) for item in settings])
    draft.note(
        "profiles[0].plugins.queueSort", f"is copied to the profile {name}: all profiles must order the queue alike"
    )


def _says_order(sort: CommentedMap, multi: CommentedMap) -> bool:
    """Whether a profile with this queueSort, and nothing else, orders the queue in the same way."""
    enabled, is_default_off = _plugins(sort, "enabled"), _has_default(_plugins(sort, "disabled"))
    if enabled:
        return is_default_off or enabled == {DEFAULT_ORDER}
    is_on_again = DEFAULT_ORDER in _plugins(multi, "enabled")
    return not is_default_off and (is_on_again or not _has_default(_plugins(multi, "disabled")))


def _has_default(disabled: set[str]) -> bool:
    return bool({"*", DEFAULT_ORDER} & disabled)


def _mapping(draft: Draft, parent: CommentedMap, key: str, where: str) -> CommentedMap:
    found = parent.get(key) or CommentedMap()
    if not isinstance(found, CommentedMap):
        draft.fail(f"profiles[0].{where}{key}", "is not a mapping")
    return found


def _plugins(part: CommentedMap, key: str) -> set[str]:
    """The names in one of the two lists of an extension point."""
    items = part.get(key)
    return {_name(item) for item in items} if isinstance(items, list) else set()


def _name(item: object) -> str:
    return str(item.get("name")) if isinstance(item, dict) else ""
