"""Each ending against each phase of a business key, held by the job, by another, by nobody: what is left."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from henchman import App
from henchman.client.runtime import Settler
from henchman.kernel import failpoints
from henchman.store import batches, jobs, locks, queues
from henchman.store.jobs import Move, Settlement
from henchman.work.effects import FINAL, STATUS, EndingFacts, effects, of_payload
from henchman.work.locks import JobKey, is_exclusive, key_of
from henchman.work.outcome import ENDINGS
from henchman.work.unit import InFlightList, Unit
from henchman.worker.rescue import rescue
from henchman.worker.stager import Stager
from support.locks import DIGEST, FREED, KEY, OTHER, OURS, SCOPE, holder, job, left_of_keys, lock, park, waiting
from support.store import ME, Store
from support.worker import until

LETTERS = {"done": "s", "failed": "f"}
DEAD = {"dead", "kept", "invalid", "poisoned"}  # the lock says so, for whoever waits for its job
_OTHER_WAYS = {"deleted", "trimmed", "poisoned", "rescued", "staged", "started"}


def test_the_table_knows_every_ending() -> None:
    assert set(FREED) == {*ENDINGS, *_OTHER_WAYS}
    assert {*STATUS} - {"revived", "held"} <= set(FREED), "who is held: worker/test_batch_pause.py"
    assert set(FREED) >= FINAL


def end(store: Store, ending: str, payload: bytes) -> None:
    """End the job as whoever ends it so does, with the effects of that."""
    text = of_payload(store.keys, payload, ending)
    if ending in ("deleted", "trimmed", "staged"):
        store.ask("ZADD", "dead", 1, payload)
        move = (
            Move(payload, payload, "b", effects=text)
            if ending == "staged"
            else Move(payload, delete=True, effects=text)
        )
        assert store.move("dead", move) == [1]
        return
    store.push("a", payload)
    store.join("a")
    store.fetch("a")
    if ending == "rescued":
        rescue(store_as_settler(store), ME, None)
    elif ending == "started":
        assert store.run(batches.started(store.keys, [batches.Started(store.flight("a"), payload, text)])) == 1
    elif ending == "poisoned":
        store.ask("HSET", store.keys.deaths, OURS, b"\n".join(b"2026 host:%d:0 died" % number for number in range(2)))
        line, known = f"2026 {ME} died".encode(), {"dead_max": 9, "dead_timeout": 9.0, "effects": text}
        call = jobs.charge(store.keys, store.flight("a"), OURS, line, payload, payload + b" ", alone=True, **known)
        assert store.run(call) == -1
    else:
        assert store.settle(Settlement(1, payload, ending, payload, effects=text)) == [1]


def store_as_settler(store: Store) -> Settler:
    found: Any = store
    found.clock = None  # a rescue without a death charges nobody
    return found  # type: ignore[no-any-return]


@pytest.mark.parametrize("held", ["self", "other", "nobody"])
@pytest.mark.parametrize("phase", ["w", "u", "o", "r", "f"])
@pytest.mark.parametrize("ending", sorted(FREED))
def test_every_ending_of_every_phase(store: Store, ending: str, phase: str, held: str) -> None:
    if held != "nobody":
        lock(store, phase, OURS if held == "self" else OTHER)
    end(store, ending, job(phases=phase))
    stands = held == "other" or (held == "self" and phase not in FREED[ending])
    dead = "d" if held == "self" and phase in "of" and ending in DEAD else ""
    who = f"{OURS if held == 'self' else OTHER} 1.500000{dead} {DIGEST}".encode()
    expected = {KEY.encode(): who} if stands else {}
    found = store.ask("HGETALL", store.keys.lock(phase, SCOPE))
    found = found if isinstance(found, dict) else dict(zip(found[::2], found[1::2], strict=True))
    assert found == expected
    assert left_of_keys(store) == ({store.keys.lock(phase, SCOPE)} if stands else set())
    remembers = held == "self" and phase in "of" and ending in LETTERS
    memories = [one for one in store.all_keys() if one.startswith("hm:once:")]
    assert len(memories) == remembers
    if remembers:
        (value,) = store.ask("HVALS", memories[0])
        assert value == LETTERS[ending].encode() + bytes.fromhex(OURS)
        assert 604_800 <= store.ask("TTL", memories[0]) <= 907_200
        (field,) = store.ask("HKEYS", memories[0])
        assert field == hashlib.sha1(f"{SCOPE}\n{KEY}".encode()).digest()[:10]  # noqa: S324
    assert not store.ask("EXISTS", store.keys.broken)


@pytest.mark.parametrize("ending", sorted(FREED))
def test_all_locks_of_one_job(store: Store, ending: str) -> None:
    """The phases that a definition may ask for together, in one payload."""
    for phases in ("or", "ur", "wr"):
        for phase in phases:
            lock(store, phase)
        end(store, ending, job(phases=phases))
        held = {phase for phase in phases if holder(store, phase)}
        assert held == set(phases) - set(FREED[ending])
        for phase in held:
            store.ask("DEL", store.keys.lock(phase, SCOPE))
        store.ask("DEL", "dead", "retry", "schedule", "queue:a", "queue:b", store.flight("a"), store.keys.tomb(ME))


def test_a_second_word_frees_nothing_that_is_another_s_by_now(store: Store) -> None:
    """Cause 5: the late finisher, and the same effects once more."""
    payload = job(phases="ur")
    lock(store, "u")
    lock(store, "r")
    end(store, "done", payload)
    assert left_of_keys(store) == set()
    lock(store, "u", OTHER)
    lock(store, "r", OTHER)
    text = of_payload(store.keys, payload, "done")
    assert store.settle(Settlement(1, payload, "done", effects=text)) == [0]
    store.run(batches.note(store.keys, [text]))
    assert (holder(store, "u"), holder(store, "r")) == (OTHER, OTHER)


class TestInLine:
    """Who waits for a lock is handed it, the first first."""

    @pytest.mark.parametrize("ending", sorted(one for one, phases in FREED.items() if "r" in phases))
    def test_a_running_lock_is_handed_on(self, store: Store, ending: str) -> None:
        names = [f"{number:024x}" for number in (5, 3, 4)]
        payloads = [job(one, "r", enqueued_at=2.5) for one in names]
        lock(store, "r")
        for one in payloads:
            park(store, one)
        end(store, ending, job(phases="r"))
        assert holder(store, "r") == names[0]
        assert store.queue("a")[0] == payloads[0], "it is next to run"
        assert waiting(store) == names[1:]
        assert store.ask("HKEYS", store.keys.parked) == [name.encode() for name in names[1:]]
        for place in (0, 1, 2):
            store.ask("LREM", "queue:a", 1, payloads[place])
            effect = of_payload(store.keys, payloads[place], "done")
            store.run(batches.note(store.keys, [effect]))
        assert left_of_keys(store) == set()
        assert not store.ask("EXISTS", store.keys.broken)

    def test_a_job_that_waits_to_be_pushed_gets_the_lock_and_its_place_in_the_queue(self, store: Store) -> None:
        store.push("a", b"earlier")
        lock(store, "u")
        park(store, job(OTHER, "u"), "u")
        end(store, "deleted", job(phases="u"))
        assert holder(store, "u") == OTHER
        first, second = store.queue("a")
        assert first == b"earlier"
        pushed = json.loads(second)
        assert abs(pushed.pop("enqueued_at") - store.now()) < 60
        assert pushed == json.loads(job(OTHER, "u"))
        value = store.ask("HGET", store.keys.lock("u", SCOPE), KEY)
        assert value.decode().split()[2] == DIGEST, "of its own arguments"
        assert left_of_keys(store) == {store.keys.lock("u", SCOPE)}

    def test_one_that_is_due_later_goes_into_the_schedule(self, store: Store) -> None:
        due = f"{store.now() + 60:.6f}"
        lock(store, "u")
        park(store, job(OTHER, "u"), "u", due=due)
        end(store, "deleted", job(phases="u"))
        assert store.ask("ZRANGE", "schedule", 0, -1) == [job(OTHER, "u")]
        assert float(store.ask("ZSCORE", "schedule", job(OTHER, "u"))) == float(due)
        assert holder(store, "u") == OTHER

    def test_one_that_ended_while_it_waited_is_passed_over(self, store: Store) -> None:
        lock(store, "r")
        park(store, job(OTHER))
        store.ask("HDEL", store.keys.parked, OTHER)
        park(store, job("a" * 24))
        end(store, "done", job())
        assert holder(store, "r") == "a" * 24
        assert left_of_keys(store) == {store.keys.lock("r", SCOPE)}


class TestLatest:
    @pytest.mark.parametrize("ending", sorted(FREED))
    @pytest.mark.parametrize("ran_with_it", [False, True])
    def test_the_newest_arguments_stay_until_they_are_stored_or_not_needed(
        self, store: Store, ending: str, ran_with_it: bool
    ) -> None:
        found = effects(store.keys, json.loads(job(phases="w")), ending, EndingFacts(latest=ran_with_it))
        over = ending in ("done", "failed", "discarded", "gone", "expired", "cancelled", "deleted", "trimmed")
        stored = ending in ("retry", "snoozed", "interrupted", "dead", "kept", "invalid", "poisoned")
        assert (("unlatest", OURS) in found) == (over or (stored and ran_with_it))

    def test_the_effect_takes_that_of_this_job_alone(self, store: Store) -> None:
        store.ask("HSET", store.keys.latest, OURS, "1", OTHER, "2")
        end(store, "done", job(phases="w"))
        assert store.ask("HKEYS", store.keys.latest) == [OTHER.encode()]


class TestMemory:
    def test_what_no_hex_names_is_remembered_as_it_stands(self, store: Store) -> None:
        payload = job("ruby-ish 12", "o")
        lock(store, "o", "ruby-ish 12")
        end(store, "done", payload)
        (memory,) = [one for one in store.all_keys() if one.startswith("hm:once:")]
        assert store.ask("HVALS", memory) == [b"Sruby-ish 12"]
        assert left_of_keys(store) == set()

    def test_two_lengths_are_two_memories(self, store: Store) -> None:
        for once_for in (60, 86_400):
            lock(store, "o")
            end(store, "done", job(phases="o", hm={"once_for": once_for}))
        lengths = {one.split(":")[2] for one in store.all_keys() if one.startswith("hm:once:")}
        assert lengths == {"60", "86400"}

    @pytest.mark.parametrize("off", [1, -1, -2])
    def test_what_succeeded_before_the_clock_went_back_is_remembered(self, store: Store, off: int) -> None:
        """Its generation has not come yet, by the clock as it is now: else a job of that key ran a second time."""
        lock(store, "o")
        end(store, "done", job(phases="o"))
        (memory,) = [one for one in store.all_keys() if one.startswith("hm:once:")]
        head, generation, bucket = memory.rsplit(":", 2)
        store.ask("RENAME", memory, f"{head}:{int(generation) + off}:{bucket}")
        held, known = store.run(locks.look(store.keys, SCOPE, KEY, 604_800))
        assert held == []
        assert known is not None
        assert (known.letter, known.jid) == ("s", OURS)


class TestRevived:
    @pytest.mark.parametrize("phase", ["o", "u"])
    def test_it_takes_its_key_again(self, store: Store, phase: str) -> None:
        payload = job(phases=phase)
        store.ask("ZADD", "dead", 1, payload)
        text = of_payload(store.keys, payload, "revived")
        assert store.move("dead", Move(payload, payload, "a", effects=text)) == [1]
        assert holder(store, phase) == OURS

    @pytest.mark.parametrize("phase", ["o", "u"])
    def test_it_stays_dead_while_another_has_the_key(self, store: Store, phase: str) -> None:
        payload = job(phases=phase)
        store.ask("ZADD", "dead", 1, payload)
        lock(store, phase, OTHER)
        text = of_payload(store.keys, payload, "revived")
        assert store.move("dead", Move(payload, payload, "a", effects=text)) == [f"HELD {OTHER}".encode()]
        assert store.members("dead") == [payload]
        assert store.queue("a") == []
        assert holder(store, phase) == OTHER

    def test_it_stays_dead_when_another_has_succeeded_since(self, store: Store) -> None:
        lock(store, "o", OTHER)
        end(store, "done", job(OTHER, "o"))
        payload = job(phases="o")
        store.ask("ZADD", "dead", 1, payload)
        text = of_payload(store.keys, payload, "revived")
        assert store.move("dead", Move(payload, payload, "a", effects=text)) == [f"HELD {OTHER}".encode()]

    def test_a_message_that_looks_so_refuses_nothing(self, store: Store) -> None:
        payload = job(phases="u", hm={"track": True})
        lock(store, "u", OTHER)
        told = EndingFacts(detail={"message": f'["relock","u","{SCOPE}"]'})
        store.ask("ZADD", "retry", 1, payload)
        assert store.move(
            "retry", Move(payload, payload, "a", effects=of_payload(store.keys, payload, "staged", told))
        ) == [1]


class TestWhatAPayloadSays:
    @pytest.mark.parametrize(
        "said",
        [
            *(None, 7, "text", {}, [], ["s", "k"], ["s", "k", ""], ["s", "k", "x"], ["s", "k", "rx"], ["s", 7, "r"]),
            *(["s\n", "k", "r"], [None, "k", "r"], ["s", "k", ["r"]], ["s", "k", "r", "more"], ["\ud800", "k", "r"]),
        ],
    )
    def test_what_nobody_can_read_counts_as_not_said(self, said: Any) -> None:
        made = {"class": "m.f", "args": [], "jid": OURS, "hm": {"key": said, "cron": "nightly"}}
        assert key_of(made) is None
        assert effects(Store("redis://").keys, made, "done") == (("cron_done", "nightly", OURS, "done"),)

    @pytest.mark.parametrize(
        ("once_for", "read"), [(60, 60), (0.5, 1), ("x", 604_800), (-1, 1), (10**12, 366 * 86_400), (None, 604_800)]
    )
    def test_the_time_of_a_memory_is_bounded(self, once_for: Any, read: int) -> None:
        found = key_of(json.loads(job(phases="o", hm={"once_for": once_for})))
        assert found == JobKey(SCOPE, KEY, "o", read)

    def test_without_an_id_it_holds_nothing(self) -> None:
        assert key_of({"hm": {"key": ["s", "k", "r"]}}) is None
        assert key_of({"jid": OURS, "hm": ["key"]}) is None

    @pytest.mark.parametrize(
        ("phases", "exclusive"), [("o", True), ("r", True), ("wr", True), ("w", False), ("u", False)]
    )
    def test_which_jobs_are_exclusive(self, phases: str, exclusive: bool) -> None:
        unit = Unit(b"", InFlightList("a", "queue:a", "f", ME, 1), 0.0)
        unit.job = json.loads(job(phases=phases))
        assert is_exclusive(unit) == (phases in ("o", "r", "wr"))
        unit.job = {"jid": OURS}
        assert not is_exclusive(unit)


@pytest.mark.parametrize("key", ["1", "None", "x" * 10_000, "a\nb", "a\x00b", "}{", "ü", '"', "\\n", " "])
@pytest.mark.parametrize("scope", ["m.f", "a:b}", "ü \x00"])
def test_keys_are_taken_byte_for_byte(store: Store, key: str, scope: str) -> None:
    payload = job(phases="or", key=key, scope=scope)
    for phase in "or":
        lock(store, phase, key=key, scope=scope)
    park(store, job(OTHER, "or", key=key, scope=scope), key=key, scope=scope)
    end(store, "done", payload)
    assert holder(store, "r", key=key, scope=scope) == OTHER
    end_of_other = of_payload(store.keys, job(OTHER, "or", key=key, scope=scope), "deleted")
    assert store.run(queues.remove(store.keys, "a", job(OTHER, "or", key=key, scope=scope), end_of_other)) == 1
    assert left_of_keys(store) == set()


def test_a_lock_that_fails_stops_no_other_effect(store: Store) -> None:
    payload = job(phases="ur")
    lock(store, "u")
    store.ask("SET", store.keys.lock("r", SCOPE), "text")
    end(store, "done", payload)
    assert holder(store, "u") is None
    (note,) = store.ask("LRANGE", store.keys.broken, 0, -1)
    assert "WRONGTYPE" in json.loads(note)["error"]


class TestUnlock:
    @pytest.mark.parametrize("where", ["before", "after"])
    def test_a_lost_answer_frees_nobody_else(self, store: Store, where: str, tmp_path: Path) -> None:
        lock(store, "r")
        park(store, job(OTHER))
        failpoints.open_points(f"drop@unlock:{where}#1", tmp_path)
        try:
            store.run(locks.unlock(store.keys, "r", SCOPE, KEY, OURS))
        finally:
            failpoints.close()
        assert holder(store, "r") == OTHER
        assert store.queue("a") == [job(OTHER)]

    def test_another_one_keeps_it(self, store: Store) -> None:
        lock(store, "u", OTHER)
        assert not store.run(locks.unlock(store.keys, "u", SCOPE, KEY, OURS))
        assert holder(store, "u") == OTHER

    def test_a_line_that_nobody_heads_goes_on(self, store: Store) -> None:
        park(store, job(OTHER))
        assert store.run(locks.unlock(store.keys, "r", SCOPE, KEY, ""))
        assert holder(store, "r") == OTHER


class TestTrimming:
    """What the dead set has no room for has ended, too."""

    def dead(self, store: Store, count: int, phases: str = "o") -> list[bytes]:
        payloads = [job(f"{number:024x}", phases, key=str(number)) for number in range(count)]
        for number, one in enumerate(payloads):
            store.ask("ZADD", "dead", number + 1, one)
            lock(store, "o", f"{number:024x}", key=str(number))
        return payloads

    def die(self, store: Store, **settings: Any) -> None:
        store.push("a", b"last")
        store.join("a")
        store.fetch("a")
        assert store.settle(Settlement(1, b"last", "dead", b"last"), **settings) == [1]

    def test_it_takes_a_hundred_at_a_time_and_keeps_what_has_effects(self, store: Store) -> None:
        payloads = self.dead(store, 130)
        store.ask("ZADD", "dead", 0, b"plain")
        self.die(store, dead_max=10, dead_timeout=1e12)
        assert store.ask("ZCARD", "dead") == 132 - 100
        assert store.ask("LRANGE", store.keys.trimmed, 0, -1) == payloads[:99]
        self.die(store, dead_max=10, dead_timeout=1e12)
        assert store.ask("ZCARD", "dead") == 10
        assert store.ask("LLEN", store.keys.trimmed) == 121

    def test_by_age_too(self, store: Store) -> None:
        self.dead(store, 3)
        self.die(store, dead_max=100, dead_timeout=60.0)
        assert store.members("dead") == [b"last"]
        assert store.ask("LLEN", store.keys.trimmed) == 3

    def test_where_it_cannot_be_kept_it_stays_dead(self, store: Store) -> None:
        payloads = self.dead(store, 2)
        store.ask("SET", store.keys.trimmed, "text")
        self.die(store, dead_max=1, dead_timeout=1e12)
        assert store.members("dead") == [*payloads, b"last"]

    def test_the_stager_frees_their_keys(self, store: Store, redis_url: str) -> None:
        self.dead(store, 150)
        self.die(store, dead_max=0, dead_timeout=1e12)
        self.die(store, dead_max=0, dead_timeout=1e12)
        app = App(redis_url=redis_url)
        stager = Stager(app)
        until(lambda: stager.tick() > 0, "nothing is left to end")
        assert not store.ask("EXISTS", store.keys.trimmed, store.keys.lock("o", SCOPE), store.keys.broken, "dead")
        app.close()


class TestBroughtBack:
    @pytest.fixture
    def app(self, redis_url: str) -> Iterator[App]:
        made = App(redis_url=redis_url)
        yield made
        made.close()

    def test_people_are_told_who_has_the_key(self, store: Store, app: App) -> None:
        for number, one in enumerate((job(phases="u"), job("b" * 24, "u", key="free"))):
            store.ask("ZADD", "dead", number + 1, one)
        lock(store, "u", OTHER)
        acted = app.dead.retry_all()
        assert (acted.done, acted.stayed, acted.stopped) == (1, 1, False)
        assert OTHER in acted.reasons[0]
        assert holder(store, "u", key="free") == "b" * 24
        assert [json.loads(one)["jid"] for one in store.members("dead")] == [OURS]

    def test_of_a_batch(self, store: Store, app: App) -> None:
        app.job(name="m.f")(lambda: None)
        with app.batch("b") as batch:
            pass
        made = json.loads(job(phases="u", hm={"batch": batch.id}))
        free = json.loads(job("b" * 24, "u", key="free", hm={"batch": batch.id}))
        for number, one in enumerate((made, free)):
            store.ask("ZADD", store.keys.batch(batch.id) + ":dead", number + 1, json.dumps(one))
        lock(store, "u", OTHER)
        assert batch.retry(status="error") == 1
        assert holder(store, "u") == OTHER
        assert holder(store, "u", key="free") == "b" * 24
        assert store.ask("ZCARD", store.keys.batch(batch.id) + ":dead") == 1
