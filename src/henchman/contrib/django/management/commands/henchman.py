"""``manage.py henchman work|status|web|…``: the whole command line of Henchman, with the app of this project."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import click
from django.core.management.base import BaseCommand, CommandError, handle_default_options

from henchman.cli.main import henchman
from henchman.contrib.django.project import TARGET, project_settings

__all__ = ["Command"]


class Command(BaseCommand):  # type: ignore[misc]
    """Words behind ``henchman`` go to click, as they are; those of Django itself may stand among them."""

    help = "Run workers, and look at jobs: the whole command line of Henchman."
    requires_system_checks: tuple[str, ...] = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """For ``call_command("henchman", "status", "--json")``."""
        parser.add_argument("words", nargs=argparse.REMAINDER)

    def run_from_argv(self, argv: list[str]) -> None:
        """The words as they were typed: argparse would take options of ours for its own."""
        words = _without_django(argv[2:])
        _tell_children(argv[0])
        if words[:1] == ["work"]:
            self.check(tags=["henchman"], databases=None)
        henchman(words, prog_name=f"{Path(argv[0]).name} henchman", obj=self._settings())

    def handle(self, *args: Any, words: list[str], **options: Any) -> None:
        """CommandError says what went wrong."""
        try:
            henchman(words, prog_name="henchman", obj=self._settings(), standalone_mode=False)
        except click.ClickException as error:
            raise CommandError(error.format_message(), returncode=error.exit_code) from error

    def print_help(self, prog_name: str, subcommand: str) -> None:
        """``manage.py help henchman``."""
        henchman(["--help"], prog_name=f"{Path(prog_name).name} {subcommand}", standalone_mode=False)

    @staticmethod
    def _settings() -> dict[str, Any]:
        return {"app": TARGET, "settings": project_settings()}


def _without_django(words: list[str]) -> list[str]:
    """``words`` without ``--settings`` and ``--pythonpath``, which Django has obeyed; they hold for workers too."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--settings")
    parser.add_argument("--pythonpath")
    options, rest = parser.parse_known_args(words)
    handle_default_options(options)
    return rest


def _tell_children(program: str) -> None:
    """Worker processes find the project where this process found it."""
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    ours = [str(Path(program).resolve().parent)] if program.endswith(".py") else []
    added = [one for one in dict.fromkeys([*ours, sys.path[0]]) if one and one not in known]
    os.environ["PYTHONPATH"] = os.pathsep.join([*added, *filter(None, known)])
