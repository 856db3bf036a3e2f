"""The help of every command, and the exit statuses."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
from click.testing import CliRunner

from frozen.conftest import Frozen
from henchman.cli.main import henchman
from henchman.config.settings import HELP


def test_help(frozen: Frozen) -> None:
    frozen("command line", [line for path, one in commands((), henchman) for line in told(path, one)])


def commands(path: tuple[str, ...], one: click.Command) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, one
    if isinstance(one, click.Group):
        for name in one.list_commands(click.Context(one)):
            found = one.get_command(click.Context(one), name)
            assert found is not None
            yield from commands((*path, name), found)


def told(path: tuple[str, ...], one: click.Command) -> Iterator[str]:
    """Its help word by word, and each parameter with all that the help does not show. How click lays it out is
    click's affair."""
    name = " ".join(("henchman", *path))
    usage = " ".join(one.collect_usage_pieces(click.Context(one)))
    behind = {each.name for each in one.params} & {"redis_url"} if path else ()
    yield f"== {name} {usage}{' (and the options of henchman itself)' if behind else ''}"
    yield from (f"   {' '.join(part.split())}" for part in (one.help or "").split("\n\n"))
    shared = [each.name for each in henchman.params]  # may stand behind every command
    for each in one.params:
        if path and each.name in shared:
            continue
        option = isinstance(each, click.Option)
        names = ", ".join((*each.opts, *each.secondary_opts)) if option else each.human_readable_name
        facts = [kind(each), *(["several"] if each.multiple or each.nargs == -1 else [])]
        facts += ["required"] if each.required else []
        default = each.default
        if isinstance(default, str | int | float | bool) and default is not False:
            facts.append(f"default {default!r}")
        help = " ".join((getattr(each, "help", None) or "").split())
        yield f"   {names} ({', '.join(facts)}) {help}".rstrip()


def kind(each: click.Parameter) -> str:
    if isinstance(each, click.Option) and each.is_flag:
        return "flag"
    choices = getattr(each.type, "choices", None)
    value = "|".join(map(str, choices)) if choices else each.type.name
    metavar = each.metavar
    return f"{metavar}: {value}" if metavar else value


def test_what_is_not_built_is_not_shown() -> None:
    told_of = [line for path, one in commands((), henchman) for line in told(path, one)]
    told_of += [f"{name}: {text}" for name, text in HELP.items()]
    assert [line for line in told_of if re.search(r"comes with|not built|later (release|version)", line)] == []


def test_help_of_the_whole_can_be_laid_out() -> None:
    for path, _ in commands((), henchman):
        shown = CliRunner().invoke(henchman, [*path, "--help"])
        assert shown.exit_code == 0, path
        assert shown.output.startswith("Usage: ")
