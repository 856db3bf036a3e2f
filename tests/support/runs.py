"""Runs of a job for tests that need one without a worker."""

from __future__ import annotations

from typing import Any

from henchman.client.job import define
from henchman.kernel.chain import Chain
from henchman.kernel.events import Events
from henchman.wire import payload
from henchman.work.unit import Flight, Unit
from henchman.worker.run import Run
from henchman.worker.spec import Spec

__all__ = ["make_run"]


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
    pusher: Any = None  # nothing is pushed
    definition = define(pay, pusher, "shop.pay", {"secret": secret} if secret else {})
    job = {"class": "shop.pay", "jid": jid, "args": args, **({"kwargs": kwargs} if kwargs else {}), **fields}
    flight = Flight("default", "queue:default", "hm:flight:x:1:default", "x", 1)
    return Run(Unit(payload.encode(job), flight, 0.0), job, Spec(definition, Chain(), Events()), args, kwargs or {})
