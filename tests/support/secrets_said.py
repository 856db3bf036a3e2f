"""Jobs whose secret arguments stand in all that they raise and say, in every spelling, and how to look for them."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redis import Redis

from henchman import App, Discard, Failure, Kill, Snooze, current_job

__all__ = ["CODE", "NUMBER", "PARTS", "PIN", "VALUE", "WAYS", "Card", "Shop", "seen", "stored_in"]

NUMBER = "sk_41\"11\n22'33é"
PIN = "zip90210"
CODE = 987654321
VALUE = {"number": NUMBER, "deep": [{"pin": PIN}, [CODE]], "joe@example.org": True, "short": "7"}
PARTS = (NUMBER, "sk_41", "22'33", PIN, str(CODE), "987,654", "joe@example", "'short'", '"short"')


@dataclass
class Card:
    number: str
    pins: list[str]


def _raise(error: BaseException) -> None:
    raise error


def _caused(card: Any, cause: bool) -> None:
    try:
        _raise(KeyError(card["number"]))
    except KeyError as error:
        if cause:
            raise RuntimeError("refused") from error
        _raise(RuntimeError(f"refused {card['deep']}"))


def _noted(card: Any) -> None:
    error = ValueError("refused")
    error.add_note(f"it was {card['number']}")
    raise error


def _emptied(card: Any) -> None:
    number = card.pop("number")
    pin = card["deep"].pop(0)["pin"]
    card.clear()
    raise ValueError(f"{number} {pin}")


def _said(card: Any) -> None:
    current_job().log(f"number {card['number']}")
    current_job().log(card)
    logging.getLogger("shop").warning("pin %s, all of it %r", card["deep"][0]["pin"], card)
    logging.getLogger("shop").info("a field", extra={"card": card, "pin": CODE})


def _grouped(card: Any) -> None:
    raise ExceptionGroup(f"all of {card['number']}", [ValueError(card["deep"]), ExceptionGroup("in", [KeyError(PIN)])])


WAYS: dict[str, Callable[[Any], None]] = {
    "value": lambda card: _raise(ValueError(card["number"])),
    "whole": lambda card: _raise(ValueError(card)),
    "repr": lambda card: _raise(ValueError(f"{card['number']!r} and {card!r}")),
    "json": lambda card: _raise(ValueError(json.dumps(card) + json.dumps(card["number"], ensure_ascii=False))),
    "key": lambda card: _raise(KeyError(card["number"])),
    "key of a repr": lambda card: _raise(KeyError(repr(card["number"]))),
    "key in it": lambda card: _raise(KeyError(list(card)[2])),
    "number": lambda card: _raise(ValueError(f"{CODE} {CODE:,}")),
    "several arguments": lambda card: _raise(OSError(5, card["number"], card["deep"][0]["pin"])),
    "cause": lambda card: _caused(card, cause=True),
    "context": lambda card: _caused(card, cause=False),
    "note": _noted,
    "group": _grouped,
    "emptied": _emptied,
    "failure": lambda card: _raise(Failure(card["number"])),
    "discard": lambda card: _raise(Discard(f"no use for {card}")),
    "kill": lambda card: _raise(Kill(card["deep"][0]["pin"])),
    "snooze": lambda card: _raise(Snooze(3600)),
    "said": _said,
    "result that is none": lambda card: {PIN: {1, 2}, "of": card["number"]},  # type: ignore[return-value]
}


class Shop:
    """An app whose jobs end in all those ways, and all that it left behind."""

    def __init__(self, redis_url: str, folder: Path) -> None:
        self.database = f"sqlite:///{folder}/history.sqlite"
        self.app = App(redis_url=redis_url, database_url=self.database)
        self.app.error_handlers.append(lambda error, facts: _raise(RuntimeError(f"cannot report {error}")))
        self.app.death_handlers.append(lambda job, error: _raise(RuntimeError(f"cannot mourn {job['args']}")))
        self.log = io.StringIO()

        @self.app.job(name="pay", secret=("card",), result_ttl=600, backtrace=True, log_level="debug")
        def pay(way: str, card: Any) -> Any:
            return WAYS[way](card)

        @self.app.job(name="pay_async", secret=("card",), result_ttl=600, backtrace=True)
        async def pay_async(way: str, *, card: Any) -> Any:
            return WAYS[way](card)

        @self.app.job(name="pay_typed", secret=("card",), retry=1)
        def pay_typed(card: Card) -> None:
            raise ValueError(f"{card} {card.pins}")

        self.pay, self.pay_async, self.pay_typed = pay, pay_async, pay_typed


def seen(text: str) -> list[str]:
    """What of the secrets stands in ``text``, in whatever spelling."""
    flat = re.sub(r"\\+(u00e9|xe9|.)", lambda found: {"n": "\n"}.get(found[1], found[1]), text)
    return [part for part in PARTS if part in text or part in flat]


def stored_in(redis: Redis) -> list[str]:
    """Every value that stands in the server."""
    found: list[str] = []
    for key in redis.scan_iter("*", count=1000):
        kind = redis.type(key).decode()  # type: ignore[union-attr]
        values: Any = {
            "string": lambda key: [redis.get(key)],
            "list": lambda key: redis.lrange(key, 0, -1),
            "set": redis.smembers,
            "hash": lambda key: [one for pair in redis.hgetall(key).items() for one in pair],
            "zset": lambda key: redis.zrange(key, 0, -1),
            "stream": lambda key: [one for _, row in redis.xrange(key) for pair in row.items() for one in pair],
        }[kind](key)
        found += [value.decode(errors="replace") for value in values]
    return found
