"""The command ``henchman``. Exit statuses: 0 fine, 1 an error (one line says which), 2 wrong usage, 3 nothing runs;
4 and 5 are a command's own answer (``status``, ``batch``).

``HENCHMAN_DEBUG=1`` shows the traceback of an error.
"""

from __future__ import annotations

import importlib
import os
import re
import signal
import sys
from typing import Any

import click

from henchman import __version__
from henchman.cli.session import Group, server_options, settings_of
from henchman.errors import HenchmanError
from henchman.kernel.text import visible

__all__ = ["henchman", "main"]

#: command → the module that has it, in the order in which people meet the commands. It is imported when it is called.
COMMANDS = {
    "init": "cli.project",
    "work": "cli.work",
    "web": "cli.web",
    "top": "cli.top",
    "demo": "demo.main",
    "status": "cli.status",
    "queues": "cli.queues",
    "ordered": "cli.ordered",
    "processes": "cli.status",
    "metrics": "cli.metrics",
    "errors": "cli.metrics",
    "retries": "cli.queues",
    "scheduled": "cli.queues",
    "dead": "cli.queues",
    "operations": "cli.operations",
    "blocked": "cli.keys",
    "release": "cli.keys",
    "job": "cli.jobs",
    "why": "cli.jobs",
    "find": "cli.find",
    "check": "cli.deploy",
    "replay": "cli.deploy",
    "enqueue": "cli.jobs",
    "cancel": "cli.jobs",
    "keys": "cli.keys",
    "unlock": "cli.keys",
    "limits": "cli.limits",
    "pauses": "cli.pauses",
    "batches": "cli.batch",
    "batch": "cli.batch",
    "cron": "cli.jobs",
    "outbox": "cli.outbox",
    "history": "cli.history",
    "db": "cli.history",
    "server": "cli.server",
    "doctor": "cli.server",
    "bench": "bench.main",
    "completion": "cli.project",
}
_LONG = 100  # characters of a help in the list of commands


class Commands(Group):
    """The commands in the order in which people meet them; every error as one line."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        found: click.Command = getattr(importlib.import_module(f"henchman.{COMMANDS[name]}"), name)
        return found

    def resolve_command(self, context: click.Context, args: list[str]) -> Any:
        """The command that was asked for: it is loaded, and Ctrl-C is its own from now on."""
        found = super().resolve_command(context, args)
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # of henchman_command, for as long as modules are loaded
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return found

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Each with the first clause of its help, whole: click would cut the sentence where the line ends."""
        with formatter.section("Commands"):
            commands = ((name, self.get_command(context, name)) for name in COMMANDS)
            formatter.write_dl([(name, _clause(one.help or "")) for name, one in commands if one is not None])

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


def main() -> None:
    """The console script."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal that cannot show a character is no error
    henchman(prog_name="henchman")


if __name__ == "__main__":
    main()
