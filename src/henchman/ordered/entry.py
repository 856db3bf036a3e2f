"""One push: an id, a payload, a score and a time, checked, from whatever form it is given in."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from henchman.errors import ArgumentError
from henchman.kernel.text import did_you_mean, shorten
from henchman.ordered.payloads import Payloads
from henchman.store.ordered import Push

__all__ = ["ID_MOST", "SCORE_MOST", "Entry", "Reader"]

ID_MOST: Final = 512  # characters
_TOO_LONG: Final = 10**ID_MOST
SCORE_MOST: Final = 2**53  # the server keeps scores as doubles: from here on whole numbers fall together
_LATEST: Final = 1e10  # seconds, the year 2286; milliseconds are beyond it
_FIELDS: Final = ("id", "payload", "score", "at", "delay")
_DERIVED: Final = ("id", "score", "at", "delay")


class Entry(NamedTuple):
    """One payload on its way. ``at``: Unix time; ``delay``: seconds from the server's now; no ``score``: that now."""

    id: str
    payload: bytes
    score: float | None
    at: float | None
    delay: float | None

    def push(self) -> Push:
        """As the script takes it."""
        when = f"+{self.delay:.6f}" if self.delay else ""
        if self.at is not None:
            when = f"{self.at:.6f}"
        return Push(self.id.encode(), when, "" if self.score is None else repr(self.score), self.payload)


class Reader:
    """Makes entries for one definition. ArgumentError says what is wrong with a value, and the way out."""

    def __init__(self, name: str, payloads: Payloads, derive: Callable[[Any], Any] | None) -> None:
        self._name = name
        self._payloads = payloads
        self._derive = derive

    def entry(self, id: Any, payload: Any, score: Any = None, at: Any = None, delay: Any = None) -> Entry:
        """One push as ``push(id, payload)`` gives it: ``at`` is a datetime."""
        return self._made(id, payload, score, _datetime(at), delay)

    def derived(self, payload: Any, said: Mapping[str, Any]) -> Entry:
        """One push of a payload alone; what is ``said`` goes before what is derived."""
        asked = self._asked(payload)
        given = {name: value for name, value in said.items() if value is not None}
        if "at" in given or "delay" in given:
            asked = {name: value for name, value in asked.items() if name not in ("at", "delay")}
        whole = {**asked, **given}
        if "id" not in whole:
            raise ArgumentError(f"{self._name}: derive gave no id for the payload {payload!r:.80}")
        return self._made(whole["id"], payload, whole.get("score"), _time(whole.get("at")), whole.get("delay"))

    def row(self, row: Any) -> Entry:
        """One row of a bulk push; with ``derive`` a row is a payload."""
        if self._derive is not None:
            return self.derived(row, {})
        if isinstance(row, tuple):
            if not 2 <= len(row) <= 3:
                raise ArgumentError(f"a tuple of {len(row)}; give (id, payload) or (id, payload, score)")
            return self._made(*row)
        if not isinstance(row, Mapping):
            raise ArgumentError(
                f"{type(row).__name__} {row!r:.80}; give a dict with id and payload, or a tuple (id, payload, score)"
            )
        _known(row, _FIELDS)
        if "id" not in row:
            raise ArgumentError(f"it has no id, only {', '.join(map(repr, row)) or 'nothing'}")
        return self._made(row["id"], row.get("payload", ""), row.get("score"), _time(row.get("at")), row.get("delay"))

    def again(self, job: Mapping[str, Any]) -> Entry:
        """The entry as the client middleware left it, all in JSON's own types."""
        said = job.get("args")
        if not isinstance(said, list) or len(said) != 1:
            raise ArgumentError(f"a client middleware set args of an ordered push to {said!r:.80}; it is [payload]")
        return _entry(
            _id(job.get("id")), _PLAIN.encode(said[0]), job.get("score"), _time(job.get("at")), job.get("delay")
        )

    def _made(self, id: Any, payload: Any, score: Any = None, at: float | None = None, delay: Any = None) -> Entry:
        return _entry(_id(id), self._payloads.encode(payload), score, at, delay)

    def _asked(self, payload: Any) -> Mapping[str, Any]:
        assert self._derive is not None  # noqa: S101 - only a definition that has it comes here
        try:
            answer = self._derive(payload)
        except Exception as error:
            raise ArgumentError(
                f"{self._name}: derive raised {type(error).__name__}: {error} for the payload {payload!r:.80}"
            ) from error
        if isinstance(answer, Mapping):
            _known(answer, _DERIVED)
            return answer
        return {"id": answer}


_PLAIN = Payloads("ordered", "claim", Any)


def _entry(id: str, payload: bytes, score: Any, at: float | None, delay: Any) -> Entry:
    if at is not None and delay is not None:
        raise ArgumentError("give at= or delay=, not both")
    return Entry(id, payload, _score(score), at, _delay(delay))


def _known(given: Mapping[str, Any], fields: tuple[str, ...]) -> None:
    for name in given:
        if name not in fields:
            near = did_you_mean(name, fields) if isinstance(name, str) else ""
            raise ArgumentError(f"there is no field {name!r} of a push, only {', '.join(fields)}{near}")


def _id(id: Any) -> str:
    """An id as its text: ``42`` and ``"42"`` are one id."""
    if isinstance(id, int) and not isinstance(id, bool):
        if not -_TOO_LONG < id < _TOO_LONG:
            raise ArgumentError(f"id is a number of more than {ID_MOST} digits")
        return str(int(id))
    if not isinstance(id, str):
        raise ArgumentError(f"id={id!r:.80}: an id is a text or a whole number; give str(…) of anything else")
    if not 1 <= len(id) <= ID_MOST:
        raise ArgumentError(f"id={shorten(id, 80)!r}: an id has 1 to {ID_MOST} characters, this one has {len(id)}")
    try:
        id.encode()
    except UnicodeEncodeError as error:
        raise ArgumentError(f"id={id!r:.80} has a lone surrogate at character {error.start}: it is not text") from None
    return str.__str__(id)


def _score(score: Any) -> float | None:
    if score is None:
        return None
    if isinstance(score, int) and not isinstance(score, bool):
        if not -SCORE_MOST <= score <= SCORE_MOST:
            raise ArgumentError(
                f"score={shorten(str(score) if abs(score) < 10**80 else 'a huge number', 80)}: whole numbers are exact "
                "up to 2**53 only; count from a later start, or give float(score) if neighbours may fall together"
            )
        return int(score)
    if isinstance(score, float):
        if not math.isfinite(score):
            raise ArgumentError(f"score={score!r}: give a finite number")
        return float(score)
    way = "; give its .timestamp()" if isinstance(score, datetime) else ", or leave it out: then it is the time"
    raise ArgumentError(f"score={score!r:.80}: a score is an int or a float{way}")


def _datetime(at: Any) -> float | None:
    """``at`` of a single push: a number there is too easily milliseconds."""
    if at is not None and not isinstance(at, datetime):
        raise ArgumentError(f"at={at!r:.80}: give a datetime with a time zone (or delay= for seconds)")
    return _time(at)


def _time(at: Any) -> float | None:
    """A moment as Unix seconds."""
    if at is None:
        return None
    if isinstance(at, datetime):
        if at.utcoffset() is None:
            raise ArgumentError(f"at={at!r}: this datetime has no time zone; add one, as in datetime.now(UTC)")
        return max(at.timestamp(), 0.0)  # before 1970 is as due as 1970
    if isinstance(at, bool) or not isinstance(at, int | float):
        raise ArgumentError(f"at={at!r:.80}: give a datetime with a time zone, or Unix seconds")
    if not 0 <= at < _LATEST:
        raise ArgumentError(f"at={at!r:.80}: Unix seconds are due, below 10,000,000,000; are these milliseconds?")
    return float(at)


def _delay(delay: Any) -> float | None:
    if delay is None:
        return None
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < _LATEST:
        raise ArgumentError(f"delay={delay!r:.80}: give seconds or a timedelta, from zero to 10,000,000,000 seconds")
    return float(seconds)
