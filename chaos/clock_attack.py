"""Attacks on clocks: of the server, whose time is stored and compared; of workers and of producers, whose time
must not matter."""

from __future__ import annotations

from clocks import is_faked, server_ahead
from field import Field, until
from groups import Group
from ledger import wall

__all__ = ["step_producer", "step_server_back", "step_server_on", "step_workers"]

HOUR, DAY = 3600.0, 86_400.0
FAR = (2 * HOUR, -2 * HOUR, 400 * DAY, -400 * DAY, -5 * HOUR, 30.0)
SEEN = 10.0  # seconds for a process to see that its clock was stepped
STEP = (20.0, 60.0)  # seconds: more than any lease of the run, less than its end waits for
LASTS = 5.0
NEAR = 0.5  # seconds: what a reading may be off by
Told = tuple[int, str]


def step_workers(field: Field, group: Group) -> Told:
    """The clock of a host is stepped, far on or far back, and stays wrong until its next turn."""
    ahead = field.chance.choice([one for one in FAR if one != group.clock.ahead])
    group.clock.step(ahead)
    field.sleep(1.0)
    faked = [pid for pid in group.workers if is_faked(pid)]
    return len(faked), f"group {group.number}, {len(faked)} processes, now {ahead:+.0f} s"


def step_producer(field: Field) -> Told:
    """The clock of the producer that is wrong is stepped while it pushes."""
    if field.wrong is None:
        return 0, "no producer has a clock of its own"
    clock, producer = field.wrong
    ahead = field.chance.choice([one for one in FAR if one != clock.ahead])
    clock.step(ahead)
    return int(producer.poll() is None and is_faked(producer.pid)), f"now {ahead:+.0f} s"


def _set_server(field: Field, ahead: float) -> bool:
    """Step the server's clock and wait until it shows, also when the server is killed meanwhile; write down since when,
    at the earliest and at the latest, its clock is ``ahead``."""
    clock = field.server.clock
    if clock is None:
        return False
    before = wall()
    clock.step(ahead)
    seen = until(lambda: abs(server_ahead(field.redis) - ahead) < NEAR, SEEN)
    field.clock_of_server(before, wall() if seen else before + 120.0, ahead)
    return bool(seen)


def _excursion(field: Field, ahead: float) -> Told:
    try:
        hit = _set_server(field, ahead)
        if hit:
            field.sleep(LASTS)
    finally:
        back = _set_server(field, 0.0)
    return int(hit and back), f"{ahead:+.0f} s for {LASTS:g} s, then as before"


def step_server_on(field: Field) -> Told:
    """The server's clock is stepped on, and back again."""
    return _excursion(field, field.chance.uniform(*STEP))


def step_server_back(field: Field) -> Told:
    """The server's clock is stepped back, and on again."""
    return _excursion(field, -field.chance.uniform(*STEP))
