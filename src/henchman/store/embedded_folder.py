"""The folder in which the embedded server lives: made safely, and with a socket that every process finds.

A Unix socket's path may have about 100 bytes, and some shared folders cannot hold one. Then the socket goes to a short
private directory. Which path was chosen is written into the folder, so that processes with another environment find it.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from henchman.errors import EmbeddedServerError

__all__ = ["WAY_OUT", "choose_socket", "data_bytes", "default_folder", "prepare", "recorded_socket", "told"]

WAY_OUT = "or set REDIS_URL to a server of your own"
_ROOT_MARKS = ("pyproject.toml", "henchman.toml", ".git")
_SOCKET_MAX = 103  # bytes; Linux allows 107, macOS 103


def default_folder(start: Path | None = None) -> Path:
    """``.henchman`` of the project: of the nearest parent with a pyproject.toml, henchman.toml or .git, else here."""
    here = Path(os.path.abspath(start or Path.cwd()))
    for folder in (here, *here.parents):
        if any((folder / mark).exists() for mark in _ROOT_MARKS):
            return folder / ".henchman"
    return here / ".henchman"


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


def prepare(folder: Path) -> None:
    """Make ``folder`` ours alone (0700, kept out of git); EmbeddedServerError or OSError when it cannot be."""
    try:
        folder.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        if not folder.is_dir():
            raise NotADirectoryError(20, "it is a file, not a folder", str(folder)) from None
    facts = folder.stat()
    if facts.st_uid != os.geteuid():
        raise EmbeddedServerError(
            f"{folder} belongs to user {_user(facts.st_uid)}, and this process runs as {_user(os.geteuid())}; "
            f"run it as {_user(facts.st_uid)}, choose another folder, {WAY_OUT}"
        )
    turn, ignore = folder / "turn", folder / ".gitignore"
    if not turn.exists():
        if (
            folder.name != ".henchman" and any(folder.iterdir()) and not turn.exists()
        ):  # looked at twice: others start too
            raise EmbeddedServerError(f"{folder} has other files in it; give the embedded server a folder of its own")
        turn.touch(0o600)
    if stat.S_IMODE(facts.st_mode) & 0o077:
        folder.chmod(0o700)
    if not ignore.exists():
        ignore.write_text("*\n", encoding="ascii")


def choose_socket(folder: Path) -> Path:
    """A path on which a server can listen, recorded in the folder. Only while no server lives there."""
    path = folder / "sock"
    if not _can_listen(path):
        name = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
        path = _short_dir() / f"{name}.sock"
        if not _can_listen(path):
            raise EmbeddedServerError(f"no Unix socket can be made at {path}; set TMPDIR to a short path, {WAY_OUT}")
    fresh = folder / "socket.new"
    fresh.write_bytes(os.fsencode(path))
    fresh.replace(folder / "socket")
    return path


def recorded_socket(folder: Path) -> Path | None:
    """The path that the last start chose, whether or not a server listens there now."""
    try:
        return Path(os.fsdecode((folder / "socket").read_bytes()))
    except OSError:
        return None


def data_bytes(folder: Path) -> int:
    """What the append-only file takes on disk."""
    files = [*folder.glob("appendonlydir/*"), *folder.glob("*.aof"), *folder.glob("*.rdb")]
    return sum(file.stat().st_size for file in files if file.is_file())


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
