"""A network in between: a proxy of TCP, a process of its own, that holds back each piece for a time, either way.

    python bench/proxy.py PATH-OF-A-UNIX-SOCKET SECONDS     prints the port at which it listens

Pieces keep their order and pass each other: a long line with a delay, not a slow one.
"""

from __future__ import annotations

import asyncio
import sys

PIECE = 1 << 18


async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float) -> None:
    """Bring what comes to the other side, each piece ``delay`` seconds later."""
    loop = asyncio.get_running_loop()
    while piece := await reader.read(PIECE):
        loop.call_later(delay, writer.write, piece)
    loop.call_later(delay, writer.close)


async def main(path: str, delay: float) -> None:
    """Listen until somebody ends this process."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_unix_connection(path)
        try:
            await asyncio.gather(pipe(reader, forth, delay), pipe(back, writer, delay))
        except ConnectionError:
            writer.close()

    listening = await asyncio.start_server(connected, "127.0.0.1", 0)
    print(listening.sockets[0].getsockname()[1], flush=True)
    await listening.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2])))
