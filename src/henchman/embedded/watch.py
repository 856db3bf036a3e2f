"""The watcher beside the embedded server: ends it when its last user was killed and so could not.

It is a process of its own (``python -I -S``, nothing imported but this room), detached, without any file of those who
started it and without a connection. Once a second it takes ``turn``, as everyone does who starts or stops the server,
and tries ``users``: while somebody holds that (a suspended process too), the server stays. It goes with the server.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from henchman.embedded.folder import LockFile
from henchman.embedded.process import ServerProcess
from henchman.errors import EmbeddedServerError

EACH = 1.0  # seconds between two looks
AFTER_REFUSAL = 5.0  # seconds: its file cannot be written, and a look holds up those who start
# The package without what its front door loads, none of which is needed here.
_PROGRAM = """
import sys, types
sys.modules["henchman"] = henchman = types.ModuleType("henchman")
henchman.__path__ = [sys.argv[1]]
from henchman.embedded.watch import main
main()
"""


def watch_over(folder: Path) -> None:
    """In our turn, a server running: start a watcher, unless there is one, or no Python to run it."""
    there = LockFile(folder / "watcher")
    free = there.lock()
    there.unlock()
    python = _python() if free else None
    if python is None:
        return
    package = str(Path(__file__).parents[1])
    with (folder / "server.log").open("ab") as log:
        subprocess.run(  # noqa: S603 - this Python, and a shell that leaves it to itself
            ["/bin/sh", "-c", '"$@" &', "sh", python, "-I", "-S", "-c", _PROGRAM, package, str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
            cwd="/",
            umask=0o077,
            check=False,
        )


def _python() -> str | None:
    """A Python of our version: in a program that embeds one, ``sys.executable`` is that program."""
    name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    for path in (sys.executable, os.path.join(sys.prefix, "bin", name), shutil.which(name)):
        if path and os.path.basename(path).startswith(("python", "pypy")) and os.access(path, os.X_OK):
            return path
    return None


def main() -> None:
    """The body of the watcher's process; its last argument is the folder."""
    _Watcher(Path(sys.argv[-1])).run()


class _Watcher:
    """Makes no file: the folder may be on its way out."""

    def __init__(self, folder: Path) -> None:
        self._process = ServerProcess(folder, (), lambda line: None)
        self._keep = folder / "keep"
        self._mine, self._turn, self._users = (
            LockFile(folder / name, make=False) for name in ("watcher", "turn", "users")
        )

    def run(self) -> None:
        """Until there is no server to watch, or another watches it."""
        said = ""
        try:
            if not self._mine.lock():
                return
            while True:
                pause = EACH
                try:
                    if self._look():
                        return
                except EmbeddedServerError as error:
                    pause = AFTER_REFUSAL
                    if str(error) != said:
                        said = str(error)
                        print(f"henchman: {said}", file=sys.stderr, flush=True)
                time.sleep(pause)
        except FileNotFoundError:
            return  # the folder was removed

    def _look(self) -> bool:
        """End the server if it has no user; whether there is none now. Then, still in our turn, the watch is over."""
        if not self._turn.lock():
            return False
        try:
            if self._process.lives():
                if self._keep.exists() or not self._users.lock():
                    return False
                self._process.shut_down()
            self._mine.unlock()
            return True
        finally:
            self._users.unlock()
            self._turn.unlock()
