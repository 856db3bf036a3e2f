"""The embedded server: started by the first process that needs it, shared by all, stopped by the last.

Three lock files in its folder: ``turn`` is held only while somebody starts or stops the server; ``users`` is shared by
all who use it; ``server`` is held by the server process itself. The kernel frees each when its holder dies, so a
killed user leaves nothing behind but a server, which the watcher beside it ends (``watch.py``).
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
import urllib.parse
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from henchman.embedded.folder import LockFile, data_bytes, exists, os_errors_explained, prepare, write_private
from henchman.embedded.process import ServerProcess, info, product
from henchman.embedded.watch import watch_over
from henchman.errors import EmbeddedServerError

_TURN_LIMIT = 60.0  # seconds; a turn is taken for one start or one stop, each of them limited


class ServerStatus(NamedTuple):
    """What is known of the embedded server of one folder; None where it is not known."""

    state: Literal["running", "loading", "silent", "stopped"]  # silent: its process lives, but does not answer
    folder: str
    url: str | None
    pid: int | None
    server: str | None  # product and version
    uptime: int | None  # seconds
    users: int | None  # processes that use it now
    kept: bool  # stays up without users, until it is stopped
    data_bytes: int
    log: str

    @property
    def running(self) -> bool:
        """Whether it can be used now, or as soon as it has loaded its data."""
        return self.state in {"running", "loading"}


class EmbeddedServer:
    """The server that lives in ``folder``, as seen by this process. Thread-safe; a forked child is another user."""

    def __init__(
        self, folder: Path, *, binary: str | None = None, report: Callable[[str], None] = lambda line: None
    ) -> None:
        self.folder = Path(os.path.abspath(folder))
        self._process = ServerProcess(self.folder, [binary] if binary else None, report)
        self._turn = LockFile(self.folder / "turn")
        self._users = LockFile(self.folder / "users")
        self._keep = self.folder / "keep"
        self._mutex = threading.RLock()
        self._url: str | None = None
        _SERVERS.add(self)

    def acquire(self) -> str:
        """The URL of the running server, started if need be; from now on this process is a user of it.

        The second call is free and asks nobody. EmbeddedServerError says what to do.
        """
        with self._mutex:
            if self._url is not None and self._users.held:
                return self._url
            return self.ensure()

    def ensure(self) -> str:
        """As ``acquire``, but make sure that it answers: for a user whose connection failed.

        A server that died is started again on the same data. What it had not written yet is lost: as a rule
        nothing, up to two seconds if the disk was slow (that is ``appendfsync everysec``).
        """
        with self._mutex, os_errors_explained(self.folder):
            prepare(self.folder)
            with self._my_turn():
                sock = self._process.answering() or self._process.start()
                if not self._users.held:
                    self._users.lock(shared=True)
                    atexit.register(self.release)
                watch_over(self.folder)
            try:
                self._process.await_data(sock)
            except EmbeddedServerError:
                self._leave()
                raise
            self._url = _url(sock)
            return self._url

    def release(self) -> None:
        """Leave; the last user shuts the server down, unless it was told to stay. Does nothing for one who is no user.

        Never raises: a server that could not be stopped is found by its next user, and one line of the log says why.
        """
        with self._mutex, contextlib.suppress(OSError):
            try:
                ours = self._users.held and self._turn.lock(limit=10.0)
                if ours and self._users.lock() and not self._keep.exists():
                    self._process.shut_down()
            except EmbeddedServerError as error:
                logging.getLogger("henchman").warning("the embedded server goes on: %s", error)
            finally:
                self._leave()
                self._turn.unlock()

    def find(self) -> str | None:
        """The URL if a server is running here (or loading its data); never starts one.

        EmbeddedServerError for a folder that is not this user's alone.
        """
        with os_errors_explained(self.folder):
            sock = self._process.answering() if exists(self.folder) else None
            return None if sock is None else _url(sock)

    def start(self) -> str:
        """Start it, if need be, to stay up without users until ``stop``; the URL."""
        with self._mutex, os_errors_explained(self.folder):
            was_user = self._users.held
            url = self.ensure()
            write_private(self._keep, b"")
            if not was_user:
                self.release()
            return url

    def stop(self, *, force: bool = False) -> bool:
        """Stop it; False when none was running. EmbeddedServerError when others use it and it is not ``force``.

        Users from whom it was taken by force start it again as soon as they need it.
        """
        with self._mutex, os_errors_explained(self.folder):
            if not exists(self.folder):
                return False
            with self._my_turn():
                if not self._process.lives():
                    self._keep.unlink(missing_ok=True)
                    return False
                was_user = self._users.held
                if not self._users.lock() and not force:
                    crowd = self._crowd()
                    if was_user:
                        self._users.lock(shared=True)
                    raise EmbeddedServerError(
                        f"the embedded server in {self.folder} is in use by {crowd}; it stops by itself when the "
                        "last of them leaves, and at once by force (henchman server stop --force)"
                    )
                try:
                    stopped = self._process.shut_down()
                    self._keep.unlink(missing_ok=True)
                finally:
                    self._leave()
            return stopped

    def status(self) -> ServerStatus:
        """What there is to know, without starting or stopping anything; EmbeddedServerError for a folder not ours."""
        with os_errors_explained(self.folder):
            return self._look(self._process.answering() if exists(self.folder) else None)

    def _look(self, sock: Path | None) -> ServerStatus:
        facts: dict[str, str] = {}
        state: Literal["running", "loading", "silent", "stopped"] = "stopped"
        try:
            facts = info(sock, "server") | info(sock, "persistence") if sock else {}
        except OSError:
            facts = {}
        if sock is not None:
            state = "loading" if facts.get("loading") == "1" else "running"
        elif self._process.lives():
            state = "silent"
        return ServerStatus(
            state=state,
            folder=str(self.folder),
            url=None if sock is None else _url(sock),
            pid=int(facts["process_id"])
            if "process_id" in facts
            else (self._process.pid() if state == "silent" else None),
            server=product(facts),
            uptime=int(facts["uptime_in_seconds"]) if "uptime_in_seconds" in facts else None,
            users=self._count_users(),
            kept=self._keep.exists(),
            data_bytes=data_bytes(self.folder),
            log=str(self.folder / "server.log"),
        )

    @contextmanager
    def _my_turn(self) -> Iterator[None]:
        if not self._turn.lock(limit=_TURN_LIMIT):
            raise EmbeddedServerError(
                f"another process has been starting or stopping the server in {self.folder} for {_TURN_LIMIT:g} s; "
                f"find it with: fuser {self._turn.path}"
            )
        try:
            yield
        finally:
            self._turn.unlock()

    def _leave(self) -> None:
        self._users.unlock()
        self._url = None
        atexit.unregister(self.release)

    def _count_users(self) -> int | None:
        """How many hold ``users``, as far as the kernel tells."""
        try:
            inode = str(self._users.path.stat().st_ino)
        except FileNotFoundError:
            return 0
        try:
            lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
        except OSError:
            return None
        holders = [parts for line in lines if (parts := line.split())[1:2] == ["FLOCK"]]
        return sum(1 for parts in holders if parts[3] == "READ" and parts[5].rpartition(":")[2] == inode)

    def _crowd(self) -> str:
        count = self._count_users()
        return "other processes" if not count else "1 process" if count == 1 else f"{count} processes"


def _url(sock: Path) -> str:
    return f"unix://{urllib.parse.quote(str(sock))}?db=0"


def _in_child() -> None:
    for server in list(_SERVERS):
        server._mutex = threading.RLock()  # the thread that may have held it does not exist here
        server._url = None


_SERVERS: weakref.WeakSet[EmbeddedServer] = weakref.WeakSet()
os.register_at_fork(after_in_child=_in_child)
