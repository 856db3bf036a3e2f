"""What the scripts write into the history stream, written by tests; and a recorder's home without an app."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

from redis import Redis

from henchman.config import Config
from henchman.history.database import Database
from henchman.history.recorder import Recorder
from henchman.history.stream import unbundled
from henchman.kernel.events import Events
from henchman.store.connection import Connections
from henchman.store.keys import Keys

__all__ = ["Home", "Teller", "recording", "stream"]

ME = "host-1:77:0123456789ab"


class Home:
    """As much of an app as a recorder needs; ``heard`` keeps every event of history by name."""

    def __init__(self, url: str, database_url: str, **settings: Any) -> None:
        self.config = Config(redis_url=url, database_url=database_url, **settings)
        self.keys = Keys(self.config.namespace)
        self.connections = Connections(url)
        self.events = Events()
        self.heard: list[tuple[str, dict[str, Any]]] = []
        for name in ("away", "back", "refused", "rewound", "lost"):
            self.events.on(f"history_{name}", self._listener(name))
        self.events.on("part_failed", self._listener("failed"))

    @property
    def told(self) -> list[str]:
        """Names of what was heard but ``away`` and ``back``, which a busy machine causes too."""
        return [name for name, _ in self.heard if name not in ("away", "back")]

    def _listener(self, name: str) -> Any:
        return lambda **facts: self.heard.append((name, facts))


@contextmanager
def recording(home: Home) -> Iterator[Recorder]:
    """A recorder without its thread: tests call ``drain`` or ``tick``."""
    assert home.config.database_url is not None
    recorder = Recorder(Database(home.config.database_url), home.config, home.keys, home.events, home.connections)
    try:
        yield recorder
    finally:
        recorder.stop()
        home.connections.close()


def stream(redis: Redis, key: str = "hm:history") -> list[dict[str, str]]:
    """The entries of the history that are not recorded yet, each of one job."""
    rows: Any = redis.xrange(key)
    parts = unbundled((at, list(chain.from_iterable(row.items()))) for at, row in rows)
    return [{key.decode(): value.decode() for key, value in zip(*[iter(flat)] * 2, strict=True)} for _, flat in parts]


class Teller:
    """Writes entries as the scripts do (``lua/lib/batch.lua``); many in one round trip, sent by ``flush``."""

    def __init__(self, redis: Redis, keys: Keys | None = None) -> None:
        self.redis = redis
        self.keys = keys or Keys()
        self._pipe = redis.pipeline(transaction=False)
        self._pending = 0

    def write(self, stream_id: str = "*", **fields: Any) -> None:
        told = {name: value if isinstance(value, bytes) else str(value) for name, value in fields.items()}
        flat = [part if isinstance(part, bytes) else part.encode() for pair in told.items() for part in pair]
        self._pipe.xadd(self.keys.history, told, id=stream_id)  # type: ignore[arg-type]
        self._pipe.incrby(self.keys.history_bytes, 60 + sum(map(len, flat)))
        self._pending += 1
        if self._pending >= 2000:
            self.flush()

    def flush(self) -> None:
        self._pipe.execute()
        self._pending = 0

    def job(self, jid: str, status: str, batch: str = "", attempt: int = 0, process: str = "", **detail: Any) -> None:
        self.write(k="job", j=jid, b=batch, s=status, a=attempt, w=process, d=json.dumps(detail))

    def enqueued(self, jid: str, batch: str = "", status: str = "enqueued", **detail: Any) -> None:
        given = {"class": "shop.create", "queue": "default", "args": [1, "two"]} | detail
        self.write(k="job", j=jid, b=batch, s=status, a=0, w="", d=json.dumps(given))

    def working(self, jid: str, batch: str = "", attempt: int = 1) -> None:
        self.job(jid, "working", batch, attempt, ME, ending="started")

    def ended(self, jid: str, status: str, batch: str = "", attempt: int = 1, process: str = ME, **detail: Any) -> None:
        self.job(jid, status, batch, attempt, process, **detail)

    def together(self, status: str, details: dict[str, dict[str, Any]], batch: str = "", attempt: int = 0) -> None:
        """One entry for many jobs: what is told of each, by jid."""
        lines = [f"{jid} {json.dumps(detail)}" for jid, detail in details.items()]
        self.write(k="jobs", b=batch, s=status, a=attempt, w=ME if attempt else "", d="\n".join(lines))

    def log(self, jid: str, text: str, batch: str = "") -> None:
        self.write(k="log", j=jid, b=batch, w=ME, d=json.dumps({"text": text}))

    def progress(self, jid: str, done: float, total: float, batch: str = "") -> None:
        self.write(k="progress", j=jid, b=batch, w=ME, d=json.dumps({"done": done, "total": total}))

    def batch(self, batch: str, state: str, **detail: Any) -> None:
        self.write(k="batch", b=batch, s=state, d=json.dumps(detail))
