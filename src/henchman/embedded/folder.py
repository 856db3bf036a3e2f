"""The folder in which the embedded server lives: made safely, and with a socket that every process finds.

It is this user's alone, with all that is in it, and nothing in it is a link: else whoever made the link or the file
could read the jobs, or lead them elsewhere.

A Unix socket's path may have about 100 bytes, and some shared folders cannot hold one. Then the socket goes to a short
private directory. Which path was chosen is written into the folder, so that processes with another environment find it.
"""

from __future__ import annotations

import os
import pwd
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from henchman.errors import EmbeddedServerError

WAY_OUT = "or set REDIS_URL to a server of your own"
_SOCKET_MAX = 103  # bytes; Linux allows 107, macOS 103


@contextmanager
def told(folder: Path) -> Iterator[None]:
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
    for path in _data(folder):
        with path.open("rb") as file:
            os.fsync(file.fileno())


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
