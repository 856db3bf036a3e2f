"""A machine that sleeps: the clock by which leases are judged goes on, ``time.monotonic()`` stands still."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from henchman.kernel import clock

__all__ = ["sleeping"]


def sleeping(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """From now on this process can sleep: the function that is given back lets it, for so many seconds."""
    real, slept = clock.awake, [0.0]

    def awake() -> float:
        return real() + slept[0]

    def sleep(seconds: float) -> None:
        slept[0] += seconds

    for module in list(sys.modules.values()):
        if module.__name__.startswith("henchman") and vars(module).get("awake") is real:
            monkeypatch.setattr(module, "awake", awake)
    return sleep
