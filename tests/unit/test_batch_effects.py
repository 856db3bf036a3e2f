"""What is written of tracked jobs: the short way says the same as the long one, and details stay small."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from henchman.store.keys import Keys
from henchman.work.effects import EndingFacts, effects, encoded, facts_of, finished
from henchman.work.outcome import DONE
from henchman.work.unit import InFlightList, Unit

KEYS = Keys()


def unit(identity: str = "host-1.local:17:0123456789ab", elapsed: float | None = 0.25) -> Unit:
    made = Unit(b"{}", InFlightList("q", "queue:q", "flight", identity, 1), 0.0)
    made.elapsed = elapsed
    return made


def spread(text: bytes) -> bytes:
    """The short form as the long one says it (``lib/batch.lua``)."""
    batch, attempt, who, jid, detail = text.removeprefix(b"+").decode().split(" ", 4)
    assert text.startswith(b"+")
    return json.dumps([["track", batch, jid, "finished", attempt, who, detail, ""]]).encode()


def parsed(text: bytes) -> list[Any]:
    [effect] = json.loads(text)
    detail = json.loads(effect[6])
    assert abs(detail.pop("started") - time.time()) < 60
    return [*effect[:6], detail, effect[7]]


@pytest.mark.parametrize("more", [{}, {"retry_count": 0}, {"retry_count": 3}])
@pytest.mark.parametrize("hm", [{"batch": "b" * 32}, {"track": True}, {"batch": "b" * 32, "batch_expires": 5.5}])
def test_the_short_way_says_the_same(hm: dict[str, Any], more: dict[str, Any]) -> None:
    job = {"class": "c", "jid": "a" * 24, "args": [], "hm": hm, **more}
    one = unit()
    short, long = finished(one, job), encoded(KEYS, job, "done", facts_of(one, DONE, job))
    assert parsed(spread(short)) == parsed(long)


@pytest.mark.parametrize(
    ("job", "one"),
    [
        ({"jid": "a", "hm": {"batch": "b", "result_ttl": 5}}, unit()),
        ({"jid": "a", "hm": {"batch": "b", "cron": "c"}}, unit()),
        ({"jid": "a", "hm": {"batch": "b", "results": True}}, unit()),
        ({"jid": "a", "hm": {"batch": "b", "iterable": True}}, unit()),
        ({"jid": 'a"', "hm": {"batch": "b"}}, unit()),
        ({"jid": "ä", "hm": {"batch": "b"}}, unit()),
        ({"jid": "a", "hm": {"batch": 5}}, unit()),
        ({"hm": {"batch": "b"}}, unit()),
        ({"jid": "", "hm": {"batch": "b"}}, unit()),
        ({"jid": "a", "hm": {"batch": "b"}}, unit('odd"host')),
        ({"jid": "a", "hm": {"batch": "b"}}, unit("odd host")),
        ({"jid": "a", "hm": {"batch": "b"}}, unit(elapsed=None)),
    ],
)
def test_what_is_not_plain_goes_the_long_way(job: dict[str, Any], one: Unit) -> None:
    assert finished(one, job) == b""


def test_a_large_result_is_whole_where_it_is_kept_alone() -> None:
    job = {"jid": "a", "hm": {"track": True, "result_ttl": 5}}
    kept, tracked = effects(KEYS, job, "done", EndingFacts("me", 1, {"result": "x" * 100_000}))
    assert len(json.loads(kept[3])["result"]) == 100_000
    assert len(tracked[6]) < 200
    assert "100," in json.loads(tracked[6])["result"]


def test_only_failures_are_counted_by_their_reason() -> None:
    job = {"jid": "a", "hm": {"batch": "b"}}
    told = EndingFacts("me", 1, {"message": "many\n  words " + "x" * 300})
    assert effects(KEYS, job, "cancelled", told)[-1][-1] == ""
    reason = effects(KEYS, job, "failed", told)[0][-1]
    assert reason.startswith("many words xxx")
    assert len(reason) == 200
