"""Attacks on who writes history: the recorder that leads is stopped past its lease, or killed, with work to do."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Any

from field import Field, until
from ledger import wall
from server import alive, state_of

__all__ = ["kill_recorder", "stop_recorder"]

LEASE = 10.0  # of a recorder
PATIENCE = 20.0  # seconds for one that leads, lives and has something to write
TAKEN = 40.0  # seconds for another to lead: the lease, the pause between two tries, and a group that starts anew
Told = tuple[int, str]


def _named(field: Field) -> int:
    """The process that has the lease; 0 when nobody has."""
    name: Any = field.redis.get("hm:recorder")
    return int(name.decode().split(":")[1]) if name else 0


def _leader(field: Field) -> int:
    """The process that leads; 0 when there is none, or it does not run just now."""
    pid = _named(field)
    try:
        ours = pid and b"henchman.supervisor.history_main" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        ours = False
    return pid if ours and state_of(pid) in ("R", "S", "D") else 0


def _freeze(field: Field, pid: int, stop: bool) -> None:
    """Stop a process, so that no other attack lets it go on; or let it go on."""
    for group in field.groups:
        (group.frozen.add if stop else group.frozen.discard)(pid)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP if stop else signal.SIGCONT)


def _held(field: Field) -> tuple[int, int]:
    """A recorder that leads, stopped with entries in the stream, and how many those are; (0, 0) when none was met."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and not field.stopping.is_set():
        pid = until(lambda: _leader(field), 1.0)
        if pid:
            _freeze(field, pid, True)
            waiting = until(lambda: field.redis.xlen("hm:history") if _named(field) == pid else 0, 0.0) or 0  # noqa: B023
            if waiting:
                return pid, int(waiting)
            _freeze(field, pid, False)
        field.sleep(0.05)
    return 0, 0


def stop_recorder(field: Field) -> Told:
    """SIGSTOP of the recorder that leads, past its lease and until another leads; then SIGCONT: it goes on where it
    was, with what it had read."""
    pid, waiting = _held(field)
    if not pid:
        return 0, "no recorder had anything to write"
    began = time.monotonic()
    try:
        field.sleep(LEASE + 2.0)
        other = until(lambda: _named(field) not in (0, pid), TAKEN - LEASE)
    finally:
        _freeze(field, pid, False)
    seconds = time.monotonic() - began
    return int(
        bool(other)
    ), f"process {pid} for {seconds:.0f} s, {waiting} entries to write, another led: {bool(other)}"


def kill_recorder(field: Field) -> Told:
    """kill -9 of the recorder that leads, with entries to write."""
    pid, waiting = _held(field)
    if not pid:
        return 0, "no recorder had anything to write"
    at = wall()
    os.kill(pid, signal.SIGKILL)
    _freeze(field, pid, False)
    until(lambda: not alive(pid), 5)
    field.window("kill", at, wall(), [pid])
    return waiting, f"process {pid}, {waiting} entries to write"
