"""`status`: what the leader sees, problems first."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Final

import click
from rich.console import Console, Group, RenderableType
from rich.text import Text

from controller.commands.leader import StatusReader, about_leader, asked, is_printed
from controller.commands.terminal import (
    SEVERITY,
    ago,
    bar,
    cell,
    console,
    duration,
    figure,
    is_plain,
    print_document,
    shown,
    size,
    table,
)
from controller.errors import NotReadyError
from controller.process.command_line import EXIT_FINDING, EXIT_WELL
from controller.views.documents import DiskView, Overview, Problem, TakenView, Totals, WaitingPod

MOST_DISKS: Final = 30  # those with least room; all with --all
WATCH_SECONDS: Final = 2.0
ROOMY: Final = 110  # columns from which a bar stands beside each disk


@click.command("status")
@click.option("--watch", "-w", is_flag=True, help="show it again every two seconds, until Ctrl-C")
@click.option("--diagnostics", is_flag=True, help="what a process says of itself, as JSON: for reports of faults")
@click.option("--all", "is_all", is_flag=True, help="all disks, not only the fullest")
@about_leader
def command(*, reader: StatusReader, output: str, watch: bool, diagnostics: bool, is_all: bool) -> int:
    """Show what the leader sees, problems first.

    Exit code 1 if there is a failure, or nobody leads.
    """
    if watch:
        if output in ("json", "yaml"):
            raise click.UsageError("--watch shows tables: leave out -o, or take wide")
        return _watch(reader, is_wide=output == "wide", is_all=is_all)
    if diagnostics:
        print_document(asked(reader, "/status", dict, of_anybody=True), "json")
        return EXIT_WELL
    seen = asked(reader, "/overview", Overview, of_anybody=True)
    if not is_printed(seen, output):
        to = console()
        shown(to, overview_parts(to, seen, is_wide=output == "wide", is_all=is_all))
    return _code(seen)


def _code(seen: Overview) -> int:
    is_well = seen.is_leading and not any(one.severity == "failure" for one in seen.problems)
    return EXIT_WELL if is_well else EXIT_FINDING


def _watch(reader: StatusReader, *, is_wide: bool, is_all: bool) -> int:
    to = console()
    views = _views(reader, to, is_wide=is_wide, is_all=is_all)
    try:
        if is_plain(to):
            for parts in views:
                shown(to, [*parts, Text("")])
        else:
            from rich.live import Live

            with Live(console=to, screen=True, auto_refresh=False) as live:
                for parts in views:
                    live.update(Group(*parts), refresh=True)
    except KeyboardInterrupt:
        pass
    return EXIT_WELL


def _views(reader: StatusReader, to: Console, *, is_wide: bool, is_all: bool) -> Iterator[Sequence[RenderableType]]:
    """What is to be seen, again and again; of a leader that is away, that it is."""
    while True:
        try:
            seen = reader.document("/overview", Overview, of_anybody=True)
            yield [cell(seen.time), *overview_parts(to, seen, is_wide=is_wide, is_all=is_all)]
        except NotReadyError as error:
            yield [cell(str(error), "bold red")]
        time.sleep(WATCH_SECONDS)


def overview_parts(to: Console, seen: Overview, *, is_wide: bool, is_all: bool) -> list[RenderableType]:
    """The document in sections; those without anything are left out."""
    return [
        *_problems(seen.problems),
        *_summary(to, seen, is_wide=is_wide),
        *_waiting(to, seen),
        *_disks(to, seen.disks, is_wide=is_wide, is_all=is_all),
        *(_taken(to, seen.plans, seen.more_plans) if is_wide else ()),
    ]


def _problems(problems: Sequence[Problem]) -> Iterator[RenderableType]:
    for one in problems:
        style = SEVERITY.get(one.severity, "")
        yield Text.assemble(cell(f"{one.severity}: {one.what}: ", style), cell(one.text))
        if one.hint:
            yield Text.assemble(("  do: ", "bold"), cell(one.hint))
    if problems:
        yield Text("")


def _summary(to: Console, seen: Overview, *, is_wide: bool) -> Iterator[RenderableType]:
    rows: list[tuple[str, Text]] = []
    if seen.is_leading:
        since = f" since {seen.since} ({ago(seen.since, seen.time)})" if seen.since else ""
        rows.append(("leader", cell(f"{seen.identity} on {seen.node or 'an unknown node'}, term {seen.term}{since}")))
    else:
        other = f"{seen.holder} leads" if seen.holder and seen.holder != seen.identity else "nobody leads"
        rows.append(("leader", cell(f"{other}; this is what {seen.identity} sees, which does not", "yellow")))
    rows.append(("mode", cell(f"{seen.mode}, gate {seen.gate}", "" if seen.gate in _QUIET else "yellow")))
    rows.append(("versions", cell(f"{seen.version}, Longhorn {seen.longhorn or 'unknown'}")))
    if seen.wiring:
        rows.append(("schedulers", cell(", ".join(f"{name} {state}" for name, state in seen.wiring.items()))))
    rows.append(("space", cell(totals_line(seen.totals))))
    replicas = [f"{count} {reason}" for reason, count in seen.waiting_replicas.items()]
    replicas += [f"{len(seen.held_replicas)} held"] if seen.held_replicas else []
    replicas += [f"{len(seen.left_replicas)} left to Longhorn"] if seen.left_replicas else []
    if replicas:
        rows.append(("replicas", cell(f"without a disk: {', '.join(replicas)}")))
    if is_wide:
        for what, names in (("held", seen.held_replicas), ("left", seen.left_replicas)):
            rows += [(what, cell(", ".join(names)))] if names else []
    bad = [f"{name}: {state}" for name, state in seen.workers.items() if state != "well"]
    if bad or is_wide:
        rows.append(("workers", cell("; ".join(bad) or "all well", "yellow" if bad else "")))
    rows.append(("data", cell(f"{seen.oldest_data_seconds:.1f} s old at most")))
    grid = table(to, "", "", is_headed=False)
    for name, text in rows:
        grid.add_row(Text(name, "bold"), text)
    yield grid


_QUIET: Final = ("enforced", "unproven", "following")


def totals_line(totals: Totals) -> str:
    """Sums over all disks in one sentence."""
    taken = totals.planned_bytes + totals.held_bytes + totals.growth_bytes
    disks = f"{totals.disks} disk{'s' * (totals.disks != 1)} on {totals.nodes} node{'s' * (totals.nodes != 1)}"
    return (
        f"{disks}: {size(totals.used_bytes)} of {size(totals.limit_bytes)} used, {size(taken)} planned, "
        f"{size(totals.free_bytes)} free"
    )


def _waiting(to: Console, seen: Overview) -> Iterator[RenderableType]:
    if not seen.waiting:
        return
    count = len(seen.waiting) + seen.more_waiting
    made = table(to, "POD", ">WAITS", "REASON", "WHY", title=f"{count} pod{'s' * (count != 1)} waiting")
    for one in seen.waiting:
        made.add_row(
            cell(f"{one.namespace}/{one.name}"), cell(ago(one.since, seen.time)), cell(_reason(one)), cell(one.text)
        )
    yield from ("", made)
    if seen.more_waiting:
        yield cell(f"and {seen.more_waiting} more")


def _reason(pod: WaitingPod) -> str:
    return next(iter(pod.reasons), "") or pod.decision


def _disks(to: Console, disks: Sequence[DiskView], *, is_wide: bool, is_all: bool) -> Iterator[RenderableType]:
    if not disks:
        return
    has_bar = to.width >= ROOMY and not is_plain(to)
    columns = ["NODE", "DISK", *(["TAKEN"] if has_bar else []), ">LIMIT", ">USED", ">PLANNED", ">FREE"]
    columns += ["UUID", "TAGS", ">SIZE", ">RESERVED", ">HELD", ">GROWTH"] if is_wide else []
    made = table(to, *columns, "CLOSED", title="Disks, the fullest first")
    most = len(disks) if is_all or is_wide else MOST_DISKS
    for one in sorted(disks, key=_share, reverse=True)[:most]:
        planned = one.planned_bytes + one.held_bytes + one.growth_bytes
        row = [cell(one.node), cell(one.disk)]
        row += [bar(one.used_bytes, planned, one.limit_bytes)] if has_bar else []
        row += [figure(number) for number in (one.limit_bytes, one.used_bytes, planned, one.free_bytes)]
        if is_wide:
            row += [cell(one.uuid), cell(",".join(one.tags))]
            row += map(figure, (one.maximum_bytes, one.reserved_bytes, one.held_bytes, one.growth_bytes))
        made.add_row(*row, cell(one.closed, "yellow"))
    yield from ("", made)
    if len(disks) > most:
        yield cell(f"and {len(disks) - most} more: --all")


def _share(disk: DiskView) -> tuple[float, str, str]:
    free = disk.free_bytes / disk.limit_bytes if disk.limit_bytes > 0 else -1.0
    return (1.0 - free, disk.node, disk.disk)


def _taken(to: Console, plans: Sequence[TakenView], more: int) -> Iterator[RenderableType]:
    if not plans:
        return
    made = table(to, "KIND", "CLAIM", "VOLUME", "NODE", ">SIZE", ">AGE", title="Planned and held")
    for one in plans:
        age = duration(one.age_seconds)
        made.add_row(cell(one.kind), cell(one.claim), cell(one.volume), cell(one.node), size(one.size_bytes), age)
    yield from ("", made)
    if more:
        yield cell(f"and {more} more")
