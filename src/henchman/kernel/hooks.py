"""The one place that calls what users hook in: handlers of errors and deaths, ``retry_in``, ``@app.on(…)``.

A hook is ``def`` or ``async def``. What it answers is awaited, on the event loop of the worker's jobs where there is
one, for at most ``LIMIT`` seconds; a ``def`` runs in the caller's thread, which is not that loop's. A hook that fails
is announced by its name (``handler_broken``) and changes nothing, except ``startup``: that stops the start.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from henchman.errors import ConfigError, DefinitionError
from henchman.kernel.events import Events
from henchman.kernel.middleware import run_coroutine
from henchman.kernel.rare import load
from henchman.kernel.text import as_shown, described
from henchman.kernel.threads import REFUSED

__all__ = ["LIMIT", "Hooks"]

LIMIT = 30.0  # seconds for which the answer of a hook is awaited
SPARE = 5.0  # seconds more for a loop that does not turn; and for shutdown hooks, when no job's grace is left
NAMES = ("startup", "quiet", "shutdown", "heartbeat", "beat", "last_words")
Hook = Callable[..., Any]


class Hooks:
    """The hooks of one app. ``loop()``: the event loop that async hooks share with async jobs, or None."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self.loop: Callable[[], Any] = lambda: None
        self._startup: list[Hook] = []
        self._shutdown: list[Hook] = []
        self._quiet: list[threading.Thread | None] = []

    @staticmethod
    def check(event: str) -> None:
        """DefinitionError when there is no such event."""
        if not isinstance(event, str) or event not in NAMES:
            raise DefinitionError(f"there is no event {as_shown(event, 200)}; there are {', '.join(NAMES)}")

    def on(self, event: str, hook: Hook) -> None:
        """Call ``hook()`` at ``event``, one of ``NAMES``; at ``last_words`` ``hook(error)``."""
        if event == "startup":
            self._startup.append(hook)
        elif event == "shutdown":
            self._shutdown.append(hook)
        elif event == "last_words":
            self._events.on(event, lambda error: self.call(hook, error))
        elif event == "quiet":
            self._events.on(event, lambda **facts: self._quiet.append(self._beside(hook)))
        else:
            self._events.on(event, _Beat(partial(self._beside, hook)))

    def startup(self) -> None:
        """Call each startup hook; ConfigError with the reason when one raises."""
        for hook in self._startup:
            try:
                self.ask(hook)
            except Exception as error:
                raise ConfigError(f"the startup hook {_name(hook)} raised {described(error)}") from error

    def shutdown(self, seconds: float) -> None:
        """Wait for quiet hooks, then for each shutdown hook, ``seconds`` and a little in all; they may go on then."""
        end = time.monotonic() + seconds + SPARE
        for quieted in self._quiet:
            if quieted is not None:
                quieted.join(max(end - time.monotonic(), 0.0))
        for hook in self._shutdown:
            try:
                thread = self._thread(hook)
            except REFUSED:  # it is called all the same, and holds up nothing but the end
                self.call(hook)
                continue
            thread.join(max(end - time.monotonic(), 0.1))
            if thread.is_alive():
                self._broken(hook, TimeoutError(f"it did not end within {seconds + SPARE:g} s: the worker stops"))

    def call(self, hook: Hook, *args: Any, secrets: Any = None) -> Any:
        """The answer of ``hook``; None when it raises, also a SystemExit: that is announced, with what it must not show
        (``wire.secret.Secrets``)."""
        try:
            return self.ask(hook, *args)
        except BaseException as error:
            self._broken(hook, error, secrets)
            return None

    def ask(self, hook: Hook, *args: Any) -> Any:
        """The answer of ``hook``, awaited if need be; TimeoutError after ``LIMIT`` seconds of that."""
        answer = hook(*args)
        return self._wait(answer) if inspect.isawaitable(answer) else answer

    def _wait(self, answer: Any) -> Any:
        """What an awaitable gives: on the shared loop; by itself where there is none, or where this thread runs one."""
        asyncio = load("asyncio")
        loop = self.loop()
        if loop is None or not loop.is_running() or asyncio._get_running_loop() is not None:
            return run_coroutine(_limited(answer))
        waiting = asyncio.run_coroutine_threadsafe(_limited(answer), loop)
        try:
            return waiting.result(LIMIT + SPARE)
        except Exception:
            if waiting.cancelled():
                raise TimeoutError("its event loop was stopped before it ended") from None
            waiting.cancel()
            raise

    def _beside(self, hook: Hook) -> threading.Thread | None:
        """Call ``hook`` in a thread of its own; None when the system refuses one, which is announced: who announced the
        event waits for no hook."""
        try:
            return self._thread(hook)
        except REFUSED as error:
            self._broken(hook, error)
            return None

    def _thread(self, hook: Hook) -> threading.Thread:
        thread = threading.Thread(target=self.call, args=(hook,), name="henchman-hook", daemon=True)
        thread.start()
        return thread

    def _broken(self, hook: Hook, error: BaseException, secrets: Any = None) -> None:
        if secrets is None:
            self._events.emit("handler_broken", handler=hook, error=error)
        else:
            self._events.emit("handler_broken", handler=hook, error=error, secrets=secrets)


class _Beat:
    """A listener that starts its hook anew each time, unless it still runs."""

    def __init__(self, begin: Callable[[], threading.Thread | None]) -> None:
        self._begin = begin
        self._thread: threading.Thread | None = None

    def __call__(self, **facts: Any) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = self._begin()


async def _limited(answer: Any) -> Any:
    try:
        async with load("asyncio").timeout(LIMIT) as limit:
            return await answer
    except TimeoutError as error:
        if limit.expired():
            raise TimeoutError(f"it did not end within {LIMIT:g} s") from error
        raise
    except (SystemExit, KeyboardInterrupt) as error:  # would end the loop that it shares with others
        raise RuntimeError(f"it raised {described(error)}") from error


def _name(hook: Hook) -> str:
    return f"{getattr(hook, '__module__', '')}.{getattr(hook, '__qualname__', type(hook).__name__)}"
