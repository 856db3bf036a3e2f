"""The stager is killed while it decides about jobs that wait, before and after its writes.

The next one decides about what is left as if nothing had happened. No job is lost or doubled, or decided about twice.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from henchman import App
from henchman.store import admission, batches, jobs, needs
from henchman.store.call import Call, load
from henchman.work.effects import of_payload
from henchman.worker import decide
from support.locks import job, left_of_keys
from support.mortal import Nursery
from support.store import ME, Store

FATES = {"run": "queue", "fail": "dead", "cancel": "over", "wait": "parked"}
LETTERS = {"queue": "l", "parked": "l", "dead": "d", "over": "x"}
MANY = 130  # more than the script that meets a need lets go by itself
PAGE, RELEASED = 2, 60


@pytest.fixture
def app(redis_url: str) -> Iterator[App]:
    made = App(redis_url=redis_url)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide, "PAGE", PAGE)
    monkeypatch.setattr(decide, "RELEASED", RELEASED)


class Scene:
    """Jobs that wait for one that is over, one that is dead, one that has succeeded; for too long; in a batch that was
    cancelled. Behind some stands one that waits for them. ``fates``: where each is to be when all is decided."""

    def __init__(self, store: Store, app: App) -> None:
        self.store, self.app, self.fates = store, app, dict[str, str]()
        store.ask("FLUSHALL")
        for script in ("decided", "due", "park_end", "release_page"):  # a call passes its points once
            store.ask("SCRIPT", "LOAD", load(script).text)
        for ending, letter in (("gone", "a"), ("dead", "b"), ("done", "c")):
            first = job(letter * 24, "o", key=ending, scope="s")
            self.push(first, phases="o", key=ending)
            for policy in [*FATES, "run"] if ending != "done" else ["cancel"] * MANY:
                self.waits("s", ending, policy, FATES[policy] if ending != "done" else "queue")
            store.ask("LREM", "queue:a", 1, first)
            store.run(batches.note(store.keys, [of_payload(store.keys, first, ending)]))
        for policy in ("run", "fail", "cancel"):
            self.waits("s", "never", policy, FATES[policy], wait_at_most=0)
        with app.batch("Orders") as batch:
            handles = [self.ship.using(batch=batch, after="f" * 24).enqueue(number) for number in range(3)]
        batch.cancel()
        self.fates |= dict.fromkeys([one.jid for one in handles], "over")

    @property
    def ship(self) -> Any:
        return self.app.registry.find("ship") or self.app.job(name="ship", followed=True)(lambda number: None)

    def push(self, payload: bytes, missing: list[list[Any]] | None = None, **ask: Any) -> None:
        jid, key = json.loads(payload)["jid"], ask.pop("key")
        asked = {"scope": "s" if ask["phases"] == "o" else "", "conflict": "skip", "once_for": 604_800, **ask}
        row = admission.KeyedPush(jid, "", payload, "", str(key), json.dumps(missing).encode() if missing else b"")
        [[answer, *_]] = self.store.run(
            admission.push(self.store.keys, "a", json.dumps(asked).encode(), [row], (jid, 1))
        )
        assert answer == ("B" if missing else "C")

    def waits(self, scope: str, name: str, policy: str, fate: str, **ask: Any) -> None:
        """A job that waits, and one that waits for its end."""
        jid = f"{len(self.fates):024x}"
        hm = {"needs": [[scope, name, 604_800, name]], "on_failed": policy, "on_dead": policy}
        self.push(job(jid, "f", key=jid, scope="", hm=hm), [[scope, name, 604_800]], phases="f", key=jid, **ask)
        self.fates[jid] = fate
        if scope and name != "done":
            self.waits("", jid, "run", "queue" if fate in ("dead", "over") else "parked")

    def look(self, app: App) -> None:
        while decide.Decisions(app).carry_out(self.store.run(jobs.due(self.store.keys, ME, 1, 100))):
            pass

    def is_decided(self) -> None:
        """Each job is where it is to be, once, and others would be told so."""
        store, places = self.store, dict[str, str]()
        for place, found in (
            ("queue", store.ask("LRANGE", "queue:a", 0, -1)),
            ("dead", store.ask("ZRANGE", "dead", 0, -1)),
            ("parked", [row[row.index(b"{") :] for row in store.ask("HVALS", store.keys.parked)]),
        ):
            jids = [json.loads(one)["jid"] for one in found]
            assert len(jids) == len(set(jids)), f"doubled in {place}"
            assert not places.keys() & set(jids), "in two places"
            places |= dict.fromkeys(jids, place)
        assert places == {jid: fate for jid, fate in self.fates.items() if fate != "over"}
        for jid, fate in self.fates.items():
            [state] = store.run(needs.need_states(store.keys, [("", jid, 604_800)]))
            assert state.letter == LETTERS[fate], (jid, fate)
        for name in (store.keys.decide, store.keys.releases, store.keys.parked_until, store.keys.broken):
            assert not store.ask("EXISTS", name), name
        assert not [one for one in left_of_keys(store) if "ready" in one]
        [batch] = store.ask("ZRANGE", store.keys.batches, 0, -1)
        assert store.ask("HMGET", store.keys.batch(batch.decode()), "state", "n:cancelled") == [b"complete", b"3"]


def counted(scene: Scene, app: App, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each script is called when nobody is killed."""
    calls, real = Counter[str](), app.connections.run

    def run(call: Call[Any]) -> Any:
        calls[call.name] += 1
        return real(call)

    monkeypatch.setattr(app.connections, "run", run)
    scene.look(app)
    monkeypatch.setattr(app.connections, "run", real)
    return calls


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("script", ["park_end", "decided", "release_page"])
def test_the_stager_is_killed_while_it_decides(
    store: Store, app: App, tmp_path: Path, mortals: Nursery, monkeypatch: pytest.MonkeyPatch, script: str, where: str
) -> None:
    scene = Scene(store, app)
    calls = counted(scene, app, monkeypatch)[script]
    scene.is_decided()
    order = {"part": "client", "do": "decide", "url": store.connections.url, "trace": tmp_path / "trace"}
    for passing in sorted({1, 2, calls // 2} - {0}):  # how many there are differs a little
        folder = tmp_path / str(passing)
        folder.mkdir()
        scene = Scene(store, app)
        assert mortals.run(faults=f"kill@{script}:{where}#{passing}", folder=folder, **order) == -9
        scene.look(app)
        scene.is_decided()
