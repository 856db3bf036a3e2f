"""The reference, written from what the code itself says, so that it cannot disagree with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from logging import getLevelName
from pathlib import Path
from typing import Final

import click

from henchman.cli.main import henchman
from henchman.config import Config
from henchman.log.events import ENDINGS, PLAIN

#: what people call or are given: heading → where it is defined
CLASSES: Final = {
    "App": "henchman.App",
    "Jobs": "henchman.client.job.Job",
    "A push with options": "henchman.client.job.Using",
    "Handle": "henchman.client.push.Handle",
    "Pushed": "henchman.client.push.Pushed",
    "The current job": "henchman.CurrentJob",
    "Batch": "henchman.batch.batch.Batch",
    "A row of a batch": "henchman.batch.results.BatchResult",
    "Ordered queues": "henchman.ordered.definition.OrderedJob",
    "Iterable jobs": "henchman.IterableJob",
}

HEAD = """# Settings

A setting comes from a file, from the environment or from an argument; the later one wins.

1. `henchman.toml`, or `[tool.henchman]` in `pyproject.toml`: the nearest one from the working folder upwards.
2. The environment: `HENCHMAN_` and the name in capitals, such as `HENCHMAN_CONCURRENCY=20`. Lists are separated by
   commas, booleans are yes or no, durations are seconds. An empty variable counts as not set. `REDIS_URL` is honoured
   for `redis_url`.
3. Arguments: of `App(...)` and of the command line.

A name that does not exist is an error, wherever it stands. `henchman doctor` prints each value and where it came from.

| setting | default | what it is |
|---|---|---|
"""


def write_reference(folder: Path) -> None:
    """Write each page of the reference into ``folder``."""
    folder.mkdir(exist_ok=True)
    pages = {"settings": settings(), "app": classes(), "errors": errors(), "commands": commands(), "events": events()}
    for name, text in pages.items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")


def settings() -> str:
    rows = [f"| `{one.name}` | {one.value_text} | {one.help} |" for one in Config().describe()]
    return HEAD + "\n".join(rows) + "\n"


def directive(name: str, target: str, *options: str) -> str:
    lines = "".join(f"   :{option}:\n" for option in options)
    return f"```{{eval-rst}}\n.. {name}:: {target}\n{lines}```\n"


def classes() -> str:
    parts = [f"## {heading}\n\n{directive('autoclass', target, 'members')}" for heading, target in CLASSES.items()]
    return "# App, jobs and what they give\n\n" + "\n".join(parts)


def errors() -> str:
    return "# Exceptions\n\n" + directive("automodule", "henchman.errors", "members", "show-inheritance")


def commands() -> str:
    """The help of every command, as it is printed."""
    texts = [f"## {name}\n\n```text\n{text}\n```\n" for name, text in helps("henchman", henchman)]
    return "# Commands\n\n" + "\n".join(texts)


def helps(name: str, command: click.Command) -> Iterator[tuple[str, str]]:
    context = click.Context(command, info_name=name, max_content_width=100)
    yield name, command.get_help(context)
    if isinstance(command, click.Group):
        for word in command.list_commands(context):
            if (child := command.get_command(context, word)) is not None:
                yield from helps(f"{name} {word}", child)


def events() -> str:
    head = (
        "# Events and log lines\n\nWorker processes announce what happens. `@app.on(...)` takes the events of a "
        "process; every other line stands in the log, at this level and in these words, with its facts beside it.\n"
    )
    return head + table("Of a process", PLAIN) + table("Of a run, by its ending", ENDINGS)


def table(heading: str, lines: Mapping[str, tuple[int, str]]) -> str:
    rows = "".join(
        f"| `{name}` | {getLevelName(level).lower()} | {words} |\n" for name, (level, words) in lines.items()
    )
    return f"\n## {heading}\n\n| event | level | line |\n|---|---|---|\n{rows}"
