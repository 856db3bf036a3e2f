"""The one server process that has the data of a folder: found, started, waited for, stopped.

Whoever starts or stops it must be the only one to do so at that moment (``embedded.py`` sees to that).

Folder and server are bound to each other: the server process holds the lock ``server`` (which no copy of the folder
has), and the random id of its start stands in the folder's ``server.id`` and in the server's own settings. A server
that answers where the note ``socket`` points, and is not so bound, is another's: neither used nor stopped.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from henchman.embedded.folder import (
    choose_socket,
    disk_full,
    record_socket,
    recorded_socket,
    sync,
    write_private,
)
from henchman.embedded.lock import LockFile
from henchman.embedded.start import ANSWER_LIMIT, ID_MARK, explain, find_binaries, launch
from henchman.embedded.talk import ask, info, listener
from henchman.embedded.writer import note_writer, readers
from henchman.errors import EmbeddedServerError

WRITE_LIMIT = 3.0  # seconds for a server that could not write to do so; it tries each second
REPORT_EACH = 1.0  # seconds between two words on how a loading gets on


def product(facts: dict[str, str]) -> str | None:
    """The server's name and version as ``INFO server`` has them: ``valkey 9.1.2``."""
    version = facts.get("valkey_version") or facts.get("redis_version")
    return f"{facts.get('server_name', 'redis')} {version}" if version else None


class ServerProcess:
    """The server process of ``folder``, whoever started it. ``report`` is told how a long loading gets on."""

    def __init__(self, folder: Path, binaries: Sequence[str] | None, report: Callable[[str], None]) -> None:
        self.folder = folder
        self.binaries = binaries
        self.report = report

    def answering(self) -> Path | None:
        """The socket on which the server of this folder answers, be it only that it is loading; no other server's."""
        if not self.lives():
            return None
        noted = recorded_socket(self.folder)
        for sock in dict.fromkeys((noted, self.folder / "sock")):  # the note may be forged, or the folder moved
            if sock is not None and self._is_ours(sock):
                if sock != noted:
                    record_socket(self.folder, sock)
                return sock
        return None

    def _is_ours(self, sock: Path) -> bool:
        try:
            title = ask(sock, "CONFIG", "GET", "proc-title-template")
            if ID_MARK in title:
                return title.rpartition(ID_MARK)[2] == (self.folder / "server.id").read_text(encoding="ascii")
            home = ask(sock, "CONFIG", "GET", "dir").partition("\n")[2]  # started by a version that gave no id
            return os.path.samefile(home, self.folder)
        except (OSError, ValueError):
            return False

    def start(self) -> Path:
        """In our turn, nobody answering: wait for a process that still has the data, then launch one."""
        alive = LockFile(self.folder / "server")
        end, told_to_go = time.monotonic() + ANSWER_LIMIT, False
        while not alive.lock(limit=1.0):
            sock = self.answering()
            if sock is not None:
                return sock
            if not told_to_go:
                told_to_go = self._end_unreachable()
            if time.monotonic() >= end:
                raise EmbeddedServerError(
                    f"a server process (pid {self.pid() or 'unknown'}) has the data in {self.folder}, but has not "
                    f"answered for {ANSWER_LIMIT:g} s; is it stopped, or on another host? If it hangs, end it: kill -9"
                )
        try:
            binaries = readers(self.folder, self.binaries or find_binaries())
            start_id = os.urandom(16).hex()
            write_private(self.folder / "server.id", start_id.encode())
            sock = choose_socket(self.folder, start_id[:16])
            launch(self.folder, sock, alive, binaries, start_id)
        finally:
            alive.let_go()  # the server has it, or nobody
        return sock

    def _end_unreachable(self) -> bool:
        """A server whose socket was removed (a cleaned /tmp) can be reached by nobody: let it save and go."""
        sock, pid = recorded_socket(self.folder), self.pid()
        if sock is None or pid is None:
            return False
        try:
            if listener(sock) in {0, pid}:
                return False  # it is only slow
        except OSError:
            pass
        if disk_full(self.folder):
            return False  # it could not save
        try:  # the number may be another process's by now: only one that works in our folder is ours
            if os.path.samefile(f"/proc/{pid}/cwd", self.folder):
                os.kill(pid, signal.SIGTERM)
                return True
        except OSError:
            pass
        return False

    def await_data(self, sock: Path) -> None:
        """Wait until the server has loaded its data, for as long as it gets on with it."""
        seen, since, reported = "", time.monotonic(), time.monotonic()
        while True:
            try:
                if not ask(sock, "PING").startswith("-LOADING"):
                    note_writer(self.folder, product(info(sock, "server")) or "")
                    return
                facts = info(sock, "persistence")
            except OSError as error:
                facts = {}
                if not self.lives():
                    raise EmbeddedServerError(
                        explain(self.folder, f"it ended while it loaded its data ({error})")
                    ) from None
            now, done = time.monotonic(), facts.get("loading_loaded_bytes", seen)
            if done != seen:
                seen, since = done, now
            if now - since > ANSWER_LIMIT:
                raise EmbeddedServerError(explain(self.folder, f"loading its data stands still at byte {seen or 0}"))
            if now - reported >= REPORT_EACH:
                self.report(f"the embedded server loads its data: {facts.get('loading_loaded_perc', '?')} %")
                reported = now
            time.sleep(0.01)

    def shut_down(self) -> bool:
        """In our turn: end the server and wait until its process is gone; False when there was none.

        EmbeddedServerError when it does not go, and, before it is asked to, when it cannot write what it accepted.
        """
        sock = self.answering()
        if sock is None and not self.lives():
            return False
        said = ""
        if sock is not None:
            self._await_written(sock)
            try:
                said = ask(sock, "SHUTDOWN", limit=ANSWER_LIMIT)
            except TimeoutError:
                said = "no answer"
            except OSError:
                said = ""  # it hung up, or was gone before
        gone = LockFile(self.folder / "server")
        if said or not gone.lock(limit=min(5.0, ANSWER_LIMIT) if sock is None else ANSWER_LIMIT):
            raise EmbeddedServerError(
                f"the server in {self.folder} (pid {self.pid() or 'unknown'}) does not stop: {said or 'no answer'}; "
                f"its log is {self.folder / 'server.log'}; the last resort is: kill -9"
            )
        gone.unlock()
        return True

    def _await_written(self, sock: Path) -> None:
        """Until all that was accepted is on disk, and accept no more; a server that shuts down does not mind.

        One that could not write its file keeps what it accepted in memory and tries again each second.
        """
        try:
            ask(sock, "CLIENT", "PAUSE", str(int(ANSWER_LIMIT * 1000)), "WRITE")
            since = time.monotonic()
            while (facts := info(sock, "persistence")).get("loading") != "1":
                ok = facts.get("aof_last_write_status", "ok") == "ok"
                if ok and facts.get("aof_buffer_length", "0") == "0":
                    sync(self.folder)
                    return
                if time.monotonic() - since > (ANSWER_LIMIT if ok else WRITE_LIMIT):
                    raise OSError(28, "it could not write what it accepted", str(sock))
                time.sleep(0.02)
        except OSError as error:
            with contextlib.suppress(OSError):
                ask(sock, "CLIENT", "UNPAUSE")
            if not self.lives():
                return
            reason = "the disk is full" if disk_full(self.folder) else error.strerror or str(error)
            raise EmbeddedServerError(
                f"the embedded server in {self.folder} (pid {self.pid() or 'unknown'}) was not stopped: its "
                f"append-only file cannot be written ({reason}), and jobs that it accepted may be only in its memory; "
                f"free some space there, then stop it (henchman server stop); its log is {self.folder / 'server.log'}; "
                "the last resort, which loses them, is: kill -9"
            ) from error

    def lives(self) -> bool:
        """Whether a server process holds the data, asked without standing in its way."""
        probe = LockFile(self.folder / "server", make=False)
        try:
            free = probe.lock(shared=True)
        except FileNotFoundError:
            return False
        probe.unlock()
        return not free

    def pid(self) -> int | None:
        try:
            return int((self.folder / "server.pid").read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None
