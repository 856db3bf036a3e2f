"""Which ordered queue is looked into first, and which ones a process serves at all.

Lowkiq's schedulers and splitters, without its polling and its fixed map from shards to threads: any process may run
any id, so both only say where to look first, and where not to look.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from henchman.errors import ConfigError
from henchman.store import ordered_looks
from henchman.store.call import Runner
from henchman.store.keys import Keys

__all__ = ["Scheduler", "Splitter", "by_node", "default_splitter", "placement"]

#: gets the names of every ordered queue that the process could serve; gives those that it does
Splitter = Callable[[Sequence[str]], Sequence[str]]


class Desk(Protocol):
    @property
    def keys(self) -> Keys: ...
    @property
    def connections(self) -> Runner: ...


class Scheduler:
    """One a process. ``kind``: "lag" (whose head has waited longest goes first), "seq" (round robin), "weighted" (as
    the capsule drew them)."""

    def __init__(self, desk: Desk, kind: str) -> None:
        self._desk = desk
        self._kind = kind
        self._turn = 0
        self._lock = threading.Lock()

    def order(self, names: Sequence[str]) -> list[str]:
        """``names`` in the order to look into them."""
        if self._kind == "weighted" or len(names) < 2:
            return list(names)
        if self._kind == "seq":
            with self._lock:
                self._turn += 1
                first = self._turn % len(names)
            in_turn = sorted(names)
            return in_turn[first:] + in_turn[:first]
        heads = self._desk.connections.run(ordered_looks.heads(self._desk.keys, names))
        return sorted(names, key=lambda name: heads[name])


def default_splitter(queues: Sequence[str]) -> Sequence[str]:
    """Every process serves every ordered queue."""
    return queues


def by_node(nodes: int, node: int) -> Splitter:
    """Queue number i belongs to node i modulo ``nodes``, counted from 0; ConfigError when there is no such node."""
    if not 0 <= node < nodes:
        raise ConfigError(f"ordered_node = {node}: with ordered_nodes = {nodes} the nodes are 0 to {nodes - 1}")
    return lambda queues: [name for number, name in enumerate(sorted(queues)) if number % nodes == node]


def placement(desk: Any, queues: Sequence[str]) -> frozenset[str]:
    """Which of the ordered ``queues`` this process serves: as ``app.ordered_splitter`` says, else by node.

    ConfigError when the splitter names others, or there is no such node.
    """
    config, splitter = desk.config, desk.ordered_splitter
    if splitter is None:
        splitter = default_splitter
        if config.ordered_nodes > 1 or config.ordered_node:
            splitter = by_node(config.ordered_nodes, config.ordered_node)
    chosen = frozenset(splitter(queues))
    if not chosen <= set(queues):
        raise ConfigError(f"ordered_splitter answered {sorted(chosen - set(queues))}; it is to choose from {queues}")
    return chosen
