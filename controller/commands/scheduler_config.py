"""`render-scheduler-config`: what makes kube-scheduler ask the extender."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import click

from controller.clock import SystemClock
from controller.process.command_line import EXIT_WELL
from controller.process.flags import access, namespace
from controller.scheduler_config.command import parameters, printed, render


def _render(**options: Any) -> int:
    from certs.authority import check_client

    def tell(note: str) -> None:
        click.echo(f"note: {note}", err=True)

    arguments = SimpleNamespace(**options)
    check = partial(check_client, now_utc=SystemClock().now_utc())
    rendered = render(arguments, tell, check)
    for note in rendered.notes:
        tell(note)
    click.echo(printed(rendered, arguments.output), nl=False)
    return EXIT_WELL


command = access(
    namespace(
        click.Command(
            "render-scheduler-config",
            params=parameters(),
            callback=_render,
            help="Print kube-scheduler's configuration.\n\nIt makes kube-scheduler ask this extender.",
        )
    )
)
