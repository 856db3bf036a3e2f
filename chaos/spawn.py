"""Starts processes that do not outlive the run, however it ends: the kernel kills them when their parent dies.

"Parent" is the thread that started a process, so one thread that lives as long as the run starts them all. Python
ignores SIGXFSZ, and so does what it becomes: a server must refuse, not die, when its file can grow no further.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

__all__ = ["spawn"]

_DIE_WITH_PARENT = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.execv(sys.argv[1], sys.argv[1:])"
_starter = ThreadPoolExecutor(1, "starter")


def spawn(
    command: Sequence[str], log: Path, *, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start ``command`` in a session of its own, as a service manager does: whom it leaves behind has nobody in it.
    What it says is appended to ``log``."""
    return _starter.submit(_spawn, list(command), log, env, cwd).result()


def _spawn(command: list[str], log: Path, env: Mapping[str, str] | None, cwd: Path | None) -> subprocess.Popen[bytes]:
    wrapped = [sys.executable, "-ISc", _DIE_WITH_PARENT, *command] if sys.platform == "linux" else command
    with log.open("ab") as out:
        return subprocess.Popen(  # noqa: S603 - ourselves and the server
            wrapped, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=cwd, env=env, start_new_session=True
        )
