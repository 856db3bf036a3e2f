"""What a dead process held goes back: the same for a child, whose supervisor saw it end, and for a lost host.

However many queues it served, what it held nothing of is asked for together: each step costs a round trip, and the
server may be far away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from henchman.store import ordered
from henchman.store.call import Arg, commands
from henchman.worker.host import Settler
from henchman.worker.session import give_back_list, held_ids

__all__ = ["each", "give_back", "there"]

AT_ONCE = 500  # questions in one write


def each(host: Settler, questions: Sequence[tuple[Arg, ...]]) -> Iterator[Any]:
    """The answer to each, asked many at a time: an hour's dead may have had thousands of lists, and a look at each of
    them alone would take longer than contact may be broken."""
    for start in range(0, len(questions), AT_ONCE):
        yield from host.connections.run(commands(*questions[start : start + AT_ONCE]))


def there(host: Settler, names: Sequence[str]) -> set[str]:
    """The keys that exist: the lists that hold something, the tombs that stand."""
    found = each(host, [("EXISTS", one) for one in names])
    return {one for one, exists in zip(names, found, strict=True) if exists}


def give_back(host: Settler, identity: str, lists: Sequence[str], charge: Callable[[list[str]], object]) -> int:
    """Give back what the ``lists`` of the buried ``identity`` hold; how many payloads and ids that were.

    ``charge(lists)`` is called before, with those that hold something. Each step may be repeated after any other.
    """
    filled = there(host, lists)
    full = [one for one in lists if one in filled]
    moved = held_ids(host, full)  # freed with the charge, or after it
    charge(full)
    for one in full:
        given_back = give_back_list(host, one, host.keys.queue_of_flight(one))
        moved += 0 if host.keys.is_held(one) else given_back
    # An ordered queue of which nothing was held is rung all the same: its wake may be lost with who took it.
    empty = [host.keys.queue_of_flight(one) for one in lists if host.keys.is_held(one) and one not in filled]
    list(each(host, [ordered.ring(host.keys, queue).parts[0] for queue in empty]))
    return moved
