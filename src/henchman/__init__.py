"""Henchman: background jobs for Python on Redis or Valkey. Nothing is lost, every state explains itself."""

from typing import TYPE_CHECKING, Any

from henchman.app import App
from henchman.config import Config
from henchman.errors import (
    ArgumentError,
    BatchClosed,
    BatchError,
    ConfigError,
    DefinitionError,
    Discard,
    DuplicateJob,
    Failure,
    HenchmanError,
    HistoryError,
    HistoryFull,
    JobFailed,
    JobShutdown,
    JobTimeout,
    Kill,
    LimitReached,
    ProcessCrashed,
    ResultError,
    ServerAway,
    ServerError,
    Snooze,
    Unconfirmed,
    UnknownBatch,
)
from henchman.isolation.options import Isolated
from henchman.kernel.version import __version__ as __version__
from henchman.limits.kinds import Bucket, Concurrent, Leaky, Points, Window
from henchman.work.current import CurrentJob, current_job

if TYPE_CHECKING:
    from henchman.batch.workflow import chain, group
    from henchman.iterable.job import IterableJob

__all__ = [
    "App",
    "ArgumentError",
    "BatchClosed",
    "BatchError",
    "Bucket",
    "Concurrent",
    "Config",
    "ConfigError",
    "CurrentJob",
    "DefinitionError",
    "Discard",
    "DuplicateJob",
    "Failure",
    "HenchmanError",
    "HistoryError",
    "HistoryFull",
    "Isolated",
    "IterableJob",
    "JobFailed",
    "JobShutdown",
    "JobTimeout",
    "Kill",
    "Leaky",
    "LimitReached",
    "Points",
    "ProcessCrashed",
    "ResultError",
    "ServerAway",
    "ServerError",
    "Snooze",
    "Unconfirmed",
    "UnknownBatch",
    "Window",
    "chain",
    "current_job",
    "group",
]


def __getattr__(name: str) -> Any:
    """What is heavy is imported when it is first asked for, so that ``import henchman`` stays quick."""
    if name == "IterableJob":
        from henchman.iterable.job import IterableJob

        return IterableJob
    if name in ("chain", "group"):
        from henchman.batch import workflow

        return getattr(workflow, name)
    raise AttributeError(f"module 'henchman' has no attribute {name!r}")
