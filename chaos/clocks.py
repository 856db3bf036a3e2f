"""Wrong clocks: every host of the run has a wall clock of its own, below its processes, which an attack may step.

It takes libfaketime; without it clocks are right, and the verdict says which attacks it left out.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from support.faketime import WrongClock, faketime_missing

__all__ = ["READ_AGAIN", "Clock", "faketime_missing"]

READ_AGAIN = 1.0  # seconds until a process sees that its clock was stepped: at each look it would cost 20 µs


class Clock:
    """The wall clock of a host; ``ahead`` seconds ahead of the machine's."""

    def __init__(self, file: Path) -> None:
        self._clock = None if faketime_missing else WrongClock(file)

    @property
    def ahead(self) -> float:
        return self._clock.ahead if self._clock else 0.0

    def step(self, ahead: float) -> None:
        """Be ``ahead`` seconds ahead from now on."""
        if self._clock is not None:
            self._clock.set(ahead)

    @property
    def env(self) -> dict[str, str]:
        """What to put into the environment of the host's processes."""
        if self._clock is None:
            return {}
        kept = {name: value for name, value in self._clock.env.items() if name != "FAKETIME_NO_CACHE"}
        return kept | {"FAKETIME_CACHE_DURATION": f"{READ_AGAIN:.0f}"}


def is_faked(pid: int) -> bool:
    """Whether a process has such a clock."""
    try:
        return "libfaketime" in Path(f"/proc/{pid}/maps").read_text(errors="replace")
    except OSError:
        return False


def server_ahead(redis: object) -> float:
    """How far the clock of the server is ahead of ours."""
    seconds, micros = redis.time()  # type: ignore[attr-defined]
    return float(seconds + micros / 1e6 - time.time())
