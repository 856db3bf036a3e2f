"""Henchman: background jobs for Python on Redis or Valkey. Nothing is lost, every state explains itself."""

from typing import Any

from henchman.app import App, open_door
from henchman.config import Config
from henchman.errors import (
    ArgumentError,
    BatchClosed,
    BatchError,
    ConfigError,
    DefinitionError,
    Discard,
    Failure,
    HenchmanError,
    HistoryError,
    HistoryFull,
    JobFailed,
    JobShutdown,
    JobTimeout,
    Kill,
    ResultError,
    ServerAway,
    ServerError,
    Snooze,
    Unconfirmed,
    UnknownBatch,
)
from henchman.work.current import CurrentJob, current_job

__version__ = "0.1.0"

__all__ = [
    "App",
    "ArgumentError",
    "BatchClosed",
    "BatchError",
    "Config",
    "ConfigError",
    "CurrentJob",
    "DefinitionError",
    "Discard",
    "Failure",
    "HenchmanError",
    "HistoryError",
    "HistoryFull",
    "IterableJob",
    "JobFailed",
    "JobShutdown",
    "JobTimeout",
    "Kill",
    "ResultError",
    "ServerAway",
    "ServerError",
    "Snooze",
    "Unconfirmed",
    "UnknownBatch",
    "ain_batches",
    "aover_django",
    "aover_sqlalchemy",
    "current_job",
    "in_batches",
    "over_csv",
    "over_django",
    "over_range",
    "over_sequence",
    "over_sqlalchemy",
]


def __getattr__(name: str) -> Any:
    """What long jobs need is loaded when it is first asked for: ``import henchman`` stays quick."""
    if name in __all__:
        return open_door(name)
    raise AttributeError(f"module 'henchman' has no attribute {name!r}")
