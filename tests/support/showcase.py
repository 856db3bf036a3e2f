"""A shop whose console has something to show on every page, hostile things too."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from henchman import App, Failure, current_job
from henchman.console.render import tilde
from henchman.inspector import operations
from henchman.inspector.operator import carry_out
from henchman.store.call import command
from henchman.wire.payload import encode
from support.browsing import DEAD, RETRY, XSS
from support.worker import until, working

__all__ = ["ACCOUNT", "WILD", "Showcase", "hostile", "showcase"]

WILD = "odd/ü?#<b>"  # a queue's name, and an ordered id
LONG_HOST = "worker-7f9c4d5b8-x2x9q.shop-production.svc.cluster.local"
ACCOUNT = "4711 & <i>"  # a key


class Showcase(NamedTuple):
    """The app, and the ids of a finished batch, of a workflow, of a job that runs, of an error, and of a process."""

    app: App
    batch: str
    workflow: str
    running: str
    error: str
    process: str


@contextmanager
def showcase(url: str, folder: Path) -> Iterator[Showcase]:
    """Jobs wait, run, failed, are dead and scheduled; a batch and a workflow have ended; a worker is alive."""
    app = App(
        redis_url=url,
        database_url=f"sqlite:///{folder}/history.sqlite",
        queues=["default", "slow", "mail"],
        concurrency=4,
    )
    go_on = threading.Event()
    jobs = _jobs(app, go_on)
    with working(app) as launcher:
        until(lambda: app.connections.run(command("EXISTS", app.keys.history_on)), "history is on")
        try:
            yield _filled(app, jobs)
        finally:
            go_on.set()
            launcher.stop(5)


def _jobs(app: App, go_on: threading.Event) -> Any:
    class Jobs:
        @staticmethod
        @app.job(name="shop.create", retry=0)
        def create(sku: str, price: float) -> dict[str, Any]:
            current_job().log(f"looked at {sku}")
            if price == 0:
                raise Failure(f"{sku}: the price is not above zero {XSS}")
            if price == 13:
                raise ConnectionError("the price service does not answer")
            return {"sku": sku, "price": price}

        @staticmethod
        @app.job(name="shop.step", retry=0)
        def step(of: str) -> str:
            return of

        @staticmethod
        @app.job(name="shop.watch", queue="slow", track=True)
        def watch() -> None:
            go_on.wait(600)

        @staticmethod
        @app.job(name="shop.mail", queue="mail", secret=("card",))
        def mail(user: int, card: str = "") -> None: ...

        @staticmethod
        @app.job(
            name="shop.entry", queue="mail", key="account", scope="account", unique="until_success", on_conflict="wait"
        )
        def entry(account: str) -> None: ...

        @staticmethod
        @app.ordered(name="shop.sync", queue="products")
        def sync(claim: Any) -> None: ...

        @staticmethod
        @app.cron("5 4 * * *")
        @app.job(name="shop.nightly")
        def nightly() -> None: ...

    return Jobs


def _filled(app: App, jobs: Any) -> Showcase:
    with app.batch("Import products.csv", tags=["spring"], results=True) as batch:
        jobs.create.enqueue_many([(f"sku-{n}", {3: 0.0, 5: 13.0}.get(n, 1.0)) for n in range(12)])
    with app.workflow("Reorder") as flow:
        first = flow.add(jobs.step.call("count"))
        flow.add(jobs.step.call("send"), after=[first])
    running = jobs.watch.enqueue()
    app.queues["mail"].pause("the provider is away until noon", by="ana@shop")
    jobs.mail.enqueue_many([(user, "4111-1111") for user in range(60)])
    jobs.mail.using(delay=3600).enqueue(99)
    for _ in range(3):
        jobs.entry.enqueue(ACCOUNT)
    later = time.time() + 7200
    jobs.sync.push_many({"id": one, "payload": {"price": 1}, "at": later} for one in ("sku-1", WILD))
    app.ordered_queues["products"].kill(WILD)
    hostile(app)
    until(lambda: app.connections.run(command("ZCARD", app.keys.errors)), "errors were written down")
    until(lambda: app.batch_status(batch.id).state == "complete", "the batch is complete")
    until(lambda: app.batch_status(flow.id).state == "complete", "the workflow is complete")
    until(lambda: app.job_status(running.jid).state == "working", "a job runs")
    error: bytes = app.connections.run(command("ZRANGE", app.keys.errors, 0, 0))[0]
    process = next(one.identity for one in app.processes if one.ours and LONG_HOST not in one.identity)
    app.processes.dump(process)
    until(lambda: app.connections.run(command("EXISTS", app.keys.stacks(process))), "it told where its threads stand")
    return Showcase(app, batch.id, flow.id, running.jid, error.decode(), tilde(process))


def hostile(app: App) -> None:
    now, run = time.time(), app.connections.run
    failed = {"class": "shop.charge", "queue": "pay", "created_at": now - 60, "failed_at": now - 50, "retry_count": 1}
    error = {"error_class": "CardDeclined", "error_message": XSS, "error_backtrace": ["shop.py:7:in charge"]}
    retry = {**failed, **error, "jid": RETRY, "args": [2**63, XSS, "\0\x07\x1b[31m"], "retry": 5}
    retry["error_attempts"] = [
        [
            number,
            now - 90 + number,
            1.5,
            f"{LONG_HOST}:31337:0123456789ab",
            "shop.CardDeclined",
            "0a1b2c3d4e5f",
            "x" * 200,
        ]
        for number in range(1, 4)
    ]
    retry["error_causes"] = [["bank.Refused", "y" * 300 + XSS, []]]
    run(command("ZADD", app.keys.retry, now + 3600, encode(retry)))
    run(command("ZADD", app.keys.dead, now - 60, encode({**failed, **error, "jid": "9" * 24, "args": ["noise"]})))
    carry_out(app, operations.begin(app, "127.0.0.1", operations.Wish("delete", "dead", "noise", now)))
    run(command("ZADD", app.keys.dead, now - 10, encode({**failed, **error, "jid": DEAD, "args": ["A-1"], "retry": 0})))
    lost = f"{LONG_HOST}:31337:0123456789ab"
    info = {"hostname": LONG_HOST, "pid": 31337, "queues": [f"queue-{number}-{XSS}" for number in range(14)]}
    info |= {"tag": XSS, "labels": [XSS, "z" * 90], "version": XSS, "concurrency": 10, "started_at": now - 7200}
    run(command("SADD", app.keys.processes, lost))
    run(command("HSET", lost, "info", encode(info), "busy", 9, "beat", repr(now), "quiet", "true"))
    run(command("SADD", app.keys.queues, WILD))
    run(command("LPUSH", app.keys.queue(WILD), encode({"class": "odd", "args": [], "jid": "f" * 24})))
