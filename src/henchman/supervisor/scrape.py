"""What Prometheus is told on the health port: figures of the whole system, read from the server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from urllib.parse import parse_qs

from henchman.errors import ArgumentError, HenchmanError
from henchman.inspector.prometheus import exposition
from henchman.inspector.scaling import within_of
from henchman.store.call import run
from henchman.supervisor.server_link import ServerLink

KEPT = 1.0  # seconds for which who asks again is told the same: a port that anybody may ask costs the server little


class Scrapes:
    """One a supervisor. ``link`` gives the way to the server, None before a child has told of it."""

    def __init__(self, link: Callable[[], ServerLink | None]) -> None:
        self._link = link
        self._turn = threading.Lock()
        self._told: tuple[float, float, str] | None = None  # within, when, text

    def answer(self, query: str) -> tuple[int, str]:
        """Status and text for ``/metrics?query``."""
        try:
            within = within_of(parse_qs(query[:1000]).get("within", [""])[-1])
        except ArgumentError as error:
            return 400, f"{error}\n"
        with self._turn:
            if self._told is not None and self._told[0] == within and time.monotonic() - self._told[1] < KEPT:
                return 200, self._told[2]
            link = self._link()
            if link is None:
                return 503, "no worker process has started yet\n"
            try:
                text = run(link.connections, exposition(link.keys, within))
            except HenchmanError as error:
                return 503, f"{error}\n"
            self._told = within, time.monotonic(), text
            return 200, text
