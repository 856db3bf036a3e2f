"""Dependencies against a model: random pushes in both orders, some sent again since no answer came; ends, deaths,
revivals, deletions, queues that are cleared, batches that are cancelled, decisions, late words.

After each step exactly the jobs that the model says are parked, missing what it says; no job goes before its need, and
none is forgotten. The model notices when owners are not compared, needs not counted, or an older success counts
although a newer run lives.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from henchman import App
from henchman.store import admission, batches, jobs, needs
from henchman.store.call import Call, Script
from henchman.store.jobs import Move
from henchman.work.effects import of_payload
from henchman.worker import decide
from henchman.worker.decide import Decisions
from support.locks import left_of_keys
from support.store import ME, Store, changed

SEEDS, STEPS = 8, 160
Need = tuple[str, str]
KEYS: list[Need] = [("s", f"{phase}{number}") for phase in "of" for number in range(2)]
POLICIES = ["wait", "run", "fail", "cancel"]
ENDS = ["done"] * 5 + ["failed", "gone", "cancelled", "dead", "dead"]
IN_PLACE = 2  # in place of a hundred, so that the stager has to let go of the others


class Job(NamedTuple):
    """A job of the model: the key that it holds, "" being the scope of its own jid, and what it waits for."""

    jid: str
    key: Need
    payload: bytes
    needs: list[Need]
    on_failed: str
    on_dead: str
    batch: str = ""


class Model:
    """What should be: who holds each key and whether it is dead, what is remembered, who waits for what."""

    def __init__(self, store: Store, app: App, seed: int) -> None:
        self.store, self.app, self.random = store, app, random.Random(seed)
        self.stager, self.number = Decisions(app), 0
        self.jobs: dict[str, Job] = {}
        self.place: dict[str, str] = {}  # jid → queue, parked, dead, over
        self.missing: dict[str, list[Need]] = {}
        self.lines: dict[Need, list[str]] = {}
        self.holder: dict[Need, tuple[str, bool]] = {}
        self.memory: dict[Need, tuple[str, str]] = {}
        self.decide: list[tuple[list[str], Need]] = []  # who waited then
        self.ready: list[tuple[Need, list[str]]] = []
        self.sent: list[tuple[Call[Any], Any]] = []  # pushes and their answers
        self.batch = ""
        self.open_batch()

    def state(self, need: Need) -> str:
        if need in self.holder:
            return "d" if self.holder[need][1] else "l"
        return self.memory.get(need, ("", ""))[0]

    # what happens

    def push(self) -> None:
        self.number += 1
        jid = f"{self.number:024x}"
        key = self.random.choice([*KEYS, ("", jid), ("", jid)])
        again = self.random.random() < 0.5
        pool = [one for one in (*KEYS, *(("", one) for one in self.jobs)) if one != key]
        wanted = self.random.sample(pool, min(len(pool), self.random.choice([0, 1, 1, 2, 2, 3])))
        job = self.made(jid, key, wanted, self.batch if self.random.random() < 0.3 else "")
        phase = key[1][0] if key[0] else "f"
        ask = {"scope": key[0], "phases": phase, "conflict": "skip", "once_for": 604_800}
        asked = json.dumps(ask | ({"again": True} if again else {})).encode()
        text = json.dumps([[*one, 604_800] for one in wanted]).encode() if wanted else b""
        row = admission.KeyedPush(jid, "", job.payload, "0" * 8, key[1], text)
        call = admission.push(self.store.keys, "a", asked, [row], (jid, 1))
        if job.batch:
            question = (
                json.loads(asked) | {"key": key[1], "mark": "0" * 8} | ({"needs": json.loads(text)} if text else {})
            )
            member = batches.TrackedPush(jid, "", job.payload, b"{}", json.dumps(question).encode())
            call = batches.push_keyed(self.store.keys, job.batch, "a", [member], lane=(jid, 1))
        answers = self.store.run(call)
        self.sent.append((call, answers))
        [[answer, *_]] = answers
        if phase == "o" and not again and (key in self.holder or key in self.memory):
            assert answer in "DR"
            return
        missing = [one for one in wanted if self.state(one) != "s"]
        assert answer == ("B" if missing else "C"), (answer, wanted, [self.state(one) for one in wanted])
        self.jobs[jid], self.place[jid] = job, "parked" if missing else "queue"
        if missing:
            self.missing[jid] = missing
            for one in missing:
                self.lines.setdefault(one, []).append(jid)
                if self.state(one) not in ("l", ""):
                    self.decide.append(([jid], one))
        self.holder[key] = jid, False

    def push_again(self) -> None:
        """The answer of a push was lost, and it is sent again: late, and after whatever became of the job."""
        if self.sent:
            call, answers = self.random.choice(self.sent)
            assert self.store.run(call) == answers

    def made(self, jid: str, key: Need, wanted: list[Need], batch: str) -> Job:
        on_failed, on_dead = self.random.choice(POLICIES), self.random.choice(POLICIES)
        phase = key[1][0] if key[0] else "f"
        hm = {"key": [*key, phase], "on_failed": on_failed, "on_dead": on_dead}
        hm |= {"batch": batch} if batch else {}
        hm["needs"] = [[*one, 604_800, "".join(one)] for one in wanted]
        fields = {"class": "m.f", "args": [], "jid": jid, "queue": "a", "retry": True, "created_at": 1.5, "hm": hm}
        return Job(jid, key, json.dumps(fields, separators=(",", ":")).encode(), wanted, on_failed, on_dead, batch)

    def open_batch(self) -> None:
        self.number += 1
        self.batch = f"{self.number:032x}"
        assert self.store.run(batches.make(self.store.keys, self.batch, {"keep": "60"}, b"{}"))

    def cancel_batch(self) -> None:
        """Its members that wait end as cancelled, unless the end of another one decides about them first."""
        self.stage()
        waited = [jid for jid, place in self.place.items() if place == "parked" and self.jobs[jid].batch == self.batch]
        assert self.store.run(batches.close(self.store.keys, self.batch, "cancelled")) in ("closed", "complete")
        self.look()
        queued = {json.loads(one)["jid"] for one in self.store.ask("LRANGE", "queue:a", 0, -1)}
        buried = self.graves().keys()
        for jid in waited:
            for one in self.missing.pop(jid):
                self.lines[one].remove(jid)
            if jid in queued:
                self.place[jid] = "queue"
            else:
                self.ended(jid, "dead" if jid in buried else "cancelled")
        self.open_batch()
        self.stage()

    def clear_queue(self) -> None:
        """All that is queued is removed by hand."""
        queued = [json.loads(one)["jid"] for one in self.store.ask("LRANGE", "queue:a", 0, -1)]
        assert self.app.queues["a"].clear() == len(queued)
        for jid in reversed(queued):
            self.ended(jid, "deleted")

    def end(self) -> None:
        if waiting := [jid for jid, place in self.place.items() if place == "queue"]:
            jid, ending = self.random.choice(waiting), self.random.choice(ENDS)
            [stored] = [one for one in self.store.ask("LRANGE", "queue:a", 0, -1) if json.loads(one)["jid"] == jid]
            assert self.store.ask("LREM", "queue:a", 1, stored) == 1
            if ending == "dead":
                self.store.ask("ZADD", "dead", self.store.now(), stored)
            self.store.run(batches.note(self.store.keys, [of_payload(self.store.keys, stored, ending)]))
            self.ended(jid, ending)

    def late_word(self) -> None:
        """The effects of an end that was carried out before, once more."""
        if over := [jid for jid, place in self.place.items() if place == "over"]:
            payload = self.jobs[self.random.choice(over)].payload
            self.store.run(batches.note(self.store.keys, [of_payload(self.store.keys, payload, "done")]))

    def dead(self) -> str | None:
        found = [jid for jid, place in self.place.items() if place == "dead"]
        return self.random.choice(found) if found else None

    def move(self, jid: str, ending: str) -> Any:
        grave, stored = self.graves()[jid]
        text = of_payload(self.store.keys, stored, ending)
        how = (
            Move(stored, stored, "a", effects=text) if ending == "revived" else Move(stored, delete=True, effects=text)
        )
        return self.store.move(grave, how)[0]

    def graves(self) -> dict[str, tuple[str, bytes]]:
        """Where the dead are, each in the set of all or with those of its batch, and their payloads."""
        names = ["dead", *(one for one in self.store.all_keys() if one.endswith(":dead"))]
        stored = [(name, one) for name in names for one in self.store.ask("ZRANGE", name, 0, -1)]
        found = {json.loads(one)["jid"]: (name, one) for name, one in stored}
        assert len(found) == len(stored), "dead twice"
        return found

    def revive(self) -> None:
        if (jid := self.dead()) is None:
            return
        key, status = self.jobs[jid].key, self.move(jid, "revived")
        letter, earlier = self.memory.get(key, ("", ""))
        holder = self.holder[key][0] if key in self.holder else earlier if letter == "s" else None
        if key[1][0] == "o" and key[0] and holder not in (None, jid):
            assert status == f"HELD {holder}".encode()
            return
        assert status == 1
        self.place[jid] = "queue"
        if key not in self.holder or self.holder[key][0] == jid:
            self.holder[key] = jid, False

    def delete(self) -> None:
        if (jid := self.dead()) is not None:
            assert self.move(jid, "deleted") == 1
            self.ended(jid, "deleted")

    def ended(self, jid: str, ending: str) -> None:
        key = self.jobs[jid].key
        self.place[jid] = "dead" if ending == "dead" else "over"
        if key not in self.holder or self.holder[key][0] != jid:
            return
        if ending == "dead":
            if not self.holder[key][1] and self.lines.get(key):
                self.decide.append((list(self.lines[key]), key))
            self.holder[key] = jid, True
            return
        del self.holder[key]
        letter = {"done": "s", "failed": "f"}.get(ending, "" if key[0] else "x")
        if letter:
            self.memory[key] = letter, jid
        waiting = self.lines.get(key, [])
        if letter != "s":
            self.decide += [(list(waiting), key)] if waiting else []
        elif len(waiting) <= IN_PLACE:
            for one in self.lines.pop(key, []):
                self.met(one, key)
        else:
            self.ready.append((key, self.lines.pop(key)))

    def met(self, jid: str, need: Need) -> None:
        if self.place[jid] != "parked" or need not in self.missing[jid]:
            return
        self.missing[jid].remove(need)
        if not self.missing[jid]:
            self.place[jid] = "queue"

    def stage(self) -> None:
        """Looks of the stager until there is nothing to decide."""
        self.look()
        while self.decide or self.ready:
            entries, self.decide = self.decide, []
            for jids, need in entries:
                for one in jids:
                    self.decided(one, need)
            if self.ready:
                need, waiting = self.ready.pop(0)
                for one in waiting:
                    self.met(one, need)

    def look(self) -> None:
        for _ in range(200):
            seen = self.store.run(jobs.due(self.store.keys, ME, 60_000, 100))
            if not seen.decisions and not seen.release:
                return
            self.stager.carry_out(seen)
        raise AssertionError("the stager comes to no end")

    def decided(self, jid: str, need: Need) -> None:
        job, state = self.jobs[jid], self.state(need)
        if self.place[jid] != "parked" or need not in self.missing[jid] or state == "l":
            return
        policy = "run" if state == "s" else job.on_dead if state == "d" else job.on_failed
        if policy == "wait" or jid not in self.lines.get(need, []):
            return
        if policy == "run":
            self.lines[need].remove(jid)
            self.met(jid, need)
            return
        for one in self.missing.pop(jid):
            if jid in self.lines.get(one, []):
                self.lines[one].remove(jid)
        self.ended(jid, "dead" if policy == "fail" else "cancelled")

    def check(self) -> None:
        keys = self.store.keys
        parked = {jid.decode() for jid in self.store.ask("HKEYS", keys.parked)}
        assert parked == {jid for jid, place in self.place.items() if place == "parked"}
        queued = [json.loads(one)["jid"] for one in self.store.ask("LRANGE", "queue:a", 0, -1)]
        assert sorted(queued) == sorted(jid for jid, place in self.place.items() if place == "queue")
        buried = self.graves().keys()
        assert buried == {jid for jid, place in self.place.items() if place == "dead"}
        for need in {*KEYS, *self.lines}:
            line = [one.decode() for one in self.store.ask("ZRANGE", keys.awaits(needs.line(*need)), 0, -1)]
            assert line == self.lines.get(need, []), need
            [found] = self.store.run(needs.need_states(keys, [(*need, 604_800)]))
            assert found.letter == self.state(need), need
        for jid in parked:
            if len(self.jobs[jid].needs) > 1:
                left = {one.decode() for one in self.store.ask("SMEMBERS", keys.needs(jid))}
                assert left == {needs.line(*one) for one in self.missing[jid]}


DOING = ["push"] * 8 + ["end"] * 7 + ["stage"] * 3 + ["revive", "delete", "late_word"]
DOING += ["push_again", "push_again", "cancel_batch", "clear_queue"]


def play(model: Model, steps: int = STEPS) -> None:
    for _ in range(steps):
        getattr(model, model.random.choice(DOING))()
        model.check()
    model.stage()
    model.check()


SCRIPTS = [(admission, "_PUSH"), (batches, "_NOTE"), (jobs, "_MOVE")]
SCRIPTS += [(needs, name) for name in ("_PARK_END", "_RELEASE_PAGE", "_NEED_STATES")]


def change(monkeypatch: pytest.MonkeyPatch, old: str, new: str) -> None:
    """The text of the scripts that have it, changed."""
    found = [(module, name) for module, name in SCRIPTS if old in getattr(module, name).text]
    assert found, old
    for module, name in found:
        script: Script = getattr(module, name)
        monkeypatch.setattr(module, name, changed(script, old, new))


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide, "PAGE", 2)
    change(monkeypatch, "local IN_PLACE = 100", f"local IN_PLACE = {IN_PLACE}")


@pytest.fixture
def app(redis_url: str) -> Iterator[App]:
    made = App(redis_url=redis_url)
    yield made
    made.close()


def clear(model: Model) -> int:
    """End one job of every place on the server; how many there were. Each may bring others on their way."""
    store, ended = model.store, 0
    for jid in store.ask("HKEYS", store.keys.parked)[:1]:  # for ever, as it said
        ended += store.run(jobs.cancel(store.keys, jid.decode())) + 1
        model.stage()
        assert not store.ask("HEXISTS", store.keys.parked, jid)
    for jid in model.graves():
        ended += model.move(jid, "deleted")
    for stored in store.ask("LRANGE", "queue:a", 0, -1):
        ended += store.ask("LREM", "queue:a", 1, stored)
        store.run(batches.note(store.keys, [of_payload(store.keys, stored, "deleted")]))
    model.stage()
    return ended


@pytest.mark.parametrize("seed", range(SEEDS))
def test_who_waits_is_who_the_model_says(store: Store, app: App, seed: int) -> None:
    model = Model(store, app, seed)
    play(model)
    assert not store.ask("EXISTS", store.keys.broken)
    for _ in range(100):
        if not clear(model):
            break
    assert {one for one in left_of_keys(store) if not one.startswith(store.keys.doubt)} == set()


_OLDER_SUCCESS = "if once_look(scope, name, tonumber(once_for) or 604800) == 's' then return 's', '', '0', '' end\n"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("if lock_holder(phase, scope, name) ~= jid then", "if false then"),
        ("if left > 1 then", "if false then"),
        ("    local gone, gone_since", f"    {_OLDER_SUCCESS}    local gone, gone_since"),
    ],
    ids=["owners are not compared", "needs are not counted", "an older success beats a live run"],
)
def test_the_model_finds_what_is_left_out(
    store: Store, app: App, monkeypatch: pytest.MonkeyPatch, old: str, new: str
) -> None:
    change(monkeypatch, old, new)
    found = 0
    for seed in range(4):
        store.ask("FLUSHALL")
        try:
            play(Model(store, app, 100 + seed), 2 * STEPS)
        except (AssertionError, KeyError):
            found += 1
    assert found >= 3
