"""Health of the history, for ``doctor``: the database, its schema, and how far the recorder is behind."""

from __future__ import annotations

from typing import Literal, NamedTuple

from henchman.config import Config
from henchman.errors import ConfigError, HistoryError
from henchman.history import load
from henchman.store import history as store
from henchman.store.call import Runner
from henchman.store.keys import Keys

__all__ = ["Finding", "database", "stream"]

_BEHIND, _FAR_BEHIND = 10.0, 300.0  # seconds


class Finding(NamedTuple):
    """What was checked, its verdict, and what to do when it is not ok."""

    name: str
    verdict: Literal["ok", "warn", "bad"]
    text: str
    advice: str = ""


def database(config: Config) -> Finding:
    """Whether the database can be reached, and fits this release."""
    name = "history"
    off = config.why_history_is_off()
    if off:
        wanted = config.history != "off" and config.database_url is not None
        return Finding(name, "warn" if wanted else "ok", off, "jobs run all the same")
    try:
        admin = load(config)
    except ConfigError as error:
        return Finding(name, "bad", str(error), "install the driver where workers run")
    try:
        version = admin.current()
    except HistoryError as error:
        advice = "is the address right, and does the database run? Jobs run on meanwhile"
        return Finding(name, "bad", str(error), advice)
    finally:
        admin.close()
    if version.fits:
        return Finding(name, "ok", f"{admin.shown}, schema {version.found}")
    has = f"schema {version.found}, {version.needed} is needed" if version.found else "no tables of Henchman yet"
    if admin.makes_itself:
        return Finding(name, "ok", f"{admin.shown}: {has}; a worker that records sees to it")
    return Finding(name, "bad", f"{admin.shown}: {has}", "henchman db upgrade")


def stream(config: Config, runner: Runner, keys: Keys) -> Finding:
    """How far the recorder is behind. ServerError when there is no server."""
    name = "history lag"
    found = runner.run(store.backlog(keys))
    if not found.entries:
        dropped = f"; {found.dropped:,} messages and steps of progress had no room, so far" if found.dropped else ""
        return Finding(name, "ok", f"nothing waits to be recorded{dropped}")
    share = found.bytes / config.history_bytes
    text = f"{found.entries:,} entries wait, the oldest for {found.lag:,.1f} s; {share:.0%} of history_bytes"
    if found.lag < _BEHIND and share < 0.5:
        return Finding(name, "ok", text)
    who = f"{found.recorder} records" if found.recorder else "nobody records: a worker with history on does"
    verdict: Literal["warn", "bad"] = "bad" if found.lag > _FAR_BEHIND or share > 0.9 else "warn"
    return Finding(name, verdict, f"{text}; {who}", "see the workers' log, and whether the database keeps up")
