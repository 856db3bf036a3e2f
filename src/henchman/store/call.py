"""A call to the server as a value: what to send, how to read the answer, and whether it may be sent again.

``store/`` builds calls and does no I/O; a sync runner (``connection.py``) and an async one (``aconnection.py``)
execute them, so that both worlds share one definition.

A procedure is a generator of calls, written once and run now or awaited.

``answer = yield call`` sends a call and gets its decoded answer; an error of the call is raised at the ``yield``, so
that the procedure can handle it; ``return`` gives the result. One procedure calls another with ``yield from``::

    def close(keys: Keys, batch: str) -> Procedure[str]:
        state: str = yield batches.close(keys, batch)
        yield from release(keys, batch)
        return state

    run(connections, close(keys, batch))
    await arun(aconnections, close(keys, batch))

A ``Pages`` procedure also yields pages of what it finds, ``yield Page(found)``. The next page is read when the caller
asks for it.

A public class derives from ``BothWays`` and offers each procedure twice, as ``x``, run now, and as ``ax``, awaited::

    class Queue(BothWays):
        @now
        def size(self) -> Procedure[int]:
            "How many payloads wait in it."
            return (yield from self._look()).size

        asize = awaited(size)

Both have the parameters and the result type of the procedure, for type checkers and for ``help()``.
"""

from __future__ import annotations

import os
import re
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from functools import cache, cached_property, wraps
from inspect import GEN_CLOSED, getgeneratorstate, signature
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from henchman.errors import ServerAway, ServerError, Unconfirmed
from henchman.kernel.digests import sha1

Arg = bytes | str | int | float
S = TypeVar("S")
T = TypeVar("T")
U = TypeVar("U")
P = ParamSpec("P")
Both = TypeVar("Both", bound="RunsProcedures")
_LUA = os.path.join(os.path.dirname(__file__), "lua")
_INCLUDE = "-- include "
_KEY = re.compile(r"\bkey\('(\w+)'\)")


class Script:
    """One atomic move: its name, its text and the hash under which the server knows it.

    The hash is made when it is first asked for, for nobody uses all scripts. The text is made each time, for a server
    hears it once. The files are read before that, as bytes, for they may be replaced while the program runs.
    """

    def __init__(self, name: str, source: bytes, libraries: Mapping[str, bytes]) -> None:
        self.name = name
        self._source, self._libraries = source, libraries

    @property
    def text(self) -> str:
        """What the server executes."""
        names = dict(re.findall(r"(?m)^    (\w+) = '([^']+)',$", self._libraries["keys"].decode()))
        # the first call of key() makes a table of all names, which takes the server as long as a push
        return _KEY.sub(lambda match: f"(prefix .. '{names[match[1]]}')", self._whole(self._source.decode(), set()))

    @cached_property
    def sha(self) -> str:
        """Its hash."""
        digest: str = sha1(self.text.encode(), usedforsecurity=False).hexdigest()
        return digest

    def _whole(self, text: str, seen: set[str]) -> str:
        """``text`` with the libraries that it includes, but for those that were ``seen`` further up."""
        head, *pieces = text.split(_INCLUDE)
        for piece in pieces:
            name, end, rest = piece.partition("\n")
            if name not in seen:
                known = set(seen) if head.endswith(" ") else seen  # what a function includes is not seen outside
                known.add(name)
                head += self._whole(self._libraries[name].decode(), known)
            head += end + rest
        return head


def load(name: str) -> Script:
    """The script ``lua/<name>.lua``, with each line ``-- include <file>`` replaced by ``lua/lib/<file>.lua``, once.

    One within a function (the line is indented) is made when that function is called: a call of a script makes all
    functions on its way anew, which takes the server 0.1 µs each.

    Each file opens with a contract that a test checks against every caller::

        -- name: what it does
        -- KEYS name name (name name)*        a group in brackets repeats
        -- ARGV name name (name)*
        -- returns what
    """
    return Script(name, _read(f"{_LUA}/{name}.lua"), _libraries())


def _read(path: str) -> bytes:
    with open(path, "rb") as file:  # pathlib takes three times as long, and every program reads these
        return file.read().removesuffix(b"\n")


@cache
def _libraries() -> Mapping[str, bytes]:
    folder = f"{_LUA}/lib/"
    return {file.removesuffix(".lua"): _read(folder + file) for file in os.listdir(folder) if file.endswith(".lua")}


class Call(Generic[T]):
    """One write to the server and the reading of its answers.

    ``parts`` is one tuple a command; with several the raw answer is a list. ``script`` is set when each
    command is an EVALSHA of it. ``again`` says whether the runner may send it once more after an answer that was not
    read: yes for reads and for moves that find nothing the second time, never for fetch and push. ``decode_again``
    reads the answer instead of ``decode`` when the call had been sent before, and perhaps executed.
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

    def with_texts(self, parts: Sequence[tuple[Arg, ...]]) -> list[tuple[Arg, ...]]:
        """Some of the commands, with the text of the script in the first, for a server that does not know its hash."""
        first, *rest = parts
        return [first if self.script is None else ("EVAL", self.script.text, *first[2:]), *rest]


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


class Together(Call[list[Any]]):
    """Several reads in one write; the answer is the list of theirs. When one of them is refused, all of them are."""

    __slots__ = ("calls",)

    def __init__(self, calls: Sequence[Call[Any]]) -> None:
        self.calls = calls
        parts = [part for one in calls for part in one.parts]
        super().__init__(f"{calls[0].name} and {len(calls) - 1} more", parts, self._each, again=True)

    def _each(self, replies: Any) -> list[Any]:
        found, place = [], 0
        for one in self.calls:
            some = replies[place : place + len(one.parts)]
            found.append(one.decode(some if len(some) > 1 else some[0]))
            place += len(some)
        return found

    def _scripts(self) -> Iterator[Script]:
        """The scripts of all, also of those that are several themselves."""
        for one in self.calls:
            if isinstance(one, Together):
                yield from one._scripts()
            elif one.script is not None:
                yield one.script

    def with_texts(self, parts: Sequence[tuple[Arg, ...]]) -> list[tuple[Arg, ...]]:
        """Each script with its text where it stands first: the server knows it from then on."""
        texts = {one.sha: one.text for one in self._scripts()}
        whole = []
        for part in parts:
            text = texts.pop(str(part[1]), None) if part[0] == "EVALSHA" else None
            whole.append(part if text is None else ("EVAL", text, *part[2:]))
        return whole


# --- procedures: several calls ----------------------------------------------------------------------------------------


class Page(list[T]):
    """Some of what a ``Pages`` procedure finds."""


Procedure = Generator[Call[Any], Any, T]
Pages = Generator[Call[Any] | Page[T], Any, None]


def drive(do: Callable[[S], Any], steps: Generator[S, Any, T]) -> T:
    """Do each step that ``steps`` yields, and send back what ``do`` returned or throw in what it raised.

    An error that strikes between two steps (the watchdog raises errors in a job's thread) is thrown in too.
    """
    resume, value = steps.send, None
    while True:
        try:
            step = resume(value)
            resume, value = steps.send, do(step)
        except BaseException as error:
            if getgeneratorstate(steps) == GEN_CLOSED:
                if isinstance(error, StopIteration):
                    result: T = error.value
                    return result
                raise
            resume, value = steps.throw, error


async def adrive(do: Callable[[S], Awaitable[Any]], steps: Generator[S, Any, T]) -> T:
    """``drive``, awaited."""
    resume, value = steps.send, None
    while True:
        try:
            step = resume(value)
            resume, value = steps.send, await do(step)
        except BaseException as error:
            if getgeneratorstate(steps) == GEN_CLOSED:
                if isinstance(error, StopIteration):
                    result: T = error.value
                    return result
                raise
            resume, value = steps.throw, error


def run(runner: Runner, procedure: Procedure[T]) -> T:
    """Run ``procedure`` on ``runner``'s connections; its result."""
    return drive(runner.run, procedure)


async def arun(runner: AsyncRunner, procedure: Procedure[T]) -> T:
    """``run``, awaited."""
    return await adrive(runner.run, procedure)


def side_by_side(*procedures: Procedure[Any]) -> Procedure[list[Any]]:
    """The results of procedures that only read, run side by side: what they ask next goes in one write, so that all of
    them take as many round trips as the longest. Each meets its own errors; one that it does not handle ends them all.
    """
    results: list[Any] = [None] * len(procedures)
    asked: dict[int, Call[Any]] = {}

    def go_on(place: int, resume: Callable[[Any], Call[Any]], value: Any) -> None:
        try:
            asked[place] = resume(value)
        except StopIteration as end:
            results[place] = end.value

    for place, one in enumerate(procedures):
        go_on(place, one.send, None)
    while asked:
        places, calls = [*asked], [*asked.values()]
        asked.clear()
        for place, answer in zip(places, (yield from _answers(calls)), strict=True):
            refused = isinstance(answer, ServerError)
            go_on(place, procedures[place].throw if refused else procedures[place].send, answer)
    return results


def _answers(calls: Sequence[Call[Any]]) -> Procedure[list[Any]]:
    """The answer of each, or the error with which the server refused it."""
    try:
        return (yield Together(calls)) if len(calls) > 1 else [(yield calls[0])]
    except ServerAway:
        raise
    except ServerError as error:
        if len(calls) == 1:
            return [error]
    half = len(calls) // 2  # which of them it was
    return (yield from _answers(calls[:half])) + (yield from _answers(calls[half:]))


def ask(call: Call[T]) -> Procedure[T]:
    """The procedure of one call."""
    answer: T = yield call
    return answer


def unless_refused(asked: Procedure[T], otherwise: U) -> Procedure[T | U]:
    """The result of ``asked``; ``otherwise`` when the server refuses: its user may not ask, or a key holds something
    else than it should."""
    try:
        return (yield from asked)
    except ServerAway:
        raise
    except ServerError:
        return otherwise


def next_page(pages: Pages[T]) -> Procedure[Page[T] | None]:
    """Run ``pages`` up to its next page; None at its end."""
    resume, value = pages.send, None
    while True:
        try:
            step = resume(value)
        except StopIteration:
            return None
        if isinstance(step, Page):
            return step
        try:
            resume, value = pages.send, (yield step)
        except BaseException as error:
            resume, value = pages.throw, error


def iterate(runner: Runner, pages: Pages[T]) -> Iterator[T]:
    """Each item of ``pages``, one by one."""
    while (page := run(runner, next_page(pages))) is not None:
        yield from page


async def aiterate(runner: AsyncRunner, pages: Pages[T]) -> AsyncIterator[T]:
    """``iterate`` for ``async for``."""
    while (page := await arun(runner, next_page(pages))) is not None:
        for item in page:
            yield item


def first(pages: Pages[T], wanted: Callable[[T], bool]) -> Procedure[T | None]:
    """The first item of ``pages`` that is ``wanted``; None when there is none."""
    while (page := (yield from next_page(pages))) is not None:
        for item in page:
            if wanted(item):
                return item
    return None


def mapped(pages: Pages[T], change: Callable[[Page[T]], Procedure[Iterable[U]]]) -> Pages[U]:
    """The pages that ``change``, a procedure too, makes of those of ``pages``."""
    while (page := (yield from next_page(pages))) is not None:
        yield Page((yield from change(page)))


class Connected(Protocol):
    """The app, or what stands in its place: connections are made when they are first asked for."""

    @property
    def connections(self) -> Runner: ...
    @property
    def aconnections(self) -> AsyncRunner: ...


class RunsProcedures(Protocol):
    """What ``now`` and ``awaited`` need of the class of their methods."""

    def _run(self, procedure: Procedure[T], /) -> T: ...
    def _arun(self, procedure: Procedure[T], /) -> Coroutine[Any, Any, T]: ...


class BothWays:
    """Base of a class whose procedures can be run now and awaited."""

    def __init__(self, connected: Connected) -> None:
        self._connected = connected

    def __repr__(self) -> str:
        return f"<{type(self).__name__.lower()}>"

    def _run(self, procedure: Procedure[T]) -> T:
        return run(self._connected.connections, procedure)

    async def _arun(self, procedure: Procedure[T]) -> T:
        return await arun(self._connected.aconnections, procedure)

    def _items(self, pages: Callable[[], Pages[T]]) -> Items[T]:
        return Items(self._connected, pages)


class Items(Generic[T]):
    """What a ``Pages`` procedure finds, for ``for`` and ``async for``; each loop begins anew."""

    def __init__(self, connected: Connected, pages: Callable[[], Pages[T]]) -> None:
        self._connected = connected
        self._pages = pages

    def __iter__(self) -> Iterator[T]:
        return iterate(self._connected.connections, self._pages())

    def __aiter__(self) -> AsyncIterator[T]:
        return aiterate(self._connected.aconnections, self._pages())


def now(procedure: Callable[Concatenate[Both, P], Procedure[T]]) -> Callable[Concatenate[Both, P], T]:
    """The method that runs ``procedure``, a method too, now."""

    @wraps(procedure)
    def run_now(self: Both, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(procedure(self, *args, **kwargs))

    told = signature(procedure)
    result = told.return_annotation.removeprefix("Procedure[").removesuffix("]")
    run_now.__signature__ = told.replace(return_annotation=result)  # type: ignore[attr-defined]
    run_now.__annotations__ = {**procedure.__annotations__, "return": result}
    return run_now


def awaited(
    method: Callable[Concatenate[Both, P], T],
) -> Callable[Concatenate[Both, P], Coroutine[Any, Any, T]]:
    """The awaited form of ``method``, which ``now`` made."""
    procedure: Callable[..., Procedure[T]] = method.__wrapped__  # type: ignore[attr-defined]
    name = method.__name__

    @wraps(method)
    async def run_awaited(self: Both, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._arun(procedure(self, *args, **kwargs))

    run_awaited.__name__, run_awaited.__doc__ = f"a{name}", f"``{name}``, awaited."
    run_awaited.__qualname__ = f"{method.__qualname__.removesuffix(name)}a{name}"
    return run_awaited
