"""Hosts whose clocks are two hours off, and a server whose clock steps while it runs."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from support.faketime import HOUR, WrongClock, needs_faketime
from support.server import PrivateServer, running_server
from support.worker import until

pytestmark = needs_faketime


def test_a_wrong_clock_is_the_wall_clock_alone(tmp_path: Path) -> None:
    clock = WrongClock(tmp_path / "clock", 2 * HOUR)
    code = "import time; print(time.time(), time.monotonic())"
    told = subprocess.run([sys.executable, "-c", code], env=clock.env, capture_output=True, text=True, check=True)
    wall, monotonic = map(float, told.stdout.split())
    assert abs(wall - time.time() - 2 * HOUR) < 60
    assert abs(monotonic - time.monotonic()) < 60


def test_a_servers_clock_can_be_stepped_while_it_runs(tmp_path: Path) -> None:
    clock = WrongClock(tmp_path / "clock")
    with running_server(clock=clock) as server:
        for ahead in (0.0, -5 * HOUR, 2 * HOUR):
            clock.set(ahead)
            until(lambda ahead=ahead: abs(_time_of(server) - time.time() - ahead) < 60, "the server's clock is stepped")  # type: ignore[misc]


def _time_of(server: PrivateServer) -> float:
    return float(server.ask("EVAL", "return redis.call('TIME')[1]", "0"))
