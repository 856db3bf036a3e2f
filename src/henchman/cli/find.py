"""``henchman find``: one text, looked for everywhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click
from rich.text import Text

from henchman.cli.session import Session, as_json, command
from henchman.cli.show import answer, cell
from henchman.oncall.search import LOOKED, Everywhere, search_everywhere

__all__ = ["find"]

_FURTHEST = 100_000


@command()
@click.argument("words", nargs=-1, required=True, metavar="TEXT")
@click.option(
    "--most",
    type=click.IntRange(1, _FURTHEST),
    default=LOOKED,
    show_default=True,
    help="Jobs of each set, and of all queues, to look at.",
)
@as_json
def find(session: Session, words: tuple[str, ...], most: int, as_json: bool) -> None:
    """Look for TEXT everywhere: ids, names, arguments, errors. Exit status 1: nothing was found.

    Running jobs, retries, scheduled, dead, queues, errors, batches, ordered ids, keys, limits, crons, processes,
    classes, saved views and history are looked through; each place says how much of it was. Terms narrow it
    as on the pages of the console: `class:shop.*`, `args.0:42`, `took:>30s`, `state:dead`, `--` before one like
    `-queue:low`.
    """
    text = " ".join(words).strip()
    if not text:
        raise click.UsageError("there is nothing to look for: henchman find TEXT")
    found = search_everywhere(session.any_app, text, most)
    answer({"text": text, "places": [one.to_json() for one in found.places]}, *_lines(found, most), as_json=as_json)
    if not found.found:
        sys.exit(1)


def _lines(found: Everywhere, most: int) -> Iterator[Text | str]:
    for place in found.found:
        yield Text.assemble(cell(place.title, "bold"), "  ", cell(place.said, "dim"))
        for hit in place.hits:
            yield Text.assemble(
                "  ", cell(hit.name), "  ", cell(hit.text, "dim"), "  ", cell(_id(hit.place, hit.name), "cyan")
            )
        if place.more and not place.said:
            yield Text("  and others", "dim")
    if not found.found:
        yield f"Nothing that was looked at has {found.text!r}."
    partly = [one for one in found.places if one.said and not one.hits]
    if partly:
        yield f"Nothing in: {', '.join(f'{one.title} ({one.said})' for one in partly)}"
    if most < _FURTHEST and any(one.looked < one.of for one in found.places if one.title != "Batches"):
        yield f"To look further: --most {min(most * 10, _FURTHEST)}"


def _id(place: tuple[str, ...], name: str) -> str:
    """What the other commands call it, where its name does not say that."""
    return place[-1] if len(place) > 1 and place[-1] != name else ""
