"""An attack on ends that are settled together: the server has cut them off, and nobody hears of it."""

from __future__ import annotations

from field import Field, until

from henchman.store.call import load

__all__ = ["lose_cuts"]

LASTS = 45.0  # seconds: jobs that end in the order of their fetch are few among so many kinds
ENOUGH = 3
CUT = load("settle_oldest").sha.encode()
Told = tuple[int, str]


def lose_cuts(field: Field) -> Told:
    """The answers to some cuts are swallowed after their execution, with their connections, in whichever group they
    come. What they settled is in doubt then, and is settled once more, one by one: nothing of it may run again."""
    routes = [group.route for group in field.groups]
    before = sum(route.swallowed for route in routes)
    for route in routes:
        route.swallows = CUT
    until(lambda: sum(route.swallowed for route in routes) >= before + ENOUGH, LASTS, 0.1)
    for route in routes:
        route.swallows = b""
    lost = sum(route.swallowed for route in routes) - before
    return lost, f"{lost} answers"
