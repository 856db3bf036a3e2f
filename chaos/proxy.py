"""A TCP proxy between clients and the server, in a thread of the run: it cuts, swallows answers and delivers late.

Each route is a port of its own, for one group of processes, so that a network can break for some and not for others.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

__all__ = ["Proxy", "Route"]

T = TypeVar("T")
MOVES = (b"EVALSHA", b"EVAL", b"LPUSH", b"BLMOVE", b"BZPOPMIN")  # what changes something: whose answer is worth losing


class Link:
    """One connection through a route: its two ends, and what is being done to it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.client, self.to_client = reader, writer
        self.client_port = int(writer.get_extra_info("peername")[1])
        self.server: asyncio.StreamReader | None = None
        self.to_server: asyncio.StreamWriter | None = None
        self.server_port = 0
        self.asked = b""  # the last command
        self.late: asyncio.Event | None = None  # its bytes are kept back until this is set
        self.late_bytes = 0

    def abort(self) -> None:
        for writer in (self.to_client, self.to_server):
            if writer is not None:
                writer.transport.abort()


class Route:
    """One port. Its methods run in the proxy's loop; others call them through ``Proxy.call``."""

    def __init__(self, port: int, upstream: int) -> None:
        self.port, self.upstream = port, upstream
        self.links: set[Link] = set()
        self.drop = 0  # so many answers are swallowed from now on
        self.dropped = 0
        self.swallows = b""  # answers to a command that holds this are swallowed
        self.swallowed = 0
        self.delay = 0.0  # seconds that every answer takes on its way from now on
        self.delayed = 0
        self.delivered_late = 0
        self.open = asyncio.Event()
        self.open.set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self) -> None:
        """Accept connections (again)."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def cut(self) -> None:
        """Every connection breaks; new ones are refused until ``listen``."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for link in list(self.links):
            link.abort()

    async def silence(self, silent: bool) -> None:
        """Bytes stop on their way, in both directions; or flow again, those that stood there first."""
        (self.open.clear if silent else self.open.set)()

    async def hold(self, ports: Iterable[int]) -> list[Link]:
        """Keep back what the clients on these ports send, and deliver it even when they are dead: ``release``."""
        wanted = set(ports)
        held = [link for link in self.links if link.client_port in wanted]
        for link in held:
            link.late = asyncio.Event()
        return held

    async def release(self, held: Iterable[Link]) -> int:
        """Deliver what was kept back; how many bytes."""
        links = list(held)
        for link in links:
            if link.late is not None:
                link.late.set()
        return sum(link.late_bytes for link in links)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = Link(reader, writer)
        self.links.add(link)
        try:
            link.server, link.to_server = await asyncio.open_connection("127.0.0.1", self.upstream)
            link.server_port = int(link.to_server.get_extra_info("sockname")[1])
            back = asyncio.create_task(self._answers(link))
            self._tasks.add(back)
            back.add_done_callback(self._tasks.discard)
            await self._requests(link)
            back.cancel()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self.links.discard(link)
            link.abort()

    async def _requests(self, link: Link) -> None:
        to_server = link.to_server
        assert to_server is not None  # noqa: S101 - connected by the caller
        held = bytearray()
        while True:
            try:
                data = await link.client.read(65536)
            except OSError:
                data = b""
            if link.late is not None and not link.late.is_set():
                held += data
                link.late_bytes = len(held)
                if data:
                    continue
                await link.late.wait()
            if held:
                to_server.write(bytes(held))
                held.clear()
                await to_server.drain()
                if not data:
                    await asyncio.sleep(6.0)  # the server goes on answering somebody who is dead
            if not data:
                return
            await self.open.wait()
            link.asked = data[:64]
            to_server.write(data)
            await to_server.drain()

    async def _answers(self, link: Link) -> None:
        assert link.server is not None  # noqa: S101 - connected by the caller
        with contextlib.suppress(OSError):
            while data := await link.server.read(65536):
                if self.swallows and self.swallows in link.asked:
                    self.swallowed += 1
                    break
                if self.drop > 0 and any(word in link.asked for word in MOVES):
                    self.drop -= 1
                    self.dropped += 1
                    break
                if self.delay:
                    self.delayed += 1
                    await asyncio.sleep(self.delay)
                await self.open.wait()
                if link.to_client.is_closing():
                    continue  # the client is dead, and what it sent is still being executed
                link.to_client.write(data)
                with contextlib.suppress(ConnectionError):
                    await link.to_client.drain()
        link.abort()


class Proxy:
    """The thread with its routes."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self.routes: list[Route] = []

    def add(self, port: int, upstream: int) -> Route:
        """Open a route from ``port`` to ``upstream``."""

        async def make() -> Route:
            route = Route(port, upstream)
            await route.listen()
            return route

        route: Route = self.call(make)
        self.routes.append(route)
        return route

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run a coroutine function of a route in the proxy's loop; its result."""
        return asyncio.run_coroutine_threadsafe(function(*args), self._loop).result(60.0)

    def close(self) -> None:
        """Cut everything and end the thread."""
        for route in self.routes:
            self.call(route.cut)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5.0)
