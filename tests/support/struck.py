"""Jobs that are struck by their time-outs at random moments, in a process of its own: a lock that stays locked would
stop who asks, too.

    python -m support.struck URL SECONDS [STRIKES]

Prints one line of JSON: strikes, jobs by what they did, and ``stuck``: where each thread stands when not every job
ended. Ends after SECONDS, or when there were STRIKES, and then at most 30 s later.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import json
import logging
import os
import queue
import random
import sqlite3
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from logging.handlers import QueueHandler
from pathlib import Path
from typing import Any

from redis import Redis
from sqlalchemy import create_engine, text
from sqlalchemy.pool import QueuePool

from henchman import App, JobTimeout, current_job
from henchman.log import handler as log
from support.worker import in_flight, until

SLOTS = 8
url, folder = sys.argv[1], Path(tempfile.mkdtemp(prefix="hm-struck-"))
app = App(redis_url=url, concurrency=SLOTS, dead_max=10**6, log_level="info")
logger = logging.getLogger("struck")
lock, recursive, condition, semaphore = (
    threading.Lock(),
    threading.RLock(),
    threading.Condition(),
    threading.Semaphore(3),
)
shared: queue.Queue[int] = queue.Queue(100)
event = threading.Event()
engine = create_engine(f"sqlite:///{folder}/pool.db", poolclass=QueuePool, pool_size=3, max_overflow=0)
helpers = ThreadPoolExecutor(2)
pushed: set[str] = set()
noted: set[str] = set()
did: Counter[str] = Counter()
late: defaultdict[str, list[float]] = defaultdict(list)  # seconds after the time-out


class Loud:
    """Says goodbye when it is freed."""

    def __del__(self) -> None:
        sum(range(50))


def _log() -> None:
    logger.info("a line of %s", current_job().jid)
    try:
        raise ValueError("a trace")
    except ValueError:
        logger.exception("with its trace")


def _lock() -> None:
    with lock:
        sum(range(20))
    with recursive, recursive:
        sum(range(20))
    with condition:
        condition.notify_all()
    with semaphore:
        sum(range(20))


def _import() -> None:
    name = f"struck_module_{random.randrange(8)}"
    sys.modules.pop(name, None)
    with contextlib.suppress(KeyError):  # two at once: one takes it out while the other brings it in
        importlib.import_module(name)
    time.sleep(0.001)  # an import is never broken off: a job that does nothing else is struck late


def _files() -> None:
    with tempfile.NamedTemporaryFile("w", dir=folder) as file:
        file.write("x" * 5000)
        file.flush()
    [Loud() for _ in range(20)]


def _queue() -> None:
    with contextlib.suppress(queue.Full):
        shared.put(1, timeout=0.001)
    with contextlib.suppress(queue.Empty):
        shared.get(timeout=0.001)
    sum(range(2000))  # as who does something with what came


def _wait() -> None:
    event.wait(0.001)
    helpers.submit(sum, [1]).result()


def _sqlite() -> None:
    with contextlib.closing(sqlite3.connect(folder / f"{threading.get_ident()}.db")) as file, file:
        file.execute("create table if not exists t (a)")
        file.execute("insert into t values (1)")


def _pool() -> None:
    with engine.begin() as connection:
        connection.execute(text("insert into t values (1)"))


def _driver() -> None:
    with Redis.from_url(url) as client:
        client.ping()
        client.incr("struck")


def _push() -> None:
    pushed.add(note.enqueue().jid)
    current_job().log("pushed")


DEEDS: dict[str, Callable[[], None]] = {
    deed.__name__.strip("_"): deed
    for deed in (_log, _lock, _import, _files, _queue, _wait, _sqlite, _pool, _driver, _push)
}


@app.job(name="note", retry=0)
def note() -> None:
    noted.add(current_job().jid)


@app.job(name="toil", retry=0)
def toil(deed: str) -> None:
    """Do it until the time-out."""
    do, end = DEEDS[deed], time.monotonic() + 120
    try:
        while time.monotonic() < end:
            do()
    except JobTimeout:
        did[deed] += 1
        late[deed].append(time.monotonic() - (current_job().deadline or 0.0))
        raise


def _ended(redis: Any) -> bool:
    return not redis.llen("queue:default") and not in_flight(redis)


def _setup() -> None:
    for number in range(8):
        (folder / f"struck_module_{number}.py").write_text("import threading\nx = [n * n for n in range(300)]\n")
    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True
    with engine.begin() as connection:
        connection.execute(text("create table t (a)"))
    log.setup("logfmt", "info", (folder / "log").open("w"))
    log.subscribe(app.events, "info")
    logger.addHandler(logging.FileHandler(folder / "file.log"))
    logger.addHandler(QueueHandler(queue.SimpleQueue()))


def main(seconds: float, most: int) -> dict[str, Any]:
    _setup()
    redis, end, sent = Redis.from_url(url), time.monotonic() + seconds, 0
    stuck: list[str] = []
    with app.embed() as worker:
        watchdog = worker._launcher.watchdog
        while time.monotonic() < end and getattr(watchdog, "struck", 0) < most:
            if redis.llen("queue:default") < 3 * SLOTS:
                for deed in random.sample(list(DEEDS), len(DEEDS)):
                    toil.using(timeout=random.uniform(0.001, 0.01)).enqueue(deed)
                    sent += 1
            time.sleep(0.005)
        try:
            until(lambda: _ended(redis), "every job ended", 30.0)
        except AssertionError:
            with (folder / "stacks").open("w+") as file:
                faulthandler.dump_traceback(file)
                file.seek(0)
                stuck = file.read().splitlines()
            print(json.dumps({"strikes": sum(did.values()), "stuck": stuck}), flush=True)
            os._exit(1)
    dead = Counter(json.loads(one)["error_class"] for one in redis.zrange("dead", 0, -1))
    return {
        "sent": sent,
        "strikes": getattr(watchdog, "struck", 0),
        "did": did,
        "late": {deed: round(max(times), 3) for deed, times in late.items()},
        "usually": {deed: round(sorted(times)[len(times) // 2], 3) for deed, times in late.items()},
        "dead": dead,
        "lost": len(pushed - noted),
        "stuck": stuck,
        "log": (folder / "log").stat().st_size,
    }


if __name__ == "__main__":
    print(json.dumps(main(float(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 10**9)), flush=True)
    os._exit(0)
