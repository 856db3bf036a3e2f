"""Failures of one process, put into groups: the same exception, with the same message but for what varies in it, raised
at the same place of the application, is one error, however many jobs raised it.

A worker notes failures as they happen and writes its groups at the next heartbeat, so a kill loses what it noted since
the last one. Messages are those that the payload keeps: secret arguments are hidden in them.
"""

from __future__ import annotations

import os
import re
import site
import threading
import traceback
from collections import deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import CodeType
from typing import Any, Final, NamedTuple

from henchman.errors import ServerAway
from henchman.kernel.digests import sha256
from henchman.kernel.text import mask_urls
from henchman.store.failures import group_errors
from henchman.store.leases import host_name
from henchman.work.effects import attempt_of

__all__ = ["FULL", "MESSAGE", "FailureGroup", "Failures", "Noted", "Places", "caused_by", "normal"]

MESSAGE: Final = 300  # characters of a message that count, and are kept
FULL: Final = 2000  # failures that wait to be added up
_KNOWN: Final = 500  # failures that were put into their group before, so that the next of their kind costs nothing
_GROUPS: Final = 100  # of one process between two heartbeats; beyond, failures are not counted
_WRITTEN: Final = 20  # groups in one call
_FRAMES: Final = 30  # of a traceback that is kept
_CAUSES: Final = 3  # that are told of an exception
_LINE: Final = 200  # characters of a line of it

_QUOTED = re.compile(r"""\"[^"]*\"|(?<!\w)'[^']*'(?!\w)|«[^»]*»""")
_VARIES = re.compile(
    r"""[a-z][a-z0-9+.-]{0,20}://\S+                # addresses
    | [\w.+-]{1,64}@[\w-]{1,64}\.[\w.-]+            # e-mail
    | (?<![\w/])(?:/[\w.@~+-]+){2,}/?               # paths
    | \b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b
    | 0x[0-9a-f]+ | \b(?=[a-f]*[0-9])[0-9a-f]{8,}\b # in base 16
    | \d+(?:[.:,_-]\d+)*                            # numbers, versions, times, addresses of machines
    """,
    re.VERBOSE | re.IGNORECASE,
)
_OURS = str(Path(__file__).resolve().parent.parent)
_LIBRARIES = tuple({f"{path}/" for path in (os.path.dirname(os.__file__), *site.getsitepackages(), _OURS)})

#: the frames of a traceback, outermost first, each as its file and line: nothing of what stood in them is held
Places = tuple[tuple[str, int], ...]


class FailureGroup(NamedTuple):
    """An error: ``id``; the exception's ``error`` name; ``place``: ``module:function`` of up to three frames of the
    application, innermost first; ``trace``: ``path:line:in function``, newest first."""

    id: str
    error: str
    place: str
    trace: tuple[str, ...]


class Noted(NamedTuple):
    """One failure: its group, when, of which job, and what it said."""

    group: FailureGroup
    at: float
    job: str
    queue: str
    jid: str
    message: str
    retried: Any = None  # how often before, as the payload says it


def normal(message: str) -> str:
    """The message with ``•`` in place of what varies from job to job: numbers, ids, quoted words, addresses, paths."""
    text = message[:MESSAGE]
    if '"' in text or "'" in text or "«" in text:
        text = _QUOTED.sub("•", text)
    return " ".join([word if word.isalpha() else _VARIES.sub("•", word) for word in text.split(" ")])


class Failures:
    """The groups of one process. Threads of jobs note; the heart writes."""

    def __init__(self) -> None:
        self.known: dict[tuple[type, str, Places], FailureGroup] = {}
        self.noted: deque[Noted] = deque()
        self._places: dict[Places, str] = {}
        self._by_id: dict[str, FailureGroup] = {}
        self._sums: dict[str, dict[str, Any]] = {}
        self._lock = threading.Lock()

    def learn(self, error: BaseException, message: str, at: Places) -> FailureGroup:
        """The group of a failure that is the first of its kind here."""
        place = self._places.get(at)
        if place is None:
            if len(self._places) >= _KNOWN:
                self._places.clear()
            place = self._places[at] = " < ".join(islice(_application(error), 3))
        name = type(error).__name__[:_LINE].encode("utf-8", "replace").decode()
        group_id = sha256(f"{name}\n{normal(message)}\n{place}".encode("utf-8", "replace")).hexdigest()[:12]
        group = self._by_id.get(group_id)
        if group is None:
            group = FailureGroup(group_id, name, place, tuple(_trace(error)))
        if len(self.known) >= _KNOWN:
            self.known.clear()
        if len(self._by_id) >= _KNOWN:
            self._by_id.clear()
        self.known[type(error), message, at] = self._by_id[group_id] = group
        return group

    def sum_up(self) -> None:
        """Add up what was noted."""
        with self._lock:
            while self.noted:
                try:
                    one = self.noted.popleft()
                except IndexError:
                    return
                if one.group.id in self._sums or len(self._sums) < _GROUPS:
                    _add(self._sums, one)

    def flush(self, runtime: Any, now: float) -> None:
        """Write the groups down as of the Unix time ``now``; ``runtime``: a ``client.runtime.Runtime``.

        ServerAway: what was not written is kept and goes with the next. ServerError: the server refused it, it is lost.
        """
        self.sum_up()
        with self._lock:
            sums, self._sums = self._sums, {}
        while sums:
            some = [sums.pop(name) for name in list(sums)[:_WRITTEN]]
            try:
                shown = [_shown(one, runtime.config.process_tag) for one in some]
                runtime.connections.run(group_errors(runtime.keys, shown, now))
            except ServerAway:
                with self._lock:
                    for one in (*some, *sums.values()):
                        self._sums.setdefault(one["id"], one)  # what was noted since is a new sum: rare, and lost
                raise


def _add(sums: dict[str, dict[str, Any]], one: Noted) -> None:
    group, hour = one.group, str(int(one.at // 3600))
    found = sums.get(group.id)
    if found is None:
        found = sums[group.id] = {"id": group.id, "error": group.error, "place": group.place, "trace": group.trace}
        found |= {"count": 0, "first": one.at, "hours": {}, "jobs": {}, "queues": {}, "attempts": {}}
    found["count"] += 1
    found |= {"last": one.at, "jid": one.jid, "message": one.message}
    attempt = str(attempt_of({"retry_count": one.retried}))
    for table, name in (("hours", hour), ("jobs", one.job), ("queues", one.queue), ("attempts", attempt)):
        found[table][name] = found[table].get(name, 0) + 1


def _shown(one: dict[str, Any], version: str) -> dict[str, Any]:
    """A group as it is written: all of it failed on this host, under the tag of this process."""
    places = {"hosts": {host_name()[:_LINE]: one["count"]}, "versions": {version[:_LINE]: one["count"]}}
    return one | places | {"message": mask_urls(one["message"])}


def _frames(error: BaseException) -> list[tuple[CodeType, int]]:
    """Code and line, innermost first."""
    return [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)][::-1]


def _application(error: BaseException) -> Iterator[str]:
    """``module:function`` of the frames that are the application's, innermost first."""
    for code, _ in _frames(error):
        if not code.co_filename.startswith((*_LIBRARIES, "<frozen")):
            yield f"{Path(code.co_filename).stem}:{code.co_qualname.replace('<locals>.', '')}"[:_LINE]


def caused_by(error: BaseException) -> list[BaseException]:
    """What caused an exception, the nearest first: as far as Python would print it, and three at most."""
    met, cause = [error], _cause(error)
    while cause is not None and cause not in met and len(met) <= _CAUSES:
        met.append(cause)
        cause = _cause(cause)
    return met[1:]


def _cause(error: BaseException) -> BaseException | None:
    return error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _trace(error: BaseException) -> Iterator[str]:
    """The frames, newest first; then those of what caused it, under the name of that."""
    for number, one in enumerate((error, *caused_by(error)), 1):
        if number > 1:
            yield f"caused by {type(one).__name__}"[:_LINE]
        for code, line in _frames(one)[: _FRAMES // number]:
            yield f"{code.co_filename[-_LINE:]}:{line}:in {code.co_name[:_LINE]}"
