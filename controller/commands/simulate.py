"""`simulate`: what would happen if workloads came, nodes went, claims grew or settings changed; and `bundle`, which
saves the objects that it can be asked about elsewhere."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import click

from controller.clock import SystemClock
from controller.commands.leader import StatusReader
from controller.commands.terminal import cell, console, print_document, shown, size, table, told_progress
from controller.errors import ConfigError
from controller.model.quantity import MAX_BYTES, quantity_bytes
from controller.model.times import rfc3339
from controller.process.command_line import EXIT_FINDING, EXIT_MISUSE, EXIT_WELL, failed
from controller.process.flags import access, namespace

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from controller.simulation.documents import PodOutcome, Simulation, VolumeOutcome
    from controller.simulation.run import GrownClaim, Question
    from controller.simulation.state import SavedCluster

MOST_MIB: Final = 200  # of a bundle
MOST_ROWS: Final = 60  # pods or disks; all with -o wide
_STATES: Final = {"placed": "green", "refused": "red", "not-made": "yellow", "ends": "yellow"}
_NAME: Final = "NS/NAME=SIZE"


@click.command("simulate")
@click.option("-f", "--filename", "files", multiple=True, metavar="FILE", help="workloads that come; - is stdin")
@click.option("--drain", multiple=True, metavar="NODE", help="a node that is drained")
@click.option("--fail", multiple=True, metavar="NODE", help="a node that is lost for ever, with its disks")
@click.option("--grow", multiple=True, metavar=_NAME, help="a claim that grows to that size, as in shop/data=200Gi")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="a Longhorn setting that changes")
@click.option("--objects", metavar="PATH", help="saved objects instead of the cluster: a file, a folder, or a bundle")
@click.option("-n", "where", metavar="NAMESPACE", default="default", help="of workloads that name none")
@click.option("--picture", metavar="FILE", help="draw the disks before and after, as .svg or .png")
@click.option("-o", "--output", type=click.Choice(["json", "yaml", "wide"]), help="the whole answer, or longer tables")
@access
@namespace
def command(
    kubeconfig: str,
    context: str,
    namespace: str,
    files: Sequence[str],
    drain: Sequence[str],
    fail: Sequence[str],
    grow: Sequence[str],
    settings: Sequence[str],
    objects: str | None,
    where: str,
    picture: str | None,
    output: str | None,
) -> int:
    """Say what would find a place, and where, before it happens.

    Settings change first, then nodes go and their pods and copies find other places, then claims grow, then FILE comes.
    Nothing is written. Exit code 1 if anything finds no place.
    """
    from controller.plan.complaints import InputError
    from controller.simulation.picture import FORMS, write_picture
    from controller.simulation.run import simulate

    if picture is not None and not picture.lower().endswith(FORMS):
        raise click.BadParameter(f"ends in none of {', '.join(FORMS)}: {picture}", param_hint="--picture")
    now = SystemClock().now_utc()
    try:
        question = _question(files, drain, fail, grow, settings, where)
        with told_progress("simulating") as told:
            source = _source(objects, kubeconfig, context, namespace, told)
            found = simulate(source, question, now, lambda done, of: told(f"pod {done} of {of}"))
    except InputError as error:
        return failed(str(error), EXIT_MISUSE)
    if picture is not None:
        write_picture(found, picture)
    if output in ("json", "yaml"):
        print_document(found, output)
    else:
        to = console()
        shown(to, parts(to, found, is_wide=output == "wide"))
    return EXIT_FINDING if found.findings else EXIT_WELL


def _source(
    objects: str | None, kubeconfig: str, context: str, namespace: str, tell: Callable[[str], None]
) -> SavedCluster:
    from controller.simulation.sources import read_cluster, read_objects

    if objects is not None:
        tell(f"reading {objects}")
        return read_objects(objects)
    from controller.kube.api import ClientKubeApi

    origin = "the cluster" + (f" of context {context}" if context else "")
    return read_cluster(
        ClientKubeApi.load(kubeconfig, context), namespace, origin, lambda text: tell(f"reading {text}")
    )


# The question


def _question(
    files: Sequence[str],
    drain: Sequence[str],
    fail: Sequence[str],
    grow: Sequence[str],
    settings: Sequence[str],
    where: str,
) -> Question:
    """Raises InputError and click.BadParameter."""
    from controller.plan.complaints import Notes
    from controller.simulation.run import Question
    from controller.simulation.sources import read_workload_file
    from controller.simulation.workloads import Workloads, read_workloads

    wanted, notes = Workloads(), Notes()
    for file in files:
        read_workloads(file, read_workload_file(file, sys.stdin.buffer), where, notes, wanted)
    both = sorted(set(drain) & set(fail))
    if both:
        raise click.BadParameter(f"{both[0]} is lost as well", param_hint="--drain")
    changed = dict(_pair(one, "--set") for one in settings)
    text = [f"set {name}={value}" for name, value in changed.items()]
    text += [f"fail {one}" for one in fail] + [f"drain {one}" for one in drain] + [f"grow {one}" for one in grow]
    text += [f"add {one}" for one in files]
    return Question(changed, tuple(fail), tuple(drain), tuple(map(_growth, grow)), wanted, tuple(text))


def _pair(text: str, flag: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise click.BadParameter(f"is not NAME=VALUE: {text}", param_hint=flag)
    return name, value


def _growth(text: str) -> GrownClaim:
    from controller.errors import MalformedRequestError
    from controller.simulation.run import GrownClaim

    key, value = _pair(text, "--grow")
    where, sign, name = key.partition("/")
    if not sign or not where or not name:
        raise click.BadParameter(f"is not {_NAME}: {text}", param_hint="--grow")
    try:
        size_bytes = quantity_bytes(value, "--grow")
    except MalformedRequestError as error:
        raise ConfigError(str(error)) from error
    if value.startswith("+") or not 0 < size_bytes < MAX_BYTES:
        raise click.BadParameter(f"is no size that a claim can have: {value}", param_hint="--grow")
    return GrownClaim(where, name, size_bytes)


# The answer, as tables


def parts(to: Console, found: Simulation, *, is_wide: bool) -> Iterator[RenderableType]:
    """What finds no place first, then where everything lands."""
    from rich.text import Text

    if found.findings:
        yield cell(f"{len(found.findings)} find no place:", "bold red")
        for one in found.findings[: None if is_wide else MOST_ROWS]:
            yield Text.assemble(cell(f"  {one.kind} {one.about}: ", "bold"), cell(one.text))
            if one.change:
                yield Text.assemble(("    do: ", "bold"), cell(one.change))
    else:
        waiting = sum(one.why == "waits" and one.state in ("refused", "not-made") for one in found.pods)
        said = f"Everything that was asked about finds a place. Pods that wait as before: {waiting}."
        yield cell(said if waiting else "Everything finds a place.", "bold green")
    yield from _growths(to, found)
    yield from _pods(to, found.pods, is_wide=is_wide)
    yield from _rebuilds(to, found)
    yield from _disks(to, found, is_wide=is_wide)
    for remark in found.remarks:
        yield cell(f"note: {remark}", "bright_black")


def _growths(to: Console, found: Simulation) -> Iterator[RenderableType]:
    if found.growths:
        rows = table(to, "claim", ">to", "verdict", ">largest", "why")
        for one in found.growths:
            style = "green" if one.verdict == "admitted" else "red"
            most = size(one.largest_bytes) if one.largest_bytes else ""
            rows.add_row(cell(one.claim), size(one.size_bytes), cell(one.verdict, style), most, cell(one.text))
        yield rows


def _pods(to: Console, pods: Sequence[PodOutcome], *, is_wide: bool) -> Iterator[RenderableType]:
    if not pods:
        return
    # Who finds no place stands above; on a terminal the rows end somewhere.
    shown_pods = pods if is_wide else pods[:MOST_ROWS]
    rows = table(to, "pod", "why", "outcome", "node", "new copies on")
    for one in shown_pods:
        copies = "; ".join(_copies(volume) for volume in one.volumes if volume.new)
        outcome = cell(one.state, _STATES.get(one.state, ""))
        rows.add_row(cell(f"{one.namespace}/{one.name}"), cell(one.why), outcome, cell(one.node), cell(copies))
    yield rows
    if len(shown_pods) < len(pods):
        yield cell(f"{len(pods) - len(shown_pods)} more pods: -o wide shows all")


def _copies(volume: VolumeOutcome) -> str:
    where = ", ".join(f"{one.node}/{one.disk}" for one in volume.new)
    return f"{volume.claim.rpartition('/')[2] or volume.volume} {size(volume.size_bytes)}: {where}"


def _rebuilds(to: Console, found: Simulation) -> Iterator[RenderableType]:
    if found.rebuilds:
        rows = table(to, "volume", ">size", "state", "new copies on", "why")
        for one in found.rebuilds[:MOST_ROWS]:
            style = {"rebuilt": "green", "waits": "yellow"}.get(one.state, "red")
            where = ", ".join(f"{place.node}/{place.disk}" for place in one.new)
            name, state = cell(one.claim or one.volume), cell(one.state, style)
            rows.add_row(name, size(one.size_bytes), state, cell(where), cell(one.text))
        yield rows
        if len(found.rebuilds) > MOST_ROWS:
            yield cell(f"{len(found.rebuilds) - MOST_ROWS} more volumes: -o json has all")
    for claim in found.claims:
        yield cell(f"claim {_copies(claim)}" if claim.new else f"claim {claim.claim}: its copies wait for a pod")


def _disks(to: Console, found: Simulation, *, is_wide: bool) -> Iterator[RenderableType]:
    changed = [
        one
        for one in found.disks
        if is_wide or one.state or (one.used_before, one.taken_before) != (one.used_after, one.taken_after)
    ]
    if not changed:
        yield cell("No disk has more or less on it than before.")
        return
    rows = table(to, "node", "disk", ">in use before", ">in use after", ">promised after", ">limit", ">free after", "")
    for one in changed if is_wide else changed[:MOST_ROWS]:
        free = one.limit_after - one.used_after - one.taken_after
        figures = (one.used_before, one.used_after, one.taken_after, one.limit_after, free)
        texts = [cell(size(number), "red" if number < 0 else "") for number in figures]
        rows.add_row(cell(one.node), cell(one.disk), *texts, cell(one.state, "yellow"))
    yield rows
    if not is_wide and len(changed) > MOST_ROWS:
        yield cell(f"{len(changed) - MOST_ROWS} more disks: -o wide shows all")


# The bundle


@click.command("bundle")
@click.option("--file", "-f", metavar="FILE", help="where to write it (default: a name with the time, here)")
@click.option("--hash-names", is_flag=True, help="hash names, namespaces and values of labels; simulations still work")
@click.option(
    "--most-mib",
    type=click.IntRange(1, 4096),
    metavar="N",
    default=MOST_MIB,
    show_default=True,
    help="size, before it is packed",
)
@access
@namespace
def bundle(kubeconfig: str, context: str, namespace: str, file: str | None, most_mib: int, *, hash_names: bool) -> int:
    """Write a support bundle: objects, settings, status, decisions, logs, without secrets.

    What your rights do not show is named in its manifest. `simulate --objects` and `plan --objects` read the file.
    """
    from controller.simulation.bundle import collect, names_of, write_bundle
    from controller.simulation.redaction import Names

    reader = click.get_current_context().obj or StatusReader()
    reader.kubeconfig, reader.context, reader.namespace = kubeconfig, context, namespace
    now = SystemClock().now_utc()
    folder = f"longhorn-scheduler-extender-{now:%Y%m%dT%H%M%SZ}"
    path = file or f"{folder}.tar.gz"
    names = Names(secrets.token_bytes(16)) if hash_names else None
    with told_progress("collecting") as tell:
        found = collect(reader.api, namespace, reader.ask_pod, names, rfc3339(now), tell, most_mib)
        written = write_bundle(found, path, folder, now.timestamp())
    to = console()
    to.print(cell(f"{path}: {size(written)}, {len(found.files)} files"))
    for line in names_of(found.missing):
        to.print(cell(f"note: missing: {line}"))
    return EXIT_WELL
