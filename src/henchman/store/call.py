"""A call to the server as a value: what to send, how to read the answer, and whether it may be sent again.

``store/`` builds calls and does no I/O; a sync runner (``connection.py``) and an async one (``aconnection.py``)
execute them, so that both worlds share one definition.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from henchman.errors import Unconfirmed

try:  # the bare algorithm: a fifth of the time that hashlib takes to load, and this is loaded with every program
    from _sha1 import sha1  # type: ignore[import-not-found, unused-ignore]  # private, and with every CPython
except ImportError:
    from hashlib import sha1

Arg = bytes | str | int | float
T = TypeVar("T")
_LUA = os.path.join(os.path.dirname(__file__), "lua")
_INCLUDE = "-- include "


class Script(NamedTuple):
    """One atomic move: its name, its text and the hash under which the server knows it."""

    name: str
    text: str
    sha: str


def load(name: str) -> Script:
    """The script ``lua/<name>.lua``, with each line ``-- include <file>`` replaced by ``lua/lib/<file>.lua``.

    Each file opens with a contract that a test checks against every caller::

        -- name: what it does
        -- KEYS name name (name name)*        a group in brackets repeats
        -- ARGV name name (name)*
        -- returns what
    """
    text = _read(f"{_LUA}/{name}.lua")
    return Script(name, text, sha1(text.encode(), usedforsecurity=False).hexdigest())


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:  # pathlib takes three times as long, and every program reads these
        head, *pieces = file.read().removesuffix("\n").split(_INCLUDE)
    for piece in pieces:
        name, end, rest = piece.partition("\n")
        head += _library(name.strip()) + end + rest
    return head


@functools.cache
def _library(name: str) -> str:
    return _read(f"{_LUA}/lib/{name}.lua")


class Call(Generic[T]):
    """One write to the server and the reading of its answers.

    ``parts`` is one tuple a command; with several the raw answer is a list. ``script`` is set when the one command
    is an EVALSHA. ``again`` says whether the runner may send it once more after an answer that was not read: yes
    for reads and for moves that find nothing the second time, never for fetch and push. ``decode_again`` reads the
    answer instead of ``decode`` when the call had been sent before, and perhaps executed.
    """

    __slots__ = ("again", "decode", "decode_again", "name", "parts", "script")

    def __init__(
        self,
        name: str,
        parts: Sequence[tuple[Arg, ...]],
        decode: Callable[[Any], T],
        *,
        again: bool,
        script: Script | None = None,
        decode_again: Callable[[Any], T] | None = None,
    ) -> None:
        self.name = name
        self.parts = parts
        self.decode = decode
        self.again = again
        self.script = script
        self.decode_again = decode_again or decode

    def __repr__(self) -> str:
        return f"Call({self.name})"


def _as_is(reply: Any) -> Any:
    return reply


def command(*parts: Arg, decode: Callable[[Any], T] = _as_is, again: bool = True) -> Call[T]:
    """A call of one plain command."""
    return Call(str(parts[0]), (parts,), decode, again=again)


def commands(*many: tuple[Arg, ...], decode: Callable[[Any], T] = _as_is, again: bool = True) -> Call[T]:
    """A call of one or more plain commands in one write; the raw answer is always the list of theirs. Not a
    transaction."""
    read = decode if len(many) > 1 else lambda reply: decode([reply])
    return Call(str(many[0][0]), many, read, again=again)


def script(
    which: Script,
    keys: Sequence[str | bytes],
    args: Sequence[Arg],
    decode: Callable[[Any], T] = _as_is,
    *,
    again: bool,
    decode_again: Callable[[Any], T] | None = None,
) -> Call[T]:
    """A call of one Lua script, by its hash."""
    parts = ("EVALSHA", which.sha, len(keys), *keys, *args)
    return Call(which.name, (parts,), decode, again=again, script=which, decode_again=decode_again)


class Runner(Protocol):
    """Executes calls now."""

    def run(self, call: Call[T]) -> T:
        """The decoded answer; ServerAway when the server is not there, ServerError when it refused."""
        ...


class AsyncRunner(Protocol):
    """Executes calls, awaited."""

    def run(self, call: Call[T]) -> Awaitable[T]:
        """As ``Runner.run``."""
        ...


def replicated(call: Call[T], replicas: int, timeout_ms: int, jids: Callable[[], Sequence[str]]) -> Call[T]:
    """``call`` with a WAIT behind it, answered when ``replicas`` replicas have its write; Unconfirmed when fewer had it
    after ``timeout_ms``. ``jids`` names the jobs of the call, and is only called for that error.

    WAIT counts replicas that have *received* the write, not that have it on disk, and a failover may still promote
    another one. It rules out that an accepted job was on one machine only.
    """

    def decode(replies: Any) -> T:
        *inner, count = replies
        if count < replicas:
            raise Unconfirmed(jids(), wanted=replicas, confirmed=count, timeout=timeout_ms / 1000)
        return call.decode(inner if len(call.parts) > 1 else inner[0])

    parts = (*call.parts, ("WAIT", replicas, timeout_ms))
    return Call(call.name, parts, decode, again=call.again, script=call.script)
