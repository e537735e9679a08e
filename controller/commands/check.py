"""`check`: everything that can be wrong with an installation."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from controller.clock import SystemClock
from controller.commands import terminal
from controller.commands.leader import ADDRESSES, StatusReader
from controller.errors import ConfigError
from controller.process.command_line import EXIT_FINDING, EXIT_WELL
from controller.process.flags import access, namespace
from controller.settings import ProcessSettings, is_port

if TYPE_CHECKING:
    from controller.installation.site import CheckResult

IN_A_POD: Final = "KUBERNETES_SERVICE_HOST"
STYLES: Final[Mapping[str, str]] = {**terminal.SEVERITY, "skipped": "dim"}
FORMS: Final = ("json", "yaml")


@click.command("check")
@access
@namespace
@click.option(
    "--wait-seconds",
    type=click.FloatRange(0),
    metavar="N",
    default=0,
    show_default=True,
    help="try what fails again for so long, as right after an installation",
)
@click.option(
    "--test-namespace", metavar="NAME", default="default", show_default=True, help="where the dry runs' pods would be"
)
@click.option(
    "--scheduler-name", metavar="NAME", default="", help="scheduler of these pods (default: the first listed)"
)
@click.option("--extender-address", metavar="HOST:PORT", default="", help="the extender's, in place of its Service's")
@click.option("-o", "--output", type=click.Choice(FORMS), help="print a document in place of lines")
def command(
    kubeconfig: str,
    context: str,
    namespace: str,
    wait_seconds: float,
    test_namespace: str,
    scheduler_name: str,
    extender_address: str,
    output: str | None,
) -> int:
    """Find out what is wrong with an installation.

    Each line says ok, warning, failure or skipped, and what to do. Pods and placements are tried by dry runs: nothing
    is changed. Exit code 1: there is a failure.
    """
    from controller.installation.check import check_installation
    from controller.installation.site import CheckTarget

    host, _, port = extender_address.rpartition(":")
    if extender_address and not (host and port.isdecimal() and is_port(int(port))):
        raise ConfigError(f"--extender-address: is not HOST:PORT: {extender_address!r}")
    address = extender_address or service_by_table(f"{ProcessSettings().service}.{namespace}.svc", "https")
    target = CheckTarget(namespace, test_namespace, scheduler_name, address, is_inside=IN_A_POD in os.environ)
    reader, results = StatusReader(kubeconfig, context, namespace), []

    def document(path: str) -> Mapping[str, Any]:
        return reader.document(path, dict[str, Any])

    lines = check_installation(reader.api, SystemClock(), target, document, wait_seconds=wait_seconds)
    while (found := _next_of(lines)) is not None:
        results.append(found)
        if not output:
            _tell(found)
    if output:
        terminal.print_document(results, output)
    elif terminal.console().is_terminal:
        _sum_up(results)
    return EXIT_FINDING if any(one.outcome == "failure" for one in results) else EXIT_WELL


def _next_of(lines: Iterator[CheckResult]) -> CheckResult | None:
    with terminal.progress("checking the installation"):
        return next(lines, None)


def service_by_table(name: str, port: str) -> str:
    """HOST:PORT of a Service where its name is not known and a table of addresses serves; "" without one."""
    try:
        table = json.loads(Path(os.environ.get(ADDRESSES) or os.devnull).read_bytes() or "{}")
        return str((table.get(name) or {}).get(port) or "")
    except OSError as error:
        raise ConfigError(f"{ADDRESSES}: {os.environ[ADDRESSES]}: {error.strerror or error}") from error
    except (ValueError, AttributeError) as error:
        raise ConfigError(f"{ADDRESSES}: {os.environ[ADDRESSES]}: is no table of addresses: {error}") from error


def _tell(one: CheckResult) -> None:
    to = terminal.console()
    line = terminal.cell(f"{one.outcome:<8}", STYLES[one.outcome])
    to.print(line.append(terminal.cell(f" {one.what:<15} {one.text}")), soft_wrap=True)
    if one.hint:
        to.print(terminal.cell(f"{'':<9}{'':<16}hint: {one.hint}"), soft_wrap=True)


def _sum_up(results: Sequence[CheckResult]) -> None:
    counts = {outcome: sum(one.outcome == outcome for one in results) for outcome in STYLES}
    text = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
    terminal.console(err=True).print(terminal.cell(text))
