"""Waiting for what a job returned: woken by the server's word; nothing is polled.

Nobody misses the word: the value is looked for after the server has confirmed that it will be heard.
"""

from __future__ import annotations

import asyncio
import os
import select
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from henchman.client.runtime import Runtime
from henchman.errors import ArgumentError, JobFailed, ResultError, ServerAway, ServerError
from henchman.kernel.clock import capped_backoff
from henchman.kernel.middleware import in_thread
from henchman.store.call import Call, command
from henchman.wire import arguments, jsontext

__all__ = ["aawait_result", "await_result"]

QUIET = 15.0  # seconds without a word after which the server is asked whether it is there
FIRST_LOOK = 1.0  # seconds without a word after which the job is looked for; twice as long before each next look
REST = 60.0  # seconds between two looks, at most
Wake = Callable[[], None]


_hubs: weakref.WeakKeyDictionary[Runtime, Hub] = weakref.WeakKeyDictionary()
_making = threading.Lock()


def _line_of(runtime: weakref.ref[Runtime]) -> Any:
    app = runtime()
    if app is None:  # whoever waits keeps it alive
        raise ServerAway("the app is gone", executed=False)
    return app.connections.open()


def _hub(runtime: Runtime) -> Hub:
    with _making:
        hub = _hubs.get(runtime)
        if hub is None:
            hub = _hubs[runtime] = Hub(partial(_line_of, weakref.ref(runtime)))
        return hub


class _Patience:
    """How long is waited in all, and between two tries while the server is away."""

    def __init__(self, jid: Any, timeout: float | None) -> None:
        if not isinstance(jid, str) or not jid:
            raise ArgumentError(f"result({jid!r:.100}): give the id of a job, such as handle.jid")
        self._jid = jid
        self._end = None if timeout is None else time.monotonic() + max(timeout, 0.0)
        self._failures = 0
        self._look = FIRST_LOOK
        self._missed = False

    def left(self) -> float | None:
        """Seconds; None: for ever."""
        return None if self._end is None else max(self._end - time.monotonic(), 0.0)

    def turn(self) -> float:
        """Seconds until the job is looked for, or the wait is over."""
        left = self.left()
        return self._look if left is None else min(self._look, left)

    def learn(self, status: Any) -> None:
        """Go on for a job that will end; ResultError for one that cannot give a result any more.

        A job that moves may be missed once: it is looked for again, and between two looks its result would be there.
        """
        gone = status.state == "dead" or (status.entry is None and status.complete and status.state != "blocked")
        if gone and self._missed:
            raise ResultError(f"job {self._jid} gives no result: {_known(status)}")
        self._look = FIRST_LOOK if gone else min(2 * self._look, REST)
        self._missed = gone

    def pause(self) -> float:
        """The server is away: the seconds until the next try. Raises what is being handled when that is too late."""
        self._failures += 1
        seconds = capped_backoff(self._failures, most=2.0)
        left = self.left()
        if left is not None and left < seconds:
            raise  # noqa: PLE0704 - only called where a ServerAway is handled
        return seconds


def await_result(runtime: Runtime, jid: str, timeout: float | None, function: Any, queue: str | None) -> Any:
    """See ``App.result``."""
    patience = _Patience(jid, timeout)
    look: Call[bytes | None] = command("GET", runtime.keys.result(jid))
    channel, bell = runtime.keys.done(jid), threading.Event()
    while True:
        try:
            text = runtime.connections.run(look)
            if text is None and patience.left() != 0:
                _hub(runtime).enter(channel, bell.set)
                try:
                    while text is None and patience.left() != 0:
                        rung = bell.wait(patience.turn())
                        bell.clear()
                        text = runtime.connections.run(look)
                        if text is None and not rung and _must_look(runtime, patience):
                            patience.learn(runtime.job_status(jid, queue=queue))
                        if text is None and not _hub(runtime).hears(channel, bell.set):
                            _hub(runtime).enter(channel, bell.set)
                finally:
                    _hub(runtime).leave(channel, bell.set)
        except ServerAway:
            time.sleep(patience.pause())
            continue
        if text is None:
            raise TimeoutError(_unheard(jid, timeout, runtime.job_status(jid, queue=queue)))
        return _read(jid, text, function)


async def aawait_result(
    runtime: Runtime,
    jid: str,
    timeout: float | None,  # noqa: ASYNC109 - it bounds the wait, not the tries
    function: Any,
    queue: str | None,
) -> Any:
    """See ``App.aresult``."""
    patience = _Patience(jid, timeout)
    look: Call[bytes | None] = command("GET", runtime.keys.result(jid))
    channel, bell, loop = runtime.keys.done(jid), asyncio.Event(), asyncio.get_running_loop()

    def ring() -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(bell.set)

    while True:
        try:
            text = await runtime.aconnections.run(look)
            if text is None and patience.left() != 0:
                await _enter(_hub(runtime), channel, ring)
                try:
                    while text is None and patience.left() != 0:
                        rung = await _rung(bell, patience.turn())
                        text = await runtime.aconnections.run(look)
                        if text is None and not rung and _must_look(runtime, patience):
                            patience.learn(await runtime.ajob_status(jid, queue=queue))
                        if text is None and not _hub(runtime).hears(channel, ring):
                            await _enter(_hub(runtime), channel, ring)
                finally:
                    _hub(runtime).leave(channel, ring)
        except ServerAway:
            await asyncio.sleep(patience.pause())
            continue
        if text is None:
            raise TimeoutError(_unheard(jid, timeout, await runtime.ajob_status(jid, queue=queue)))
        return _read(jid, text, function)


async def _enter(hub: Hub, channel: str, wake: Wake) -> None:
    """Enter in a thread. Where this is cancelled the thread goes on: it leaves again, so that nobody waits for ever."""
    cancelled = threading.Event()

    def enter() -> None:
        hub.enter(channel, wake)
        if cancelled.is_set():
            hub.leave(channel, wake)

    try:
        await in_thread(enter)
    except BaseException:
        cancelled.set()
        hub.leave(channel, wake)
        raise


def _must_look(runtime: Runtime, patience: _Patience) -> bool:
    """Whether a job that nothing was heard of is to be looked for: not when it may be in this process's memory."""
    return patience.left() != 0 and not runtime.client.buffer.waiting


async def _rung(bell: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await bell.wait()
    except TimeoutError:
        return False
    bell.clear()
    return True


def _unheard(jid: str, timeout: float | None, status: Any) -> str:
    return f"job {jid} has given no result within {timeout:g} s; {_known(status)}"


def _known(status: Any) -> str:
    if status.state != "unknown":
        return f"it is {status.state}: {status.text}"
    return "it is not on the server: it has ended and kept no result (result_ttl=), or was never pushed"


def _read(jid: str, text: bytes, function: Any) -> Any:
    told = jsontext.loads(text)
    if told["status"] != "finished":
        message = told.get("message") or told.get("reason") or ""
        kind, lines = told.get("error_class") or "", told.get("traceback") or ()
        raise JobFailed(jid, told["status"], error_class=kind, message=message, traceback=lines)
    if "result" not in told and told.get("reason"):
        raise ResultError(f"job {jid} has finished, but {told['reason']}")
    try:
        return arguments.from_json(function, told.get("result"))
    except ValueError as error:
        raise ResultError(f"job {jid} has finished, but its result is of another kind: {error}") from None


class Hub:
    """``open_line()`` gives a connection of our own. Thread-safe; a forked child listens for itself.

    Whoever waits is woken when its channel is heard (so that it looks for what was said before), when something is
    said there, and when the connection was lost: then it enters again.
    """

    def __init__(self, open_line: Callable[[], Any]) -> None:
        self._open_line = open_line
        self._start_empty()

    def _start_empty(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._waiting: dict[bytes, list[Wake]] = {}
        self._line: Any = None

    def enter(self, channel: str, wake: Wake) -> None:
        """Listen to ``channel`` from now on; ServerAway when there is no server."""
        if os.getpid() != self._pid:
            self._start_empty()
        name = channel.encode()
        with self._lock:
            if self._line is None:
                line = self._open_line()
                try:
                    threading.Thread(target=self._body, args=(line,), name="henchman-results", daemon=True).start()
                except BaseException:  # the system refuses a thread: nobody would hear
                    line.close()
                    raise
                self._line = line
            self._waiting.setdefault(name, []).append(wake)
            self._line.send("SUBSCRIBE", name)  # also for the second who waits: the answer wakes both

    def hears(self, channel: str, wake: Wake) -> bool:
        """Whether ``wake`` is still waiting here; False when the connection was lost."""
        with self._lock:
            return wake in self._waiting.get(channel.encode(), ())

    def leave(self, channel: str, wake: Wake) -> None:
        """Listen no more on behalf of ``wake``."""
        name = channel.encode()
        with self._lock:
            waiting = self._waiting.get(name)
            if waiting is None or wake not in waiting:
                return
            waiting.remove(wake)
            if not waiting:
                del self._waiting[name]
                self._try_to_send("UNSUBSCRIBE", name)

    def _try_to_send(self, *parts: Any) -> None:
        try:
            if self._line is not None:
                self._line.send(*parts)
        except ServerError:
            return  # who reads finds out, and tells everybody

    def _body(self, line: Any) -> None:
        asked = False
        try:
            while True:
                if not line.readable() and not select.select([line.fileno()], [], [], QUIET)[0]:
                    with self._lock:
                        if asked or not self._waiting:
                            return
                        asked = True
                        line.send("PING")
                    continue
                asked = False
                message = line.read()
                if message[0] in (b"message", b"subscribe"):
                    with self._lock:
                        for wake in self._waiting.get(message[1], ()):
                            wake()
        except (ServerError, OSError, ValueError):
            return
        finally:
            self._end(line)

    def _end(self, line: Any) -> None:
        """Nobody waits any more, or the connection is lost: who waits enters again."""
        with self._lock:
            if self._line is not line:
                return
            self._line = None
            woken = [wake for waiting in self._waiting.values() for wake in waiting]
            self._waiting = {}
        line.close()
        for wake in woken:
            wake()
