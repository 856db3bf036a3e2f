"""Queues that share a pool of slots, and the order in which they are looked at (wire format, section 5.2)."""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Literal

from henchman.config.settings import Config
from henchman.config.sources import QUEUE, QUEUE_DUE
from henchman.errors import ConfigError

__all__ = ["Capsule", "capsules_of", "parse_queues", "served"]


@dataclasses.dataclass(frozen=True)
class Capsule:
    """``queues`` in the order given, ``weights`` by name: 0 strict, else how often a queue is in the hat."""

    name: str
    concurrency: int
    queues: tuple[str, ...]
    weights: dict[str, int]

    @property
    def mode(self) -> Literal["strict", "random", "weighted"]:
        """strict without weights, random when all weigh 1, else weighted."""
        values = set(self.weights.values())
        if values <= {0}:
            return "strict"
        return "random" if values == {1} else "weighted"

    def order(self) -> list[str]:
        """The queues as one fetch looks at them; a new draw each time where there are weights."""
        mode = self.mode
        if mode == "strict" or len(self.queues) == 1:
            return list(self.queues)
        hat = [name for name in self.queues for _ in range(max(self.weights[name], 1))]
        random.shuffle(hat)
        return list(dict.fromkeys(hat))


def capsules_of(config: Config, queues: Sequence[str]) -> list[Capsule]:
    """The capsules that ``config`` names, the default one first. ``queues``: what it serves when nothing is said.

    ConfigError when two capsules serve one queue, because its jobs would not know whose slots they take.
    """
    named = [
        Capsule(name, table["concurrency"], tuple(weights), weights)
        for name, table in config.capsules.items()
        for weights in [parse_queues(table["queues"])]
    ]
    taken = {queue for capsule in named for queue in capsule.queues}
    weights = parse_queues(config.queues) or dict.fromkeys([one for one in queues if one not in taken], 1)
    everything = [Capsule("default", config.concurrency, tuple(weights), weights), *named] if weights else named
    seen: dict[str, str] = {}
    for capsule in everything:
        for queue in capsule.queues:
            if seen.setdefault(queue, capsule.name) != capsule.name:
                raise ConfigError(f"queue {queue!r} is served by two capsules, {seen[queue]} and {capsule.name}")
    return everything


def served(capsules: Sequence[Capsule], others: Collection[str]) -> list[Capsule]:
    """``capsules`` without the queues that are left to ``others``; ConfigError when nothing is left."""
    kept = [
        dataclasses.replace(one, queues=queues, weights={name: one.weights[name] for name in queues})
        for one in capsules
        if (queues := tuple(name for name in one.queues if name not in others))
    ]
    if not kept:
        raise ConfigError(f"nothing to serve: {', '.join(sorted(others))} are placed on other processes")
    return kept


def parse_queues(texts: Iterable[str]) -> dict[str, int]:
    """``critical:3`` or ``default`` → weights by name (0 when none was given); ConfigError names what is wrong."""
    weights: dict[str, int] = {}
    for text in texts:
        if not re.fullmatch(QUEUE, text):
            raise ConfigError(f"queue {text!r}: it must be {QUEUE_DUE}")
        name, colon, number = text.rpartition(":") if _weighted(text) else (text, "", "")
        weights.setdefault(name, int(number) if colon else 0)
    return weights


def _weighted(text: str) -> bool:
    return text.rpartition(":")[2].isdecimal() and ":" in text
