"""The command ``henchman``. Exit statuses: 0 fine, 1 an error (one line says which), 2 wrong usage, 3 nothing runs;
4 and 5 are a command's own answer (``status``, ``batch``).

``HENCHMAN_DEBUG=1`` shows the traceback of an error.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any

import click

from henchman import __version__
from henchman.cli.batch import batch, batches
from henchman.cli.cron import cron
from henchman.cli.db import db
from henchman.cli.doctor import doctor
from henchman.cli.history import history
from henchman.cli.jobs import cancel, enqueue, job
from henchman.cli.metrics import metrics_command
from henchman.cli.ordered import ordered
from henchman.cli.processes import processes
from henchman.cli.queues import queues
from henchman.cli.server import server
from henchman.cli.session import server_options, settings_of
from henchman.cli.sets import dead, retries, scheduled
from henchman.cli.status import status
from henchman.cli.work import work
from henchman.demo.main import demo
from henchman.errors import HenchmanError
from henchman.kernel.text import visible

__all__ = ["henchman", "main"]

COMMANDS = (
    work,
    demo,
    status,
    queues,
    ordered,
    processes,
    metrics_command,
    retries,
    scheduled,
    dead,
    job,
    enqueue,
    cancel,
    batches,
    batch,
    cron,
    history,
    db,
    server,
    doctor,
)


_LONG = 100  # characters of a help in the list of commands


class Commands(click.Group):
    """The commands in the order in which people meet them; every error as one line."""

    def list_commands(self, context: click.Context) -> list[str]:
        return [str(one.name) for one in COMMANDS]

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Each with the first clause of its help, whole: click would cut the sentence where the line ends."""
        with formatter.section("Commands"):
            formatter.write_dl([(str(one.name), _clause(one.help or "")) for one in COMMANDS])

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except HenchmanError as error:
            if _debugging():
                raise
            raise click.ClickException(visible(str(error))) from error
        except Exception as error:  # not foreseen: still one line, and the way to the rest
            if _debugging():
                raise
            text = f"{type(error).__name__}: {visible(str(error))} (HENCHMAN_DEBUG=1 shows where)"
            raise click.ClickException(text) from error


def _clause(help: str) -> str:
    """The help's first sentence; of a long one as much as stands before a colon."""
    sentence = re.split(r"\.(?: |$)", " ".join(help.split("\n\n")[0].split()))[0]
    return (sentence if len(sentence) < _LONG else re.split(r"[;:] ", sentence)[0]) + "."


def _debugging() -> bool:
    return os.environ.get("HENCHMAN_DEBUG", "") not in ("", "0")


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@server_options
@click.version_option(__version__, "-V", "--version", prog_name="henchman")
@click.pass_context
def henchman(context: click.Context) -> None:
    """Background jobs on Redis or Valkey: run them, watch them, set them right.

    Which server and which app: henchman.toml, [tool.henchman] in pyproject.toml, HENCHMAN_* and REDIS_URL, or these
    options, which may also stand behind the command.
    """
    settings_of(context)


for _one in COMMANDS:
    henchman.add_command(_one)


def main() -> None:
    """The console script."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal that cannot show a character is no error
    henchman(prog_name="henchman")


if __name__ == "__main__":
    main()
