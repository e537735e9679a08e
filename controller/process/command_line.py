"""What every program of the product does with its command line: sub-commands that are imported when they are called,
what is said of words that are wrong, and the exit codes, which docs/command.md lists.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import click

from controller.errors import ClusterError, ConfigError, MalformedRequestError, NotReadyError
from controller.process.logs import escaped, keeps_log
from controller.process.version import product_version

EXIT_WELL: Final = 0
EXIT_FINDING: Final = 1
EXIT_MISUSE: Final = 2
EXIT_UNREACHABLE: Final = 3
EXIT_INTERRUPTED: Final = 130
EXIT_FAULT: Final = 70
PROGRAM: Final = "longhorn-scheduler-extender"
COMPLETE: Final = "_LONGHORN_SCHEDULER_EXTENDER_COMPLETE"  # a shell that completes says here how
SETTINGS: Final[Mapping[str, Any]] = {"help_option_names": ["-h", "--help"], "max_content_width": 120}

log = logging.getLogger(__name__)


class LaterCommand(click.Command):
    """Stands for a command, whose `help` it says, and becomes it when it is called: the module at `place`, or its
    "module:attribute", is imported no earlier. Its command is called `command` if the place does not say otherwise."""

    def __init__(self, name: str, place: str, help: str, *, hidden: bool = False) -> None:  # noqa: A002
        super().__init__(name, help=help, hidden=hidden)
        self._place = place

    @cached_property
    def real(self) -> click.Command:
        module, _, attribute = self._place.partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute or "command")
        return command

    def make_context(self, *arguments: Any, **more: Any) -> click.Context:
        return self.real.make_context(*arguments, **more)


def version_flag() -> click.Option:
    def tell(context: click.Context, _: click.Parameter, is_given: bool) -> None:
        if is_given and not context.resilient_parsing:
            click.echo(f"{context.info_name} {product_version()}")
            context.exit()

    return click.Option(
        ["--version"], is_flag=True, is_eager=True, expose_value=False, callback=tell, help="Show the version and exit."
    )


def run_command(
    command: click.Command, arguments: Sequence[str] | None = None, *, name: str = "", obj: object = None
) -> int:
    """Runs the command with these words, by default the process's. Returns the exit code: what the command returns,
    or that of its failure, about which a line goes to standard error. `obj`: for `click.Context.obj`."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with command.make_context(name or command.name or PROGRAM, words, obj=obj, **SETTINGS) as context:
            done = command.invoke(context)
        return done if isinstance(done, int) else EXIT_WELL
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except (click.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return EXIT_MISUSE
    except click.ClickException as error:
        context_of = getattr(error, "ctx", None)
        if context_of is not None:
            click.echo(f"{context_of.get_usage()}\nTry '{context_of.command_path} --help' for help.\n", err=True)
        return failed(error.format_message().replace("\n\t", " "), EXIT_MISUSE)  # click's lists of choices
    except (ConfigError, MalformedRequestError) as error:
        return failed(str(error), EXIT_MISUSE)
    except (ClusterError, NotReadyError) as error:
        return failed(f"the API server: {error}" if isinstance(error, ClusterError) else str(error), EXIT_UNREACHABLE)
    except BrokenPipeError:
        # The reader has had enough. Python would complain of it once more when it closes its standard output.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
        return EXIT_WELL
    except Exception:  # fault barrier: it must not look like a finding
        traceback.print_exc()
        return failed("this is a fault of the program: please report it, with the lines above", EXIT_FAULT)


def failed(problem: str, code: int) -> int:
    """Says so on one line of standard error, of a program that keeps a log by an error there. Returns the code."""
    if keeps_log():
        log.error("%s", problem)
    else:
        click.echo(f"error: {escaped(problem)}", err=True)
    return code


def run_by_old_name(command: click.Command, old: str) -> int:
    """As `run_command`, for a program that is a sub-command now."""
    tell_new_name(old, f"{PROGRAM} {command.name}")
    return run_command(command, name=old)


def tell_new_name(old: str, new: str) -> None:
    click.echo(f"note: `{old}` is `{new}` from now on; the next release no longer has the old name", err=True)
