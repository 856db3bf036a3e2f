"""Runs of a job for tests that need one without a worker."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from henchman.client.job import define
from henchman.kernel.events import Events
from henchman.kernel.middleware import Chain
from henchman.wire import payload
from henchman.wire.encryption import Keyring
from henchman.work.unit import InFlightList, Unit
from henchman.worker.run import CompiledJob, Run, Slot

__all__ = ["make_run", "running_a_job"]


def pay(order: int, card: Any = None, *, pin: Any = None) -> None:
    """The job; nobody runs it."""


def make_run(
    args: list[Any],
    kwargs: dict[str, Any] | None = None,
    *,
    jid: str = "0" * 24,
    secret: tuple[str, ...] = (),
    **fields: Any,
) -> Run:
    """A run of ``shop.pay(order, card=None, *, pin=None)`` that was fetched from the queue "default"."""
    pusher: Any = SimpleNamespace(keyring=Keyring(dict))  # nothing is pushed
    definition = define(pay, pusher, "shop.pay", {"secret": secret} if secret else {})
    job = {"class": "shop.pay", "jid": jid, "args": args, **({"kwargs": kwargs} if kwargs else {}), **fields}
    flight = InFlightList("default", "queue:default", "hm:flight:x:1:default", "x", 1)
    return Run.of(
        Unit(payload.encode(job), flight, 0.0), job, CompiledJob(definition, Chain(), Events()), args, kwargs or {}
    )


_processor: dict[str, Any] = {"__name__": "henchman.worker.processor"}  # where a job begins, as far as frames tell
exec("def execute(job): job()", _processor)  # noqa: S102


def _sleeps() -> None:
    while True:
        time.sleep(0.001)  # until it is struck


@contextmanager
def running_a_job(
    job: Callable[[], None] = _sleeps,
) -> Iterator[tuple[Slot, Run, threading.Thread, list[BaseException]]]:
    """A thread that runs ``job`` as a worker would: its slot, its run, itself, and what was raised in it."""
    slot, run, raised = Slot("1", 0), make_run([1]), list[BaseException]()
    began = threading.Event()

    def body() -> None:
        slot.thread_id = threading.get_ident()
        try:
            began.set()
            _processor["execute"](job)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=body, daemon=True)
    slot.run = run
    thread.start()
    assert began.wait(30)
    yield slot, run, thread, raised
