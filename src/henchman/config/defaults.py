"""What holds for jobs that say nothing themselves: what their queue says, ``[queues.mail]``, else the app."""

from __future__ import annotations

from collections.abc import Mapping

from henchman.config.settings import Config

__all__ = ["deadline_of", "objectives_of", "timeouts_of"]


def timeouts_of(config: Config, said: float | None) -> tuple[float | None, Mapping[str, float]]:
    """How long a run may take of a job that says ``said`` itself (0 and None: for ever), and by the queue that it was
    fetched from, where one says something else."""
    if said is not None:
        return said or None, {}
    return config.job_timeout or None, {
        name: table["timeout"] for name, table in config.queue_defaults.items() if "timeout" in table
    }


def deadline_of(config: Config, queue: str, said: float | None) -> float | None:
    """Within how many seconds of becoming due a job is over that says ``said`` itself; None: it has no deadline."""
    if said is None:
        said = config.queue_defaults.get(queue, {}).get("deadline", config.job_deadline)
    return said or None


def objectives_of(config: Config) -> dict[str, float]:
    """How many seconds the next job may wait at most, by the name of the queue, where that was said."""
    said = {name: table.get("objective", 0.0) for name, table in config.queue_defaults.items()}
    return {name: seconds for name, seconds in said.items() if seconds}
