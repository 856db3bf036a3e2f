"""What may be written with settings. Read by mypy only."""

from __future__ import annotations

from henchman.config import Config

config = Config.load(arguments={"concurrency": 3})
slots: int = config.concurrency
url: str | None = config.redis_url

name: str = config.concurrency  # expect-error: assignment
config.concurrency = 4  # expect-error: misc
config.origins["tag"] = "argument"  # expect-error: index
config.concurency  # expect-error: attr-defined  # noqa: B018
