"""The table of settings, written from ``Config`` itself, so that it cannot disagree with it."""

from __future__ import annotations

from pathlib import Path

from henchman.config import Config

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


def write_settings_page(folder: Path) -> None:
    """Write ``settings.md`` into ``folder``."""
    rows = [f"| `{one.name}` | {one.value_text} | {one.help} |" for one in Config().describe()]
    folder.mkdir(exist_ok=True)
    (folder / "settings.md").write_text(HEAD + "\n".join(rows) + "\n", encoding="utf-8")
