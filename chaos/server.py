"""The server that is attacked: a process of our own on a TCP port, with its append-only file synced at each write.

``appendfsync always``, because the judged promise is "accepted is not lost": with ``everysec`` a server that dies
with its machine may forget its last second, and no client can know.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import resource
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from clocks import Clock
from redis import Redis, RedisError
from spawn import spawn

from henchman.embedded.process import find_binaries

__all__ = ["PASSWORD", "PRODUCER", "WORKER", "Server", "free_port"]

WAITS = ("blmove", "bzpopmin")
WORKER, PRODUCER, PASSWORD = "worker", "producer", "chaos"
RIGHTS = Path(__file__).parents[1] / "docs" / "rights.md"  # the lines to copy


#: below those that the system gives to outgoing connections: one of them would take the place of a server that is down
_ports = itertools.count(10_000 + os.getpid() % 100 * 200)


def free_port() -> int:
    """A TCP port that nobody listens on."""
    for port in _ports:
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("no port is free")


class Server:
    """One server with its data in ``folder``; it can be killed and started again. ``clock``: what it takes for the
    time; None: it has the machine's."""

    def __init__(self, folder: Path, *args: str, clock: Clock | None = None) -> None:
        folder.mkdir(exist_ok=True)
        users = [f"user {role} on >{PASSWORD} {_smallest(role)}\n" for role in (WORKER, PRODUCER)]
        (folder / "users.acl").write_text("".join(["user default on nopass ~* &* +@all\n", *users]))
        self.clock = clock
        self.folder = folder
        self.port = free_port()
        self._args = args
        self._process: subprocess.Popen[bytes] | None = None
        self.redis: Redis = Redis(port=self.port, socket_timeout=10.0)

    @property
    def pid(self) -> int:
        """The server's process; 0 before its start."""
        return self._process.pid if self._process else 0

    def start(self) -> None:
        """Start it and wait until it answers with its data loaded."""
        command = [
            *(find_binaries()[0], "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)),
            *("--save", "", "--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction"),
            *("--auto-aof-rewrite-percentage", "0", "--enable-debug-command", "no"),
            *("--aclfile", str(self.folder / "users.acl"), *self._args),
        ]
        env = os.environ | self.clock.env if self.clock else None
        self._process = spawn(command, self.folder / "log", env=env)
        end = time.monotonic() + 90
        while time.monotonic() < end and self._process.poll() is None:
            try:
                if self.redis.ping():
                    return
            except (RedisError, OSError):
                time.sleep(0.01)  # between two looks at the fact we wait for
        raise RuntimeError(f"the server did not start: {(self.folder / 'log').read_text(errors='replace')[-1500:]}")

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(60)

    def errors(self, code: str) -> int:
        """How often the server has answered with the error ``code`` since its start."""
        found: dict[str, Any] = self.redis.info("errorstats")
        return int(found.get(f"errorstat_{code}", {}).get("count", 0))

    def limit_files(self, full: bool) -> None:
        """``full``: its append-only file can grow no further, as on a full disk; else it can again."""
        sizes = [path.stat().st_size for path in self.folder.glob("appendonlydir/*incr.aof")]
        hard = resource.prlimit(self.pid, resource.RLIMIT_FSIZE)[1]
        most = max(sizes, default=0) if full else hard
        resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (most, hard))

    def stop(self) -> None:
        """End it."""
        self.redis.close()
        self.kill()

    def waiting_ports(self) -> set[int]:
        """The ports of the clients that wait for a push now."""
        rows: list[dict[str, str]] = self.redis.client_list()
        return {int(row["addr"].rpartition(":")[2]) for row in rows if "b" in row["flags"] and row["cmd"] in WAITS}


def _smallest(role: str) -> str:
    """The rights of a user as the documentation gives them."""
    found = re.search(rf"^ACL SETUSER {role} on >PASSWORD (.+)$", RIGHTS.read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        raise RuntimeError(f"{RIGHTS} names no rights of a {role}")
    return found[1]


def alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    return state_of(pid) not in ("", "Z", "X")


def state_of(pid: int) -> str:
    """R, S, T, Z…; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return ""


def ports_of(pid: int) -> set[int]:
    """The local TCP ports of a process."""
    inodes = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(fd)
        except OSError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[9] in inodes}
