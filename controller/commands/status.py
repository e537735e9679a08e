"""`status`: placeholder"""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import click

from controller.process.command_line import EXIT_UNREACHABLE, EXIT_WELL, failed
from controller.process.flags import PORT
from controller.settings import ProcessSettings


@click.command("status")
@click.option(
    "--status-port",
    type=PORT,
    metavar="N",
    default=ProcessSettings().status_port,
    show_default=True,
    help="The port on loopback.",
)
def command(status_port: int) -> int:
    """Print the status document of the process in this pod."""
    url = f"http://127.0.0.1:{status_port}/status"
    try:
        with urllib.request.urlopen(url, timeout=10) as response:  # a fixed scheme, to this machine
            document = json.load(response)
    except (urllib.error.URLError, OSError, ValueError) as error:
        problem = getattr(getattr(error, "reason", error), "strerror", None) or error
        return failed(f"{url}: {problem}. Run this in a pod of the suite, with its --status-port", EXIT_UNREACHABLE)
    click.echo(json.dumps(document, indent=2))
    return EXIT_WELL
