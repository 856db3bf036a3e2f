"""Error answers of the server: which of them prove that nothing was executed, and what is left to send after one.

An answer that is an error is not an answer that was not read: the connection is in step, and it is known what happened.
Of several commands in one write some may be refused and the rest executed (a server that finishes loading in between,
a memory that is full no more); then only the refused ones go again, so that nothing is pushed twice.
"""

from __future__ import annotations

from typing import Any, TypeGuard

import redis
from redis.exceptions import AuthenticationError, BusyLoadingError, NoPermissionError, NoScriptError, ReadOnlyError

from henchman.errors import ServerAway, ServerError
from henchman.kernel.text import mask_url
from henchman.store.call import Arg, Call

_NO_ROOM = "max number of clients reached"
# The server says with these that it did nothing: the same command may be sent once more.
_NOT_EXECUTED = {
    *("BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MAXCLIENTS", "MISCONF", "MOVED", "NOREPLICAS", "NOSCRIPT"),
    *("READONLY", "TRYAGAIN"),
}
_CODES: dict[type[BaseException], str] = {
    NoScriptError: "NOSCRIPT",
    ReadOnlyError: "READONLY",
    BusyLoadingError: "LOADING",
}


#: commands of calls that must not run twice which may do so
_REPEATABLE = {"SADD", "WAIT"}


def is_answer(error: BaseException) -> bool:
    """Whether ``error`` is what the server answered, and not what became of the connection."""
    return isinstance(error, redis.ResponseError | BusyLoadingError | AuthenticationError) or (
        isinstance(error, redis.ConnectionError) and str(error) == _NO_ROOM
    )


def error_code(error: BaseException) -> str:
    """The first word of an error answer; redis-py cuts off those that it knows."""
    if str(error) == _NO_ROOM:
        return "MAXCLIENTS"
    code = _CODES.get(type(error)) or getattr(error, "status_code", None)
    return str(code or str(error).partition(" ")[0])


def _is_error(reply: Any) -> TypeGuard[redis.RedisError]:
    return isinstance(reply, redis.RedisError)


def proves_not_executed(error: BaseException) -> bool:
    """Whether the server said with ``error`` that it did not execute the command."""
    return is_answer(error) and error_code(error) in _NOT_EXECUTED


def not_let_in(url: str, error: BaseException) -> ServerError | None:
    """What to raise when ``error``, met while connecting, is the server's answer to a login that it refuses."""
    said = error if is_answer(error) else error.__cause__  # redis-py wraps it for a Unix socket
    if said is None or not is_answer(said) or proves_not_executed(said):
        return None
    refused = "refused the login" if isinstance(said, AuthenticationError) else "refused"
    return ServerError(f"{mask_url(url)} {refused}: {said}")


def refused_for_good(url: str, name: str, error: redis.ResponseError) -> ServerError:
    """What to raise when the server refused the call ``name``; a matter of rights names the server too."""
    said = error if error.__cause__ is None else error.__cause__
    if isinstance(said, AuthenticationError):
        return ServerError(f"{mask_url(url)} asks for a login, which its URL must name: {name}: {error}")
    if isinstance(said, NoPermissionError):
        return ServerError(f"{mask_url(url)} does not allow this user everything: {name}: {error}")
    return ServerError(f"{name}: {error}")


class Refused(Exception):
    """At least one command of a write was refused; ``replies`` holds every answer, the errors among them."""

    def __init__(self, replies: list[Any]) -> None:
        super().__init__(replies)
        self.replies = replies


def together(parts: Any, replies: list[Any]) -> list[Any]:
    """The answers of several commands; Refused when one is an error, also inside of a transaction.

    A WAIT that alone was refused (the server is a replica since the command before it) was confirmed by nobody.
    """
    if parts[-1][0] == "WAIT" and not any(_is_error(one) for one in replies[:-1]):
        return [*replies[:-1], 0 if _is_error(replies[-1]) else replies[-1]]
    inside = replies[-1] if parts[-1] == ("EXEC",) and isinstance(replies[-1], list) else ()
    if any(_is_error(one) for one in (*replies, *inside)):
        raise Refused(replies)
    return replies


class Progress:
    """How far the commands of one call have come.

    ``unread``: an answer to an earlier sending was not read, so that nothing proves any more that the call was not
    executed. ``only_forgot``: the last answer was that the server does not know the script. The next sending brings
    it along, which is worth it however late it is.
    """

    def __init__(self, call: Call[Any], url: str, *, unread: bool) -> None:
        self._call = call
        self._url = url
        self.unread = unread
        self._left = list(range(len(call.parts)))
        self._replies: list[Any] = [None] * len(call.parts)
        self._unknown_script = self.only_forgot = False
        self._waits = call.parts[-1][0] == "WAIT"

    @property
    def executed(self) -> bool | None:
        """False when nothing of the call was executed so far, None when a part of it was."""
        return False if len(self._left) == len(self._replies) and not self.unread else None

    @property
    def parts(self) -> list[tuple[Arg, ...]]:
        """The commands that are still to be sent; a script with its text when the server did not know its hash."""
        left = [self._call.parts[index] for index in self._left]
        return self._call.with_texts(left) if self._unknown_script else left

    def away(self, error: redis.RedisError) -> ServerAway:
        """What to raise when the server refused for too long."""
        text = f"{mask_url(self._url)} refuses {self._call.name}: {error_code(error)} {error}"
        return ServerAway(text, executed=self.executed)

    def refused(self, replies: list[Any]) -> redis.RedisError:
        """Take answers in; the first error, when all of them allow to send again. Raises ResponseError for good, or
        ServerAway where an earlier sending may have been executed, or a part of this one was.

        A full memory (OOM) is told at once; but where it got room between two commands of one write, what was refused
        goes again."""
        self._take(replies)
        transaction = self._call.parts[-1] == ("EXEC",)
        left = self._left[:-1] if self._waits else self._left  # a WAIT goes again with what it waits for
        answers = [self._replies[index] for index in left]
        if transaction and isinstance(answers[-1], list):  # executed: what failed inside has failed
            answers = answers[-1]
        errors = [one for one in answers if _is_error(one)]
        if not transaction:
            self._left = [index for index in left if _is_error(self._replies[index])]
            self._left += [len(self._replies) - 1] if self._waits else []
        half = self._is_half_done()
        for error in errors:
            code = error_code(error)
            if proves_not_executed(error) or code == ("OOM" if half else "EXECABORT" if transaction else ""):
                continue
            if self.unread or half:
                raise self.away(error) from error
            raise error if isinstance(error, redis.ResponseError) else redis.ResponseError(str(error)) from error
        self.only_forgot = not self._unknown_script and error_code(errors[0]) == "NOSCRIPT"
        self._unknown_script = self._unknown_script or self.only_forgot
        return errors[0]

    def _is_half_done(self) -> bool:
        """Whether a part was executed that must not be executed twice: to be told "refused" would lead to that."""
        done = {part[0] for part, reply in zip(self._call.parts, self._replies, strict=True) if not _is_error(reply)}
        return not self._call.again and self._call.parts[-1] != ("EXEC",) and bool(done - _REPEATABLE)

    def finish(self, reply: Any) -> Any:
        """The answer to the whole call, with the answer to what was sent last."""
        if len(self._call.parts) == 1:
            return reply
        self._take(reply if len(self._left) > 1 else [reply])
        return self._replies

    def _take(self, replies: list[Any]) -> None:
        for index, reply in zip(self._left, replies, strict=True):
            self._replies[index] = reply
