"""One minute of attacks: eight lanes side by side, each in its order, the targets and the moments drawn by the seed."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from attacks import ATTACKS, LONGER
from field import Field, until
from redis import RedisError

__all__ = ["one_minute"]

STOPPED = 28.0  # seconds: the lease, the lock of a dead lifeline, the 15 s of watching before a rescue, some beats


BREATH, EMPTY = 25.0, 200  # seconds, jobs
RELAYING = 15.0  # seconds for a process to take over from a relay that was killed


class Step(NamedTuple):
    """An attack at a second of the minute."""

    at: float
    name: str
    args: tuple[Any, ...] = ()


def _lanes(field: Field) -> Sequence[Sequence[Step]]:
    """The plan of a minute. Two groups stand until others bury them, that of the relay among them: the third one, which
    would do that if it can be so arranged, loses but one worker meanwhile, and at once; and the server refuses nothing
    and stays who it is.
    """
    groups = list(field.groups)
    field.chance.shuffle(groups)
    relay = until(field.relay, RELAYING) if field.market is not None else 0
    try:
        holder = (field.redis.get("hm:lifeline") or b"").decode().split(":")  # type: ignore[union-attr]
    except RedisError:
        holder = []
    groups.sort(key=lambda group: (relay not in group.workers, any(str(pid) in holder for pid in group.workers)))
    x, z, y = groups
    return (
        [
            Step(1, "group stopped past the lease, watchers armed", (x, STOPPED)),
            Step(31, "kill -9 of a whole group", (x,)),
            Step(44, "bytes delivered 10 s after the sender's death", (x,)),
        ],
        [
            Step(3, "kill -9 of a worker with work in flight", (y,)),
            Step(14, "100 ms of network delay", (y,)),
            Step(30, "worker stopped past its lease", (y,)),
            Step(38, "bytes delivered 10 s after the sender's death", (y,)),
            Step(50, "kill -9 of a supervisor with children alive", (y,)),
        ],
        [
            Step(6, "host suspended past the lease with work in flight", (z, STOPPED)),
            Step(35, "network cut for longer than the lease", (z,)),
            Step(43, "answers to workers lost after execution", (z.route,)),
            Step(46, "kill -9 of a worker with work in flight", (z,)),
            Step(52, "answers to workers lost after execution", (z.route,)),
        ],
        [
            Step(1, "SCRIPT FLUSH"),
            Step(2.5, "CLIENT KILL of everybody"),
            Step(4.5, "server silent (CLIENT PAUSE)"),
            Step(16, "answers to producers lost after execution", (field.pushing,)),
            Step(23, "kill -9 of a producer inside a batch"),
            Step(30, "disk of the append-only file full"),
            Step(35, "memory full for longer than the lease"),
            Step(43, "server down for longer than the lease", (LONGER,)),
            Step(52, "kill -9 of the server", (0.0,)),
            Step(54, "SCRIPT FLUSH"),
            Step(56.5, "kill -9 of all supervisors at once"),
        ],
        [Step(3, "answers to ends that are settled together lost after execution")],
        [
            Step(4, "recorder of history stopped past its lease"),
            Step(33, "kill -9 of the recorder of history"),
        ],
        [
            Step(5, "clock of a producer stepped"),
            Step(9, "clock of workers stepped", (field.chance.choice(groups),)),
            Step(21, "hostile payloads among honest ones"),
            Step(27, "workers of a user with the smallest rights"),
            Step(32, "clock of the server stepped on, and back"),
            Step(42, "clock of the server stepped back, and on"),
        ],
        [
            Step(20, "kill -9 of PostgreSQL with rows in the outbox", (2.0,)),
            Step(39, "kill -9 of PostgreSQL with rows in the outbox", (1.0,)),
        ],
    )


def _breathe(field: Field) -> None:
    """Let the queues run empty, so that who waits for pushes can be met: nobody pushes, for 25 s at most (the batches
    of a producer that is silent for 30 s are closed)."""
    redis: Any = field.redis
    field.hush(True)
    try:
        until(lambda: sum(redis.llen(one) for one in redis.scan_iter(match="queue:*", count=1000)) < EMPTY, BREATH, 0.2)
    finally:
        field.hush(False)


def one_minute(field: Field) -> None:
    """Sixty seconds of attacks; longer when one of them is late. A machine that is busy gets a breath before."""
    _breathe(field)
    began = time.monotonic()
    threads = []
    for steps in _lanes(field):
        moved = [
            step._replace(at=step.at + field.chance.uniform(-0.8, 0.8))
            for step in steps
            if step.name not in field.left_out
        ]
        thread = threading.Thread(target=_lane, args=(field, began, moved), daemon=True)
        thread.start()
        threads.append(thread)
    while any(thread.is_alive() for thread in threads) or time.monotonic() - began < 60:
        for group in field.groups:
            group.keep()
            group.known.update(group.workers)
        if field.stopping.wait(0.5):
            break
    for thread in threads:
        thread.join(20.0)


def _lane(field: Field, began: float, steps: Sequence[Step]) -> None:
    for step in steps:
        field.sleep(max(began + step.at - time.monotonic(), 0.0))
        if field.stopping.is_set():
            return
        field.strike_surely(step.name, ATTACKS[step.name], *step.args)
