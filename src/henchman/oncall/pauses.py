"""Everything that is paused: queues, batches, crons, classes of jobs, tags."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from henchman.batch.listing import paused_batches
from henchman.inspector.pauses import PauseJson, pause_json
from henchman.store import cron, pauses, queues
from henchman.store.call import Procedure, ask, side_by_side
from henchman.store.keys import Keys

__all__ = ["Paused", "PausedJson", "paused"]

_BATCHES: Final = 100  # that are looked at


class PausedJson(PauseJson):
    """``kind``: queue, batch, cron, class or tag; ``name``: that of a queue or a cron, the id of a batch, ``class:…``,
    ``tag:…``."""

    kind: str
    name: str


class Paused(NamedTuple):
    """One of them. ``name``: as it is let go on, ``title``: as people know it."""

    kind: Literal["queue", "batch", "cron", "class", "tag"]
    name: str
    title: str
    pause: queues.Pause

    def to_json(self) -> PausedJson:
        """Stable names for programs."""
        return {"kind": self.kind, "name": self.name, **pause_json(self.pause)}

    @property
    def resume(self) -> tuple[str, str]:
        """Page and name of the act that lets it go on."""
        return {"queue": "queues", "batch": "batches", "cron": "crons"}.get(self.kind, "pauses"), self.name


def paused(keys: Keys) -> Procedure[list[Paused]]:
    """Queues by name, some batches, crons, classes and tags: two calls."""
    asked = ask(queues.pauses(keys)), paused_batches(keys, _BATCHES), ask(cron.pauses(keys)), ask(pauses.kinds(keys))
    in_queues, batches, crons, kinds = yield from side_by_side(*asked)
    found = [Paused("queue", name, name, why) for name, why in in_queues.items()]
    for one in batches:
        if one.status.paused:
            found.append(Paused("batch", one.status.id, one.status.description or one.status.id, one.status.paused))
    found += [Paused("cron", name, name, why) for name, why in crons.items()]
    for what, why in kinds.items():
        kind, _, name = what.partition(":")
        found.append(Paused("class" if kind == "class" else "tag", what, name, why))
    return found
