"""The relay of the outbox as calls: push, look what the server knows, forget. What each promises stands in ``lua/``.

The token of the relay's lease fences every call that changes something: a relay that was frozen past its lease and
wakes up pushes nothing and forgets nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from henchman.errors import HenchmanError
from henchman.store.admission import answers_of
from henchman.store.call import Call, command, commands, load, script
from henchman.store.keys import Keys

_PUSH = load("outbox_push")
_FORGET = load("outbox_forget")
_NOTED_S = 7 * 86400

#: what a row's push may answer although the row itself is fine: it is tried again, and no attempt counts
NOT_NOW = frozenset({"FULL", "LINE"})


class RelayFenced(HenchmanError):
    """Another process relays this outbox."""


class OutboxPush(NamedTuple):
    """One row. ``when`` and ``ask`` as in ``batches.TrackedPush``; ``detail``: b"" of a job that is not tracked."""

    jid: str
    line: str
    queue: str
    when: str
    payload: bytes
    batch: str
    member: str
    detail: bytes
    ask: bytes = b""


def _fenced(reply: Any) -> Any:
    if reply == b"FENCED":
        raise RelayFenced("another process relays this outbox")
    return reply


def push(
    keys: Keys, outbox: str, token: str, rows: Sequence[OutboxPush], keep: str = ""
) -> Call[list[int | str | list[str]]]:
    """Push ``rows``, each once. One answer a row: 1 pushed, 0 pushed before, a text: why not; the words of
    ``lib/admit.lua`` where another job has its key: then it is done with, too.

    It may be sent again: what the first sending pushed stands in ``sent``. Raises RelayFenced.
    """

    def read(reply: Any) -> list[int | str | list[str]]:
        return [_said(one) for one in _fenced(reply)]

    names = [keys.queues, keys.outbox_relay(outbox), keys.outbox_sent(outbox), keys.outbox_duplicates(outbox)]
    return script(_PUSH, names, [token, keep, *(part for row in rows for part in row)], read, again=True)


def _said(answer: Any) -> int | str | list[str]:
    if isinstance(answer, list):
        return answers_of(answer[0])[0]
    return answer.decode("utf-8", "replace") if isinstance(answer, bytes) else int(answer)


def known(keys: Keys, outbox: str, token: str, jids: Sequence[str]) -> Call[list[bool]]:
    """Which of ``jids`` (at least one) the server knows to be pushed. Raises RelayFenced."""

    def read(replies: Any) -> list[bool]:
        holder, flags = replies
        if holder != token.encode():
            raise RelayFenced("another process relays this outbox")
        return [bool(one) for one in flags]

    return commands(("GET", keys.outbox_relay(outbox)), ("SMISMEMBER", keys.outbox_sent(outbox), *jids), decode=read)


def forget(keys: Keys, outbox: str, token: str, jids: Sequence[str]) -> Call[int]:
    """Forget jids whose rows are gone; how many were known. Raises RelayFenced."""
    names = [keys.outbox_relay(outbox), keys.outbox_sent(outbox)]
    return script(_FORGET, names, [token, *jids], lambda reply: int(_fenced(reply)), again=True)


def sent_page(keys: Keys, outbox: str, cursor: int, step: int = 500) -> Call[tuple[int, list[str]]]:
    """One step of a scan over what was pushed: (next cursor, 0 at the end; jids)."""

    def read(reply: Any) -> tuple[int, list[str]]:
        return int(reply[0]), [one.decode("utf-8", "surrogateescape") for one in reply[1]]

    return command("SSCAN", keys.outbox_sent(outbox), cursor, "COUNT", step, decode=read)


class RelayFacts(NamedTuple):
    """Who relays an outbox ("": nobody), how many jids the server holds as pushed, how many rows ever were duplicates,
    the server's Unix time."""

    relay: str
    sent: int
    duplicates: int
    now: float


class OutboxFigures(msgspec.Struct, frozen=True):
    """How an outbox stood at the Unix time ``at`` of the server; the figures are those of ``outbox.status``."""

    at: float
    database: str
    rows: int
    waiting: int
    lag: float
    refused: int
    duplicates: int


def note(keys: Keys, outbox: str, figures: OutboxFigures) -> Call[None]:
    """Write down how an outbox stands, for whoever has no way to its database."""
    text = msgspec.json.encode(figures)
    return commands(
        ("HSET", keys.outboxes, outbox, text), ("EXPIRE", keys.outboxes, _NOTED_S), decode=lambda _: None, again=True
    )


def noted(keys: Keys) -> Call[list[tuple[OutboxFigures, float]]]:
    """How each outbox stood when its relay looked last, and how many seconds ago that was."""

    def read(replies: Any) -> list[tuple[OutboxFigures, float]]:
        reply, (seconds, micro) = replies
        found = []
        for text in reply.values() if isinstance(reply, dict) else reply[1::2]:
            with contextlib.suppress(msgspec.MsgspecError):  # of another version
                found.append(_figures(text))
        newest = {one.database: one for one in sorted(found, key=lambda one: one.at)}  # its tables were made anew
        now = int(seconds) + int(micro) / 1e6
        return [(newest[name], max(now - newest[name].at, 0.0)) for name in sorted(newest)]

    return commands(("HGETALL", keys.outboxes), ("TIME",), decode=read)


_figures = msgspec.json.Decoder(OutboxFigures).decode


def relay_facts(keys: Keys, outbox: str) -> Call[RelayFacts]:
    """How the relay stands."""

    def read(replies: Any) -> RelayFacts:
        holder, sent, duplicates, (seconds, micro) = replies
        relay, now = (holder or b"").decode("utf-8", "replace"), int(seconds) + int(micro) / 1e6
        return RelayFacts(relay, int(sent), int(duplicates or 0), now)

    return commands(
        ("GET", keys.outbox_relay(outbox)),
        ("SCARD", keys.outbox_sent(outbox)),
        ("GET", keys.outbox_duplicates(outbox)),
        ("TIME",),
        decode=read,
    )


def which_sent(keys: Keys, outbox: str, jids: Sequence[str]) -> Call[list[bool]]:
    """Which of ``jids`` (at least one) were pushed, for whoever only looks."""
    return command("SMISMEMBER", keys.outbox_sent(outbox), *jids, decode=lambda reply: [bool(one) for one in reply])


def wake(keys: Keys) -> Call[Any]:
    """Tell the relay that something was committed; nothing is lost when nobody hears it."""
    return command("PUBLISH", keys.outbox_wake, "")
