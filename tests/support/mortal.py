"""Processes that a fault point kills, for tests: clients and workers, forked from one that has everything loaded.

``Nursery.run(order)`` forks one and waits for its end. What it did stands in the trace file, a line each:
``accepted <name>`` when a push had returned, ``run <name> <pid>`` when a job had done its deed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from henchman import App, current_job
from henchman.inspector.operator import carry_out
from henchman.iterable import execution
from henchman.kernel import failpoints
from henchman.store.jobs import Delivery, deliver, due, rebase, uncancel
from henchman.store.leases import AUDITOR_MS, lead
from henchman.worker import acker, decide, heart, rescue, watcher
from henchman.worker.launcher import Launcher, default_capsules
from support.batch_calls import CALLS
from support.processes import PATHS, clean_environ

__all__ = ["PULSE", "RESCUE_AFTER", "Nursery", "make_app", "nursery"]

SETTINGS: dict[str, Any] = {"lease": 5, "heartbeat": 0.2, "concurrency": 2}
RESCUE_AFTER, PULSE = 0.3, 0.1  # instead of 15 and 1 s: these tests are about order, not about patience

LIMIT = 60  # seconds; whoever was not struck by then ends with SIGALRM


def make_app(
    url: str, trace: Path, *, crons: bool = False, ordered: bool = False, track: bool = False, fair: bool = False
) -> App:
    """An app whose jobs write down that they ran. ``track``: its ordered queues are tracked."""
    app = App(redis_url=url, **SETTINGS)

    def note(event: str, name: str) -> None:
        file = os.open(trace, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, f"{event} {name} {os.getpid()}\n".encode())
        os.close(file)

    @app.job(name="act")
    def act(name: str, *first: Any) -> None:
        if f"start {name} " not in (trace.read_text() if trace.exists() else ""):
            note("start", name)
            time.sleep(float(first[-1]) if first else 0.0)  # a job that takes its time, in its first run
        note("run", name)

    if fair:

        @app.job(name="turn", fair_by="tenant")
        def turn(name: str, tenant: str) -> None:
            note("run", name)

    @app.job(name="fail", retry_in=0.1)
    def fail(name: str) -> None:
        if f"start {name} " not in trace.read_text():
            note("start", name)
            raise ValueError(name)
        note("run", name)

    @app.iterable(name="walk", over=lambda name, *, cursor: ((n, n + 1) for n in range(cursor or 0, 6)))
    def walk(item: int, name: str) -> None:
        note("item", f"{name}.{item}")
        if item == 5:
            note("run", name)

    @app.job(name="step")
    def step(name: str) -> None:
        for number in range(current_job().last_checkpoint() or 0, 3):
            note("item", f"{name}.{number}")
            current_job().checkpoint(number + 1)
        note("run", name)

    if ordered:
        _define_ordered(app, trace, note, track=track)

    if crons:

        @app.cron(every=0.3)
        @app.job(name="tick")
        def tick() -> None:
            note("tick", str(current_job().payload["hm"]["planned"]))

    app.note = note  # type: ignore[attr-defined]
    return app


def _define_ordered(app: App, trace: Path, note: Any, *, track: bool) -> None:
    """Queues "ids" and "other". A payload is [key, seconds that it takes in its first run]."""

    def handle(claim: dict[str, list[list[Any]]]) -> None:
        for name, payloads in claim.items():
            before = trace.read_text() if trace.exists() else ""
            note("begin", f"{name}.{current_job().token}")
            for key, seconds in payloads:
                if f"start {key} " not in before:
                    note("start", key)
                    time.sleep(seconds)
                note("run", f"{name}.{current_job().token}.{key}")
            note("done", f"{name}.{current_job().token}")

    app.ordered(queue="ids", name="ids", track=track)(handle)
    app.ordered(queue="other", name="other", track=track)(handle)


def _client(app: Any, order: dict[str, Any]) -> None:
    """Do one thing three times: whatever returns is accepted."""
    for number in range(3):
        name = f"c{number}"
        if order["do"] == "push":
            app.enqueue("act", name)
        elif order["do"] == "push_many":
            app.registry.get("act").enqueue_many([(name,)])
        elif order["do"] == "push_fair":
            app.registry.get("turn").enqueue_many([(name, "x"), (f"d{number}", "y")])
        elif order["do"] == "schedule":
            app.enqueue("act", name, delay=0.2)
        elif order["do"] == "cancel":
            app.cancel(order["jids"][number])
        elif order["do"] == "uncancel":
            app.connections.run(uncancel(app.keys, [order["jids"][number]]))
        elif order["do"] == "lead":
            app.connections.run(lead(app.keys.auditor, f"host:{number}", AUDITOR_MS))
        elif order["do"] == "rebase":
            left, then = (b"%d\n" % n for n in (number, number + 1))
            score = order["far"] - 3600.0 * number
            moves = [(payload.encode(), score, score - 3600.0) for payload in order["payloads"]]
            app.connections.run(rebase(app.keys, app.keys.retry, left, then, moves))
        elif order["do"] == "decide":
            decide.PAGE, decide.RELEASED = 2, 60
            decisions = decide.Decisions(app)
            while decisions.carry_out(app.connections.run(due(app.keys, f"host:1:{number:012x}", 1, 100))):
                pass
        elif order["do"] == "remove_job":
            app.queues["default"].delete(order["jids"][number])
        elif order["do"] == "run_next":
            app.queues["default"].run_next(order["jids"][number])
        elif order["do"] == "clear":
            app.queues["default"].clear()
        elif order["do"] == "deliver":
            entries = [Delivery("default", None, 0.0, payload.encode()) for payload in order["payloads"]]
            app.connections.run(deliver(app.keys, "mark", entries))
        elif order["do"] == "ordered_push":
            app.registry.get("ids").push_many([("x", [name, 0], number), ("y", [name, 0], number)])
        elif order["do"] == "ordered_delete":
            app.ordered_queues["ids"].delete("x", "y")
        elif order["do"] == "ordered_drop":
            ids = app.ordered_queues["ids"]
            ids.drop_payload("x", ids.find("x").payloads[0])
        elif order["do"] == "ordered_move":
            app.ordered_queues["ids"].move_to("other", "x", "y")
        elif order["do"] == "operation":
            carry_out(app, order["number"])
        elif order["do"] == "batch":
            app.connections.run(CALLS[order["script"]](app.keys))
        elif order["do"] == "add":
            app.crons.add(name, "act", every=3600, args=["cron"])
        else:
            getattr(app.crons, order["do"])(name)
        app.note("accepted", name)


def _worker(app: App, order: dict[str, Any]) -> None:
    """Work until killed, or until it has started ``stop_after`` jobs: then stop."""
    rescue.WATCH, heart.PULSE, watcher.BLOCK = RESCUE_AFTER, PULSE, 60.0  # no wait ends while a test prepares
    execution.SAVE_EVERY = 0.0
    acker.CUT_LEAST = order.get("cut_least", acker.CUT_LEAST)
    launcher = Launcher(app, default_capsules(app))
    launcher.start()
    if order.get("push_when_idle"):
        while not launcher.watcher.armed:
            time.sleep(0.01)  # between two looks
        app.enqueue("act", "late")
    while launcher.started < order.get("stop_after", sys.maxsize):
        time.sleep(0.01)  # between two looks
    launcher.stop(0.1)


def _live(order: dict[str, Any]) -> None:
    signal.alarm(LIMIT)
    failpoints.open_points(order["faults"], Path(order["folder"]))
    kinds = {name: order.get(name, False) for name in ("crons", "ordered", "track", "fair")}
    app = make_app(order["url"], Path(order["trace"]), **kinds)
    (_client if order["part"] == "client" else _worker)(app, order)


def main() -> None:
    """Fork one process for each line of standard input; answer with its exit status (negative: a signal)."""
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            try:
                _live(json.loads(line))
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(70)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


class Nursery:
    """Where mortal processes come from."""

    def __init__(self) -> None:
        env = clean_environ()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.mortal"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=env | {"PYTHONPATH": os.pathsep.join(PATHS)},
            text=True,
        )
        self._turn = threading.Lock()

    def run(self, **order: Any) -> int:
        """The exit status of one process that was forked, did what ``order`` says, and ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._turn:
            self._process.stdin.write(json.dumps(order, default=str) + "\n")
            self._process.stdin.flush()
            return int(self._process.stdout.readline())

    def end(self) -> None:
        """No more are needed."""
        self._process.kill()
        self._process.communicate()


@contextmanager
def nursery() -> Iterator[Nursery]:
    """One for a block."""
    made = Nursery()
    try:
        yield made
    finally:
        made.end()


if __name__ == "__main__":
    main()
