"""``sentinel://`` for async code: as ``sentinel.py``, awaited."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import redis
from redis.asyncio.connection import Connection, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from henchman.store.sentinel import PAUSE, Host, Sentinels, World, for_good, not_master, too_late

__all__ = ["ASYNC"]


class AsyncSentinelConnection(Connection):
    """A connection to whoever is the master when it connects, within ``socket_connect_timeout`` as a whole."""

    def __init__(self, *, sentinels: Sentinels, **options: Any) -> None:
        super().__init__(**options)
        self.sentinels = sentinels
        self._limit: float = self.socket_connect_timeout or 3.0

    async def connect(self) -> None:
        """Ask, connect, ask the server itself; again while a failover may be under way."""
        if self.is_connected:
            return
        up: Any = super()  # redis-py types its connections only by half
        end = time.monotonic() + self._limit
        while True:
            try:
                self.host, self.port = await self._find(max(end - time.monotonic(), PAUSE))
                self.socket_connect_timeout = max(end - time.monotonic(), PAUSE)
                await up.connect()
                await self._check_role()
                self.sentinels.found = (self.host, self.port)
                return
            except redis.RedisError as error:
                await self.disconnect(nowait=True)
                if for_good(error):
                    raise
                if time.monotonic() + PAUSE > end:
                    raise too_late(error) from error
            await asyncio.sleep(PAUSE)

    async def _find(self, limit: float) -> Host:
        said: list[tuple[Host, Exception | None]] = []
        for host, conn in self.sentinels.lines(limit):
            try:
                await conn.connect()
                await conn.send_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.sentinels.name)
                answer = await conn.read_response()
            except (redis.RedisError, OSError) as error:
                said.append((host, error))
                continue
            finally:
                await asyncio.shield(conn.disconnect(nowait=True))
            if answer:
                self.sentinels.answered(host)
                return answer[0].decode(), int(answer[1])
            said.append((host, None))
        raise self.sentinels.nobody(said)

    async def _check_role(self) -> None:
        try:
            await self.send_command("ROLE")
            role = (await self.read_response())[0]
        except redis.ResponseError:
            return  # this user may not ask: a replica says so at the first write
        if role != b"master":
            raise not_master(self.host, self.port, role)


class AsyncSentinelTLSConnection(AsyncSentinelConnection, SSLConnection):
    """As ``AsyncSentinelConnection``, over TLS."""


ASYNC = World(
    Connection,
    SSLConnection,
    AsyncSentinelConnection,
    AsyncSentinelTLSConnection,
    {"protocol": 2, "driver_info": None, "retry": Retry(NoBackoff(), 0)},
)
