"""Connections to the server, and the runner that executes calls on them.

Its limits first: one call is one write and its answers; there are no transactions over several calls, and an answer
that was not read is unknown, not failed (PROTOCOL, section 3). redis-py's own resending is switched off; only this
file resends, and a call that must not run twice only after an error that proves it was not executed.
"""

from __future__ import annotations

import itertools
import os
import select
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import hiredis
import redis
from redis.backoff import NoBackoff
from redis.connection import UnixDomainSocketConnection, parse_url
from redis.maint_notifications import MaintNotificationsConfig
from redis.retry import Retry

from henchman.errors import ArgumentError, ConfigError, ServerAway, ServerError
from henchman.kernel import failpoints
from henchman.kernel.text import mask_url, unquoted_login
from henchman.store.call import Arg, Call
from henchman.store.replies import Progress, Refused, error_code, is_answer, not_let_in, refused_for_good, together
from henchman.store.sentinel import SCHEME, SYNC, Sentinels, World, is_current, read_sentinel_url

T = TypeVar("T")
RawConnection = Any  # redis-py types its connections only by half
_64_BITS = 2**63
LARGE = 1 << 16  # bytes of a value that is sent without a copy
_packed: Callable[[Any], bytes] = hiredis.pack_command
_parse: Callable[[str], dict[str, Any]] = parse_url

# Limits and timings come from the configuration unless the URL names them; how answers are read and what is sent again
# is never the URL's to say.
_SCHEMES = ("redis://", "rediss://", "unix://", SCHEME)
_ALL = f"{', '.join(_SCHEMES[:-1])} or {_SCHEMES[-1]}"
_FORM = "redis://[[user]:password@]host[:port][/db]"
_OURS = {
    *("decode_responses", "encoding", "encoding_errors", "health_check_interval", "legacy_responses"),
    *("protocol", "retry", "retry_on_error", "retry_on_timeout", "max_connections", "timeout"),
}


def check_url(url: str) -> str:
    """``url`` itself; ConfigError when no connection can be made from it."""
    connection_options(url)
    return url


def connection_options(url: str) -> tuple[type[Any], dict[str, Any]]:
    """redis-py's connection class for ``url`` and the arguments it is made with; ConfigError names what is wrong."""
    shown = mask_url(url)
    if not url.startswith(_SCHEMES):
        raise ConfigError(f"{shown!r} is not a server's address: it must begin with {_ALL}")
    if why := unquoted_login(url):
        raise ConfigError(f"{shown} cannot be read: {why}")
    kind, options = read_options(_parse, url, SYNC)
    try:
        kind(**{"driver_info": None} | options)  # connects nowhere; with a version to tell it would read its metadata
    except (TypeError, ValueError, redis.RedisError) as error:
        raise ConfigError(f"{shown}: an option of this address is unknown or wrong: {error}") from None
    return kind, options


def read_options(parse: Callable[[str], Any], url: str, world: World) -> tuple[type[Any], dict[str, Any]]:
    """What redis-py's ``parse`` reads out of ``url``, with the class of ``world`` that connects to it."""
    led = read_sentinel_url(url) if url.startswith(SCHEME) else None
    try:
        options = dict(parse(url if led is None else led.server_url))
    except ValueError as error:
        said = str(error)  # of what it cannot read at all, the parser quotes a part: that may be a password
        why = said if said.startswith("Invalid value for") else f"the form is {_FORM}"
        raise ConfigError(f"{mask_url(url)} cannot be read: {why}") from None
    ours = sorted(options.keys() & _OURS)
    if ours:
        raise ConfigError(f"{mask_url(url)}: leave {', '.join(ours)} out of the address; Henchman decides that")
    kind = options.pop("connection_class", world.plain)
    if led is None:
        return kind, options
    return world.led_tls if kind is world.tls else world.led, options | {"sentinels": Sentinels(led, world, options)}


def pack(parts: Sequence[Arg]) -> bytes:
    """One command as the server reads it; ArgumentError for an integer that it could not hold.

    hiredis ends the process, in C, at an integer that Python refuses to write as text (more than 4,300 digits).
    """
    if [one for one in parts if type(one) is int and not -_64_BITS <= one < _64_BITS]:
        raise ArgumentError(f"{parts[0]!r:.100}: an integer is beyond 64 bits")
    return _packed(parts)


def pieces(parts: Sequence[Arg]) -> list[bytes]:
    """As ``pack``, in pieces: a large value is one of its own, for hiredis would copy it twice."""
    if [one for one in parts if type(one) is bytes and len(one) >= LARGE]:
        return _around_large(parts)
    return [pack(parts)]


def _around_large(parts: Sequence[Arg]) -> list[bytes]:
    pack((parts[0], *[one for one in parts if type(one) is int]))  # only to check them
    found, text = [], b"*%d\r\n" % len(parts)
    for one in parts:
        if type(one) is bytes and len(one) >= LARGE:
            found += [text + b"$%d\r\n" % len(one), one]
            text = b"\r\n"
        else:
            text += _packed((one,)).partition(b"\n")[2]  # without the number of values
    return [*found, text]


def pack_all(many: Sequence[tuple[Arg, ...]]) -> bytes:
    """Several commands in one write, as pushes are: they hold no integer from outside, their times are text by then."""
    return b"".join(map(_packed, many))


def unreachable(shown_url: str, error: BaseException) -> str:
    """What failed, and where to look; ``shown_url`` without its password."""
    text = str(error).rstrip(".") or type(error).__name__
    return f"{shown_url} cannot be reached: {text}; henchman doctor shows where this address comes from"


class Line:
    """One connection that belongs to one user: for waiting and listening. Its errors are ours."""

    def __init__(self, conn: RawConnection, url: str) -> None:
        self._conn = conn
        self._url = mask_url(url)
        self._last = ""

    def fileno(self) -> int:
        """The socket, for a selector."""
        return int(self._conn._sock.fileno())

    def send(self, *parts: Arg) -> None:
        """Send one command; ServerAway when the connection is gone."""
        try:
            if failpoints.armed:
                self._last = str(parts[0])
                failpoints.point(f"{self._last}:before")
            self._conn.send_packed_command([pack(parts)], check_health=False)
        except (redis.RedisError, OSError) as error:
            raise ServerAway(unreachable(self._url, error)) from error

    def read(self) -> Any:
        """Read one answer; ServerAway when it does not come, ServerError when it is an error."""
        try:
            if failpoints.armed:
                failpoints.point(f"{self._last}:after")
            return self._conn.read_response()
        except redis.ResponseError as error:
            raise ServerError(f"{self._url}: {error}") from error
        except (redis.RedisError, OSError) as error:
            raise ServerAway(f"{self._url} did not answer: {error}") from error

    def readable(self) -> bool:
        """Whether an answer (or the end of the stream) can be read without waiting."""
        try:
            return bool(self._conn.can_read(0))
        except (redis.RedisError, OSError) as error:
            raise ServerAway(f"{self._url} closed the connection: {error}") from error

    def close(self) -> None:
        """Close it; nothing happens when it is closed already."""
        self._conn.disconnect()


class Connections:
    """A pool of connections to one server and the sync runner on top of it. Thread-safe; a forked child starts anew.

    ``revive`` is asked when the server cannot be reached: it returns True when it brought one back (the embedded
    server) and the call is worth another try.
    """

    def __init__(
        self,
        url: str,
        *,
        connect_timeout: float = 3.0,
        io_timeout: float = 5.0,
        revive: Callable[[], bool] | None = None,
    ) -> None:
        self.url = url
        self._revive = revive
        self._kind, options = connection_options(url)
        self._led = "sentinels" in options
        self.io_timeout = options.pop("socket_timeout", None) or io_timeout
        self._connect_timeout = options.pop("socket_connect_timeout", None) or connect_timeout
        self._options = {"protocol": 2, "driver_info": None, "health_check_interval": 0, **options}
        if self._kind is not UnixDomainSocketConnection:
            self._options.setdefault("socket_keepalive", True)
        self._idle: deque[RawConnection] = deque()
        self._apart: list[Connections] = []
        self._pid = os.getpid()
        self._openings = itertools.count(1)
        self.opened = 0  # changes with each connection that is made: the next answer may be another server's

    def __repr__(self) -> str:
        return f"Connections({mask_url(self.url)})"

    def open(self, io_timeout: float | None = None) -> Line:
        """A connection for the caller alone; ``io_timeout`` bounds each read. ServerAway when there is no server."""
        return Line(self._open(io_timeout), self.url)

    def apart(self) -> Connections:
        """The same server by connections of one's own: who uses them alone knows by ``opened`` whether they broke.
        They are closed with these."""
        made = Connections(
            self.url, connect_timeout=self._connect_timeout, io_timeout=self.io_timeout, revive=self._revive
        )
        self._apart.append(made)
        return made

    def _open(self, io_timeout: float | None = None) -> RawConnection:
        conn: RawConnection = self._kind(
            **self._options,
            socket_timeout=self.io_timeout if io_timeout is None else io_timeout,
            socket_connect_timeout=self._connect_timeout,
            retry=Retry(NoBackoff(), 0),
            maint_notifications_config=MaintNotificationsConfig(enabled=False),
        )
        self._connect(conn)
        return conn

    def run(self, call: Call[T]) -> T:
        """Execute ``call``; ServerAway when the server is not there, ServerError when it refused."""
        if os.getpid() != self._pid:
            self._after_fork()
        conn = self._take()
        resent, deadline = False, time.monotonic() + self.io_timeout
        try:
            try:
                reply = _talk(conn, call.parts, call.name)
            except (Refused, redis.RedisError, OSError) as problem:
                reply, resent = self._recover(conn, call, problem, deadline)
        except redis.ResponseError as error:
            self._idle.append(conn)
            raise refused_for_good(self.url, call.name, error) from error
        except BaseException:
            conn.disconnect()  # an answer may still be on its way: nobody else may read it
            raise
        self._idle.append(conn)
        return call.decode_again(reply) if resent else call.decode(reply)

    def close(self) -> None:
        """Close every idle connection."""
        while self._idle:
            self._idle.pop().disconnect()
        for one in self._apart:
            one.close()

    def _after_fork(self) -> None:
        self._idle = deque()  # the parent's sockets: neither used nor closed here
        self._pid = os.getpid()

    def _take(self) -> RawConnection:
        while True:
            try:
                conn = self._idle.pop()
            except IndexError:
                return self._open()
            if is_quiet(conn._sock) and (not self._led or is_current(conn)):
                return conn
            conn.disconnect()

    def _connect(self, conn: RawConnection) -> None:
        for attempt in range(2):
            try:
                conn.connect()
                self.opened = next(self._openings)
                return
            except (redis.RedisError, OSError) as error:
                conn.disconnect()
                refused = not_let_in(self.url, error)
                if refused is not None:
                    raise refused from error
                if attempt or not self._worth_another_try(error):
                    raise ServerAway(unreachable(mask_url(self.url), error), executed=False) from error

    def _worth_another_try(self, error: Exception) -> bool:
        if self._revive is not None:
            return self._revive()
        if isinstance(error, redis.TimeoutError):
            return False  # it took all the time there was
        time.sleep(0.05)
        return True

    def _recover(self, conn: RawConnection, call: Call[Any], problem: Exception, deadline: float) -> tuple[Any, bool]:
        """Send again after ``problem``, where that is allowed; the answer, and whether an earlier one was not read."""
        progress: Progress | None = None
        resent = False
        while True:
            if isinstance(problem, Refused):
                progress = progress or Progress(call, self.url, unread=resent)
                error = progress.refused(problem.replies)
                if time.monotonic() > deadline and not progress.only_forgot:
                    raise progress.away(error) from error
                if error_code(error) == "READONLY":
                    self.close()  # who waits idle is connected to the old master too: reads would not notice
                if error_code(error) != "NOSCRIPT":
                    self._reconnect(conn, progress)
            else:
                conn.disconnect()
                if resent or not call.again:
                    raise ServerAway(f"{mask_url(self.url)} did not answer {call.name}: {problem}") from problem
                resent = True
                if progress is not None:
                    progress.unread = True
                try:
                    self._connect(conn)
                except ServerAway as away:
                    away.executed = None  # the first sending may have been
                    raise
            try:
                reply = _talk(conn, call.parts if progress is None else progress.parts, call.name)
            except (Refused, redis.RedisError, OSError) as again:
                problem = again
                continue
            del problem  # its traceback holds this frame
            return (reply if progress is None else progress.finish(reply)), resent

    def _reconnect(self, conn: RawConnection, progress: Progress) -> None:
        """When the server changed its role, its name may lead to the new one now."""
        conn.disconnect()
        time.sleep(0.05)
        try:
            self._connect(conn)
        except ServerAway as away:
            away.executed = progress.executed
            raise


def _talk(conn: RawConnection, parts: Sequence[tuple[Arg, ...]], name: str) -> Any:
    """Send commands in one write and read their answers: one as it is, several as a list. Raises Refused."""
    if len(parts) == 1:
        _send(conn, pieces(parts[0]), name)
        try:
            return conn.read_response(disconnect_on_error=False)
        except redis.RedisError as error:
            if is_answer(error):
                raise Refused([error]) from None
            raise
    _send(conn, [pack_all(parts)], name)
    replies: list[Any] = []
    inside = parts[-1][0] == "EXEC"  # an answer may hold errors
    for _ in parts:
        try:
            replies.append(conn.read_response(disconnect_on_error=False))
        except redis.RedisError as error:
            if not is_answer(error):
                raise
            replies.append(error)  # and read the rest, so that the connection stays in step
            inside = True
    return together(parts, replies) if inside else replies


def _send(conn: RawConnection, packed: list[bytes], name: str) -> None:
    if failpoints.armed:
        failpoints.point(f"{name}:before")
    conn.send_packed_command(packed, check_health=False)
    if failpoints.armed:
        failpoints.executed(name, conn._sock)


def is_quiet(sock: Any) -> bool:
    """Whether an idle socket is open and has nothing to read; the end of the stream counts as something."""
    if sock is None:
        return False
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return not poll.poll(0)
