"""The program `longhorn-scheduler-extender`: its sub-commands, each of which is imported when it is called.

docs/command.md describes them, and the exit codes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from controller.process.command_line import (
    COMPLETE,
    EXIT_WELL,
    PROGRAM,
    LaterCommand,
    run_command,
    tell_new_name,
    version_flag,
)
from controller.process.flags import everywhere

# Where each command is, and what the list of commands says of it, as it does itself.
COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "bundle": (
        "controller.commands.simulate:bundle",
        "Write a support bundle: objects, settings, status, decisions, logs, without secrets.",
    ),
    "capacity": ("controller.commands.capacity", "Show what still fits."),
    "certs": ("certs.cli", "Show, check and renew the certificates."),
    "check": ("controller.commands.check", "Find out what is wrong with an installation."),
    "completion": ("controller.commands.completion", "Print what a shell needs to complete this."),
    "explain": ("controller.commands.explain", "Say why something waits, or lies where it does."),
    "plan": ("controller.plan.command", "Answer questions about saved objects."),
    "prepare-uninstall": ("controller.commands.uninstall:prepare_uninstall", "Prepare an uninstallation."),
    "record": ("controller.record.command", "Check the record of allocations."),
    "remove-webhooks": (
        "controller.commands.uninstall:remove_webhooks",
        "Let Longhorn place alone, with no webhooks.",
    ),
    "render-scheduler-config": ("controller.commands.scheduler_config", "Print kube-scheduler's configuration."),
    "run": ("controller.commands.run", "Run the controller."),
    "simulate": ("controller.commands.simulate", "Say what would find a place, and where, before it happens."),
    "status": ("controller.commands.status", "Show what the leader sees, problems first."),
}
OLD_NAMES: Final = {"check-installation": "check"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command. Returns the process's exit code."""
    if instruction := os.environ.get(COMPLETE):
        from click.shell_completion import shell_complete

        return shell_complete(program, {}, PROGRAM, COMPLETE, instruction)
    return run_command(program, arguments)


def plugin() -> int:
    """`kubectl longhorn_scheduling` is this program as well."""
    return run_command(for_people, name="kubectl longhorn_scheduling")


def complete_plugin() -> int:
    """What kubectl runs to complete the words behind `kubectl longhorn_scheduling`."""
    from controller.commands.completion import complete_for_kubectl

    click.echo(complete_for_kubectl(for_people, sys.argv[1:]))
    return EXIT_WELL


@click.pass_context
def _check_flags(caller: click.Context, /, **given: Any) -> None:
    """What stands before a sub-command is used by it, or refused."""
    name = str(caller.invoked_subcommand)
    called = caller.command.get_command(caller, name) if isinstance(caller.command, click.Group) else None
    for flag, value in given.items():
        if value is not None and called is not None and not _takes(called, flag):
            raise click.UsageError(f"{name} takes no --{flag}", caller)
    if name in OLD_NAMES:
        tell_new_name(f"{PROGRAM} {name}", f"{PROGRAM} {OLD_NAMES[name]}")


def _takes(command: click.Command, flag: str) -> bool:
    if isinstance(command, LaterCommand):
        command = command.real
    below = command.commands.values() if isinstance(command, click.Group) else ()
    return any(one.name == flag for one in command.params) or any(_takes(one, flag) for one in below)


def _program(left_out: str = "") -> click.Group:
    listed = [LaterCommand(name, *about) for name, about in COMMANDS.items() if name != left_out]
    hidden = [LaterCommand(old, *COMMANDS[new], hidden=True) for old, new in OLD_NAMES.items()]
    return click.Group(
        PROGRAM,
        commands=[*listed, *hidden],
        params=[*everywhere(), version_flag()],
        callback=_check_flags,
        help="Keeps kube-scheduler from choosing nodes without room for a pod's Longhorn volumes.",
    )


program = _program()
# The plugin has no server.
for_people = _program("run")
