"""The keys of effects, for every call that ends jobs: those that all of them share, and those of one job alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from henchman.store.keys import Keys

#: kinds that touch a key of one job alone → where in the effect it stands
_OWN: Final = {"uniterate": 1, "result": 1}

_decode = msgspec.json.Decoder(list[list[Any]]).decode


def shared_keys(keys: Keys) -> list[str]:
    """What ``lib/effects.lua`` is given by every script that carries effects out."""
    return [
        keys.cancelled,
        keys.broken,
        keys.cron_running,
        keys.batch_base,
        keys.queue_prefix,
        keys.queues,
        keys.history,
        keys.history_bytes,
        keys.history_on,
        keys.history_dropped,
    ]


def own_keys(effects: Iterable[bytes]) -> list[str]:
    """The keys of one job alone that these lists of effects name, each once; what cannot be read names none."""
    found: dict[str, None] = {}
    for text in effects:
        if text.startswith(b"+") or (b'["uniterate"' not in text and b'["result"' not in text):
            continue  # a plain end; quotes within texts are escaped
        try:
            told = _decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue  # the script notes it down
        for effect in told:
            place = _OWN.get(effect[0]) if effect and isinstance(effect[0], str) else None
            if place is not None and len(effect) > place and isinstance(effect[place], str):
                found[effect[place]] = None
    return list(found)
