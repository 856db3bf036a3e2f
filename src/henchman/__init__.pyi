"""Henchman: background jobs for Python on Redis or Valkey. Nothing is lost, every state explains itself."""

from henchman.app import App
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
from henchman.iterable.job import IterableJob
from henchman.iterators import (
    ain_batches,
    aover_django,
    aover_sqlalchemy,
    in_batches,
    over_csv,
    over_django,
    over_range,
    over_sequence,
    over_sqlalchemy,
)
from henchman.work.current import CurrentJob, current_job

__version__: str

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
