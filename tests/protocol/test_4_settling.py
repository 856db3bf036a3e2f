"""PROTOCOL, section 4: settling."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

import henchman
from henchman import App
from henchman.client.admission import KEYED_SLICE
from henchman.errors import ServerError
from henchman.ordered.source import MOST_CLAIMS
from henchman.store import ordered
from henchman.work.effects import effects
from henchman.work.outcome import ENDINGS
from support.dead import Spy
from support.worker import Heard, in_flight, jobs_in, settled, until, working

LUA = Path(henchman.__file__).parent / "store" / "lua"


@pytest.fixture
def app(redis_url: str) -> Iterator[App]:
    made = App(redis_url=redis_url, lease=5, heartbeat=0.5, concurrency=8)
    yield made
    made.close()


def test_a_script_that_fails_as_a_whole_is_tried_unit_by_unit(app: App, redis: Redis) -> None:
    """4.1: the unit that fails alone goes to the dead set; its neighbours end as they ended."""
    gate = threading.Barrier(8)
    app.job(name="note")(lambda name: gate.wait(60) and None)
    for number in range(8):
        app.enqueue("note", f"n{number}")
    refused: list[int] = []

    def poisonous(call: Any) -> None:
        words = [word for part in call.parts for word in part]
        if call.name == "settle" and b"done" in map(as_bytes, words) and any(b'"n3"' in as_bytes(one) for one in words):
            refused.append(sum(as_bytes(one) == b"done" for one in words))
            raise ServerError("settle: ERR attempt to index a nil value")

    heard = Heard(app, "refused")
    with Spy(app, poisonous), working(app):
        settled(redis, 8)
    assert refused[-1] == 1, "it failed alone"
    assert [job["args"] for job in jobs_in(redis, "dead")] == [["n3"]]
    assert len(heard["refused"]) == 1
    assert not in_flight(redis)


def as_bytes(word: Any) -> bytes:
    return word if isinstance(word, bytes) else str(word).encode()


#: Scripts whose callers send at most 500 ids, or that take a few at a time: what they unpack is at most 1,000 long.
FEW = re.compile(
    r"(holders|queue_ends|queues_page|lines|ordered_\w+|batch_make|batch_results|outbox_push|ordered|beat|claim|claim_places|key_ends|place_ends|locks)\.lua"
)


def test_nothing_is_unpacked_beyond_a_thousand() -> None:
    """4.1: Lua's stack is small."""
    assert ordered.MOST_IDS * 2 <= 1000
    assert MOST_CLAIMS * 2 <= 1000
    assert KEYED_SLICE * 2 <= 1000
    for file, bound, most in (
        *(("claim.lua", "MOST_TOGETHER", 500), ("lib/key_ends.lua", "MOST_ENDS", 500)),
        *(("lib/place_ends.lua", "MOST_FREED", 500), ("lib/claim_places.lua", "MOST_DRAWN", 500)),
        *((file, "MOST_FOUND", 100) for file in ("queue_ends.lua", "queues_page.lua")),
        ("lib/lines.lua", "AT_MOST", 1000),
    ):
        assert re.search(rf"local {bound}(, \w+)? = {most}\b", (LUA / file).read_text(encoding="utf-8")), file
    calls = [
        (file.name, call)
        for file in LUA.rglob("*.lua")
        for call in re.findall(
            r"(?<!struct\.)unpack\(([^\n]*)", re.sub(r"--[^\n]*", "", file.read_text(encoding="utf-8"))
        )
    ]
    assert calls
    calls = [one for one in calls if not FEW.fullmatch(one[0])]
    assert [one for one in calls if not re.search(r"first, math\.min\(first \+ 999, ", one[1])] == []


def test_the_endings_of_the_code_are_those_that_the_script_knows() -> None:
    """4.2: a closed list."""
    text = (LUA / "settle.lua").read_text(encoding="utf-8")
    told = re.findall(r"\w+", text[text.index("Endings:") : text.index("LREM is the fence")])
    assert [ending for ending in ENDINGS if ending not in told] == []


@pytest.mark.parametrize("ending", ENDINGS)
def test_effects_are_a_pure_function(app: App, ending: str) -> None:
    """4.2: the same payload and ending, the same effects; nothing is read and nothing is changed."""
    job = {"class": "act", "args": [], "jid": "j", "hm": {"cron": "c", "iterable": True}}
    before = repr(job)
    first = effects(app.keys, job, ending)
    with Spy(app) as spy:
        assert effects(app.keys, job, ending) == first
    assert spy.calls == []
    assert repr(job) == before


def test_an_end_and_its_effects_are_one_script(app: App, redis: Redis) -> None:
    """4.2: what was cancelled ends, and the note of it goes, in the same call."""
    app.job(name="note")(lambda: None)
    app.cancel(app.enqueue("note").jid)
    seen: list[int] = []

    def noted(call: Any) -> None:
        if call.name == "settle":
            seen.append(redis.zcard("hm:cancelled"))  # type: ignore[arg-type]

    with Spy(app, noted) as spy, working(app):
        until(lambda: not redis.exists("hm:cancelled") and not in_flight(redis), "it is carried out")
        names = spy.names()
    assert seen == [1]
    assert names.count("settle") == 1
    assert "ZREM" not in names


def server_time(redis: Redis) -> float:
    seconds, micro = redis.time()  # type: ignore[misc]
    return float(seconds + micro / 1e6)


def test_the_default_delay_has_jitter_and_a_given_one_has_none(app: App, redis: Redis) -> None:
    """4.5: twenty that fail together come back apart, unless their delay was given."""

    def fail(name: str) -> None:
        raise ValueError(name)

    app.job(name="plain")(fail)
    app.job(name="exact", retry_in=500)(fail)
    for number in range(20):
        app.enqueue("plain", str(number))
        app.enqueue("exact", str(number))
    first = server_time(redis)
    with working(app):
        until(lambda: redis.zcard("retry") == 40, "all failed")
    last = server_time(redis)
    scores: dict[str, list[float]] = {"plain": [], "exact": []}
    for entry, score in redis.zrange("retry", 0, -1, withscores=True):  # type: ignore[union-attr,misc]
        scores["exact" if b'"exact"' in entry else "plain"].append(score)
    assert first <= min(scores["exact"]) - 500 <= max(scores["exact"]) - 500 <= last
    assert max(scores["plain"]) - min(scores["plain"]) > 2
