"""The ways of four jobs through our own files, traced: ``make ways`` prints them.

Each kind (plain, raising, ordered, tracked) is pushed to a real worker in this process, one job at a time, when the
worker is at rest. The first job warms up what is made once; the second one is counted. One worker waits for
pushes; a second one has more queues than can be waited for, so that its fetcher finds the job by script.

What counts: functions run by the push, and by the threads that fetch, run and settle. What does not: heart, renewal,
lifeline, stager, watchdog, supervisor, and the recorder's own loop.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import product
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple
from unittest.mock import patch

from architecture.source import SRC, functions, modules
from henchman import App
from henchman.worker.launcher import Launcher, default_capsules
from henchman.worker.watcher import MOST_WATCHED
from support.server import running_server
from support.worker import until

STAGES = {"henchman-fetcher": "fetch", "henchman-watcher": "fetch", "henchman-job": "job", "henchman-acker": "ack"}
QUIET = 0.1  # seconds without a call of ours on any counted thread: the worker is at rest
LOOK = 0.2  # seconds between two looks into queues that are not waited for: more than QUIET
KINDS = ("plain", "raising", "ordered", "tracked")
PARTS = ("<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>")  # of the function that they stand in
SOMETIMES = ("worker/pool.py", "Pool.tick")  # runs when a fetched job has not yet been taken by a thread
OWN = f"{SRC}/"


class Part(NamedTuple):
    """One file on a way: how many of its functions ran, how many lines those have, and where they ran."""

    functions: int
    lines: int
    stages: tuple[str, ...]


Way = dict[str, Part]


class Trace:
    """Every function of ours that runs on a counted thread, as (code, stage), by the kind that is counted then."""

    def __init__(self) -> None:
        self.seen: dict[str, set[tuple[CodeType, str]]] = {}
        self.kind = ""  # nothing is counted
        self.pushing = False
        self.last = 0.0
        self._main = threading.get_ident()

    def _call(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(OWN) or code.co_name in PARTS:
            return
        if threading.get_ident() == self._main:
            stage = "push" if self.pushing else None
        else:
            stage = STAGES.get("-".join(threading.current_thread().name.split("-")[:2]))
        if stage is not None:
            self.last = time.monotonic()
            if self.kind:
                self.seen.setdefault(self.kind, set()).add((code, stage))

    @contextmanager
    def on(self) -> Iterator[None]:
        """Threads that start in the block are traced, and this one."""
        before, before_threads = sys.getprofile(), threading.getprofile()
        threading.setprofile(self._call)
        sys.setprofile(self._call)
        try:
            yield
        finally:
            sys.setprofile(before)
            threading.setprofile(before_threads)

    def push(self, push: Callable[[], object], kind: str) -> None:
        """Push one job and count for ``kind`` from now on; the caller waits for its end."""
        self.kind, self.pushing = kind, True
        try:
            push()
        finally:
            self.pushing = False

    def rest(self) -> None:
        """Wait until nothing of ours runs any more, and count no more."""
        until(lambda: time.monotonic() - self.last > QUIET, "the worker is at rest")
        self.kind = ""

    def way(self, kind: str) -> Way:
        """What was seen of one kind, by file."""
        spans, found = _spans(), {}
        for code, stage in self.seen.get(kind, ()):
            file = code.co_filename.removeprefix(OWN)
            if (file, code.co_qualname) != SOMETIMES:
                found.setdefault(file, []).append((code, stage))
        way = {}
        for file, pairs in found.items():
            codes = {code for code, _ in pairs}
            lines = {
                line for code in codes for line in spans.get((file, code.co_firstlineno, code.co_name), _lines(code))
            }
            stages = tuple(one for one in dict.fromkeys(["push", *STAGES.values()]) if one in {two for _, two in pairs})
            way[file] = Part(len(codes), len(lines), stages)
        return dict(sorted(way.items()))


def _lines(code: CodeType) -> range:
    """The lines of a lambda."""
    known = [line for *_, line in code.co_lines() if line is not None]
    return range(code.co_firstlineno, max(known, default=code.co_firstlineno) + 1)


@cache
def _spans() -> dict[tuple[str, int, str], range]:
    """(file, first line, name) of every function → its lines, decorators with them."""
    return {
        (module.file, first, node.name): range(first, (node.end_lineno or first) + 1)
        for module in modules().values()
        for _, node in functions(module)
        for first in [min(one.lineno for one in (node, *node.decorator_list))]
    }


def _jobs(app: App) -> dict[str, Callable[[], object]]:
    """The four kinds: how each is pushed."""

    @app.job(name="plain")
    def plain(number: int) -> None:
        pass

    @app.job(name="raising")
    def raising(number: int) -> None:
        raise ValueError("raised to see the way of it")

    @app.job(name="tracked", track=True)
    def tracked(number: int) -> None:
        pass

    @app.ordered(queue="ordered", name="sync")
    def sync(claim: dict[str, list[Any]]) -> None:
        pass

    return {
        "plain": lambda: plain.enqueue(1),
        "raising": lambda: raising.enqueue(1),
        "ordered": lambda: sync.push("42", {"price": 17}),
        "tracked": lambda: tracked.enqueue(1),
    }


def _walk(trace: Trace, app: App, kinds: Sequence[str], watched: bool) -> None:
    """One worker, and of each kind one job after the other."""
    pushes = _jobs(app)
    launcher = Launcher(app, default_capsules(app))
    try:
        launcher.start()
        until(launcher.fetching, "it takes work")
        trace.rest()
        for done, (kind, count) in enumerate(product(kinds, (False, True))):
            until(lambda: launcher.watcher.armed >= watched, "it waits for pushes")
            trace.push(pushes[kind], kind if count else "")
            until(lambda done=done: launcher.started > done and not launcher.session.held, "the job has ended")
            trace.rest()
    finally:
        launcher.stop(5.0)
        app.close()


def ways(url: str, folder: Path) -> dict[str, Way]:
    """The four ways on the server at ``url``, which is empty."""
    trace, unwatched = Trace(), [f"other{number}" for number in range(MOST_WATCHED)]
    with trace.on(), patch("henchman.worker.fetcher.UNWATCHED", LOOK):
        for queue, kinds in (("default", ("plain", "raising", "tracked")), ("ordered", ("ordered",))):
            for before in ([], unwatched):
                database = f"sqlite:///{folder}/history.sqlite"
                app = App(redis_url=url, database_url=database, concurrency=2, queues=[*before, queue])
                _walk(trace, app, kinds, not before)
    return {kind: trace.way(kind) for kind in KINDS}


def table(way: Way) -> str:
    """One way for people: a line a file."""
    rows = [f"  {file:<34}{part.functions:>4}{part.lines:>7}   {' '.join(part.stages)}" for file, part in way.items()]
    return "\n".join([f"  {'file':<34}{'fn':>4}{'lines':>7}   run by", *rows])


def total(way: Way) -> tuple[int, int, int]:
    """(files, functions, lines of those functions)."""
    return len(way), sum(part.functions for part in way.values()), sum(part.lines for part in way.values())


def main() -> None:
    """Print the four ways; with ``--json``, each as what its table says and [files, functions, lines]."""
    with running_server() as server, tempfile.TemporaryDirectory() as folder:
        found = ways(server.url, Path(folder))
    if "--json" in sys.argv:
        print(json.dumps({kind: {"table": table(way), "total": total(way)} for kind, way in found.items()}))
        return
    for kind, way in found.items():
        files, count, lines = total(way)
        print(f"{kind}: {files} files, {count} functions of {lines} lines\n{table(way)}\n")


if __name__ == "__main__":
    main()
