"""One connection that listens for the results that anybody in this process waits for."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from typing import Any

from henchman.errors import ServerError

__all__ = ["Hub"]

QUIET = 15.0  # seconds without a word after which the server is asked whether it is there
Wake = Callable[[], None]


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
                self._line = self._open_line()
                threading.Thread(target=self._body, args=(self._line,), name="henchman-results", daemon=True).start()
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
