"""A call to the server as a value: what to send, how to read the answer, and whether it may be sent again.

``store/`` builds calls and does no I/O; a sync runner (``connection.py``) and an async one (``aconnection.py``)
execute them, so that both worlds share one definition.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from henchman.store.scripts import Script

__all__ = ["Arg", "AsyncRunner", "Call", "Runner", "command", "commands", "script"]

Arg = bytes | str | int | float
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


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
