"""The async runner: the same calls, awaited. One pool of connections for each running event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, TypeVar

import redis
from redis.asyncio.connection import Connection, SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from henchman.errors import ServerAway
from henchman.kernel import failpoints
from henchman.kernel.text import mask_url
from henchman.store.call import Arg, Call, adrive
from henchman.store.connection import check_url, is_quiet, pack_all, pieces, read_options, unreachable
from henchman.store.replies import Progress, Refused, error_code, is_answer, not_let_in, refused_for_good, together
from henchman.store.sentinel import Sentinels, World, is_current

T = TypeVar("T")
_parse: Callable[[str], Any] = parse_url


class AsyncSentinelConnection(Connection):
    """A connection to whoever is the master when it connects, within ``socket_connect_timeout`` as a whole."""

    def __init__(self, *, sentinels: Sentinels, **options: Any) -> None:
        super().__init__(**options)
        self.sentinels = sentinels
        self._limit: float = self.socket_connect_timeout or 3.0

    async def connect(self) -> None:
        """See ``Sentinels.connect``."""
        if not self.is_connected:
            up: Any = super()  # redis-py types its connections only by half
            await adrive(lambda step: step(), self.sentinels.connect(self, up.connect, self._limit))


class AsyncSentinelTLSConnection(AsyncSentinelConnection, SSLConnection):
    """As ``AsyncSentinelConnection``, over TLS."""


ASYNC = World(
    Connection,
    SSLConnection,
    AsyncSentinelConnection,
    AsyncSentinelTLSConnection,
    {"protocol": 2, "driver_info": None, "retry": Retry(NoBackoff(), 0)},
    hang_up=lambda conn: asyncio.shield(conn.disconnect(nowait=True)),  # also when the task is cancelled
    sleep=asyncio.sleep,
)


class AsyncConnections:
    """As ``Connections``, awaited. ``revive`` is called in a thread: it may start a server."""

    def __init__(
        self,
        url: str,
        *,
        connect_timeout: float = 3.0,
        io_timeout: float = 5.0,
        revive: Callable[[], bool] | None = None,
    ) -> None:
        self.url = check_url(url)
        self._kind, self._options = read_options(_parse, url, ASYNC)
        self.io_timeout: float = self._options.pop("socket_timeout", None) or io_timeout
        self._connect_timeout = self._options.pop("socket_connect_timeout", None) or connect_timeout
        self._revive = revive
        self._pools: dict[asyncio.AbstractEventLoop, tuple[deque[Any], AsyncGenerator[None]]] = {}
        self._inherited = self._pools
        self._pid = os.getpid()

    async def run(self, call: Call[T]) -> T:
        """Execute ``call``; ServerAway when the server is not there, ServerError when it refused."""
        task = asyncio.current_task()
        asked = task.cancelling() if task is not None else 0
        pool = self._pool()
        conn = await self._take(pool)
        try:
            reply, resent = await self._exchange(conn, call)
        except redis.ResponseError as error:
            pool.append(conn)
            raise refused_for_good(self.url, call.name, error) from error
        except BaseException:  # also a cancelled task: an answer may still be on its way, nobody else may read it
            await asyncio.shield(conn.disconnect(nowait=True))
            raise
        pool.append(conn)
        if task is not None and task.cancelling() > asked:
            raise asyncio.CancelledError  # Python 3.11's wait_for, in which redis-py sends, forgets one that comes late
        return call.decode_again(reply) if resent else call.decode(reply)

    async def close(self) -> None:
        """Close the idle connections of this event loop."""
        pool = self._pool()
        while pool:
            await pool.pop().disconnect()

    def _pool(self) -> deque[Any]:
        if os.getpid() != self._pid:
            self._inherited, self._pools = self._pools, {}  # the parent's sockets: neither used nor closed here
            self._pid = os.getpid()
        loop = asyncio.get_running_loop()
        if loop not in self._pools:
            for ended in [one for one in list(self._pools) if one.is_closed()]:  # and was not shut down properly
                self._pools.pop(ended, None)
            pool: deque[Any] = deque()
            ending = self._at_the_end(loop, pool)
            with contextlib.suppress(StopIteration):
                ending.__anext__().__await__().send(None)  # to its yield: from now on the loop will close it
            self._pools[loop] = pool, ending
        return self._pools[loop][0]

    async def _at_the_end(self, loop: asyncio.AbstractEventLoop, pool: deque[Any]) -> AsyncGenerator[None]:
        """Close the loop's connections when it shuts down its generators, as ``asyncio.run`` does before it ends."""
        try:
            yield
        finally:
            self._pools.pop(loop, None)
            while pool:
                await pool.pop().disconnect()

    async def _take(self, pool: deque[Any]) -> Any:
        while pool:
            conn = pool.pop()
            if _is_open(conn) and is_current(conn):
                return conn
            await conn.disconnect(nowait=True)
        conn = self._kind(
            **self._options,
            protocol=2,
            driver_info=None,
            health_check_interval=0,
            socket_timeout=self.io_timeout,
            socket_connect_timeout=self._connect_timeout,
            retry=Retry(NoBackoff(), 0),
        )
        await self._connect(conn)
        return conn

    async def _connect(self, conn: Any) -> None:
        for attempt in range(2):
            try:
                await conn.connect()
                return
            except (redis.RedisError, OSError) as error:
                await conn.disconnect(nowait=True)
                refused = not_let_in(self.url, error)
                if refused is not None:
                    raise refused from error
                if attempt or not await self._worth_another_try(error):
                    raise ServerAway(unreachable(mask_url(self.url), error), executed=False) from error
            except BaseException:  # a cancelled task
                await asyncio.shield(conn.disconnect(nowait=True))
                raise

    async def _worth_another_try(self, error: Exception) -> bool:
        if self._revive is not None:
            return await asyncio.to_thread(self._revive)
        if isinstance(error, redis.TimeoutError):
            return False  # it took all the time there was
        await asyncio.sleep(0.05)
        return True

    async def _exchange(self, conn: Any, call: Call[Any]) -> tuple[Any, bool]:
        clock = asyncio.get_running_loop().time
        deadline = clock() + self.io_timeout
        progress: Progress | None = None
        resent = False
        while True:
            try:
                reply = await _talk(conn, call.parts if progress is None else progress.parts, call.name)
                return (reply if progress is None else progress.finish(reply)), resent
            except Refused as refused:
                progress = progress or Progress(call, self.url, unread=resent)
                error = progress.refused(refused.replies)
                if clock() > deadline and not progress.only_forgot:
                    raise progress.away(error) from error
                if error_code(error) == "READONLY":
                    await self.close()  # who waits idle is connected to the old master too: reads would not notice
                if error_code(error) != "NOSCRIPT":
                    await self._reconnect(conn, progress)
            except (redis.RedisError, OSError) as problem:
                await conn.disconnect(nowait=True)
                if resent or not call.again:
                    raise ServerAway(f"{mask_url(self.url)} did not answer {call.name}: {problem}") from problem
                resent = True
                if progress is not None:
                    progress.unread = True
                try:
                    await self._connect(conn)
                except ServerAway as away:
                    away.executed = None  # the first sending may have been
                    raise

    async def _reconnect(self, conn: Any, progress: Progress) -> None:
        await conn.disconnect(nowait=True)
        await asyncio.sleep(0.05)
        try:
            await self._connect(conn)
        except ServerAway as away:
            away.executed = progress.executed
            raise


async def _talk(conn: Any, parts: Sequence[tuple[Arg, ...]], name: str) -> Any:
    if len(parts) == 1:
        await _send(conn, pieces(parts[0]), name)
        try:
            return await conn.read_response(disconnect_on_error=False)
        except redis.RedisError as error:
            if is_answer(error):
                raise Refused([error]) from None
            raise
    await _send(conn, [pack_all(parts)], name)
    replies: list[Any] = []
    for _ in parts:
        try:
            replies.append(await conn.read_response(disconnect_on_error=False))
        except redis.RedisError as error:
            if not is_answer(error):
                raise
            replies.append(error)  # and read the rest, so that the connection stays in step
    return together(parts, replies)


async def _send(conn: Any, packed: list[bytes], name: str) -> None:
    if failpoints.armed:
        failpoints.point(f"{name}:before")
    await conn.send_packed_command(packed, check_health=False)
    if failpoints.armed:
        failpoints.executed(name, conn._writer.get_extra_info("socket"))


def _is_open(conn: Any) -> bool:
    """Whether an idle connection can be used; asked of the socket, for the loop may not have seen the end yet."""
    if not conn.is_connected or conn._reader.at_eof():
        return False
    sock = conn._writer.get_extra_info("socket")
    return sock is not None and is_quiet(sock.fileno() if sock.fileno() >= 0 else None)
