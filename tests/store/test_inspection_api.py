"""What an app tells and does for people and scripts: each test runs with plain methods and with awaited ones."""

from __future__ import annotations

import datetime as dt
import inspect
import json
import subprocess
import sys
from typing import Any

import pytest

from henchman import App, ArgumentError
from henchman.inspector.processes import Processes, Running
from henchman.inspector.queues import Queue, Queues
from henchman.inspector.sets import PAGE, Acted, JobSet
from henchman.store import leases, queues
from henchman.store.call import BothWays
from support.faces import Face
from support.garbage import GARBAGE, READABLE, fill, payload
from support.store import ME, Store


def jids(count: int, first: int = 0) -> list[str]:
    return [f"{n:024}" for n in range(first, first + count)]


def push(store: Store, *names: str) -> None:
    store.push("mail", *[payload(one) for one in names])


def add(store: Store, key: str, *entries: tuple[float, bytes]) -> None:
    store.ask("ZADD", key, *[part for entry in entries for part in entry])


def process(store: Store, identity: str, **info: object) -> None:
    store.ask("SADD", store.keys.processes, identity)
    store.ask("HSET", store.keys.process(identity), "info", json.dumps(info), "beat", store.now(), "busy", 1)


class TestTheApp:
    def test_attributes_do_no_input_or_output(self) -> None:
        """Nobody listens there; and nothing is loaded before somebody looks."""
        code = (
            "import sys; from henchman import App; app = App(redis_url='redis://127.0.0.1:1')\n"
            "assert not [one for one in sys.modules if one.startswith('henchman.inspector')]\n"
            "app.queues['mail'], app.retries, app.scheduled, app.dead, app.processes, app.work\n"
            "app.retries.matching('x'), app.retries.between(1, 2), repr(app.dead), bool(app.retries)\n"
            "assert app._connections is None and app._aconnections is None and 'redis' not in sys.modules\n"
        )
        subprocess.run([sys.executable, "-c", code], check=True, timeout=150)

    @pytest.mark.parametrize("kind", [Queue, Queues, JobSet, Processes, Running])
    def test_each_method_has_an_awaited_form_of_the_same_signature(self, kind: type[BothWays]) -> None:
        both_ways = {
            "between",
            "line",
            "matching",
            "fitting",
            "queue",
            "tell",
            "alive",
            "work",
            "prepare",
        }  # by either, or no I/O
        names = [one for one, it in vars(kind).items() if inspect.isfunction(it) and not one.startswith("_")]
        plain = [one for one in names if one not in both_ways and not inspect.iscoroutinefunction(getattr(kind, one))]
        for name in plain:
            awaited = getattr(kind, f"a{name}")
            assert inspect.iscoroutinefunction(awaited)
            here, there = inspect.signature(getattr(kind, name)), inspect.signature(awaited)
            assert list(here.parameters) == list(there.parameters)
            assert here.return_annotation == there.return_annotation
        assert plain

    def test_stats(self, app: App, store: Store, face: Face) -> None:
        push(store, *jids(3))
        add(store, store.keys.schedule, (9e9, payload()))
        add(store, store.keys.dead, (1.0, payload("a")), (2.0, payload("b")))
        store.ask("SET", store.keys.stat_processed, 7)
        stats = face.do(app, "stats")
        assert (stats.enqueued, stats.scheduled, stats.retries, stats.dead, stats.processed) == (3, 1, 0, 2, 7)

    def test_the_same_objects_serve_after_the_app_was_closed(self, app: App, store: Store, face: Face) -> None:
        queue = app.queues["mail"]
        push(store, "a")
        assert face.do(queue, "size") == 1
        face.run(app.aclose())
        assert face.do(queue, "size") == 1

    def test_secret_arguments_are_masked_everywhere(self, app: App, store: Store, face: Face) -> None:
        @app.job(name="pay", secret=("card",))
        def pay(card: str, *, amount: int) -> None: ...

        def one(jid: str) -> bytes:
            return payload(jid, **{"class": "pay"}, args=["4111-1111"], kwargs={"amount": 5})

        store.push("mail", one("q"))
        for key in (store.keys.schedule, store.keys.retry, store.keys.dead):
            add(store, key, (9e9, one(key)))
        process(store, ME)
        record = {"queue": "mail", "payload": one("w").decode(), "run_at": 5}
        store.ask("HSET", store.keys.work(ME), "slot", json.dumps(record))
        entries = [
            *face.walk(app.queues["mail"]),
            *(found for held in (app.scheduled, app.retries, app.dead) for found in face.walk(held)),
            *(found.entry for found in face.walk(app.work)),
            face.do(app.queues["mail"], "find", "q"),
            face.do(app.dead, "find", store.keys.dead),
            *face.walk(app.retries.matching("pay")),
        ]
        assert face.walk(app.retries.matching("4111-1111")) == [], "who searches learns no secret"
        assert [one for one in face.walk(app.retries) if b"4111-1111" in one.payload], "a program has the payload"
        assert len(entries) == 8
        assert {str(one.arguments) for one in entries} == {"(['***'], {'amount': 5})"}
        status = face.do(app, "job_status", "q")
        assert (status.state, status.args, status.kwargs) == ("enqueued", ["***"], {"amount": 5})
        assert "4111-1111" not in json.dumps(status.to_json())

    def test_job_status_of_a_handle(self, app: App, store: Store, face: Face) -> None:
        handle = app.enqueue("HardJob", 1, queue="ruby")
        status = face.do(handle, "status")
        assert (status.state, status.queue, status.position) == ("enqueued", "ruby", 1)
        assert face.do(app, "job_status", "nobody").state == "unknown"


class TestQueues:
    def test_names_and_queues(self, app: App, store: Store, face: Face) -> None:
        assert face.walk(app.queues) == []
        store.push("b", payload())
        store.push("a", payload())
        assert face.do(app.queues, "names") == ["a", "b"]
        assert [(one.name, face.do(one, "size")) for one in face.walk(app.queues)] == [("a", 1), ("b", 1)]
        assert [one.name for one in face.do(app.queues, "states")] == ["a", "b"]
        assert face.do(app.queues["nowhere"], "size") == 0
        assert "a" in app.queues
        assert "nowhere" not in app.queues
        for name in ("", 5, None):
            with pytest.raises(ArgumentError, match="no name of a queue"):
                app.queues[name]  # type: ignore[index]

    @pytest.mark.parametrize(
        "enqueued_at",
        ["{:.6f}", "{:.0f}000", '"{}"'],
        ids=["float seconds", "milliseconds", "ISO"],
    )
    def test_latency_of_what_ruby_pushed(self, app: App, store: Store, face: Face, enqueued_at: str) -> None:
        queue = app.queues["ruby"]
        assert face.do(queue, "latency") == 0
        then = store.now() - 60
        at = dt.datetime.fromtimestamp(then, dt.UTC).isoformat() if '"' in enqueued_at else then
        pushed = '{"class":"HardJob","args":["ü"],"retry":true,"queue":"ruby","jid":"%s","enqueued_at":%s}'
        store.push("ruby", (pushed % ("a" * 24, enqueued_at.format(at))).encode())
        assert face.do(queue, "latency") == pytest.approx(60, abs=30)
        (entry,) = face.walk(queue)
        assert (entry.name, entry.arguments, entry.time("enqueued_at")) == (
            "HardJob",
            (["ü"], {}),
            pytest.approx(then, abs=1),
        )
        store.push("odd", b'{"class":"HardJob","enqueued_at":{}}')
        assert face.do(app.queues["odd"], "latency") is None

    def test_pages(self, app: App, store: Store, face: Face) -> None:
        push(store, *jids(120))
        assert [one.jid for one in face.do(app.queues["mail"], "page", 0, 2)] == jids(120)[:-3:-1]
        assert len(face.do(app.queues["mail"], "page", 100)) == 20
        with pytest.raises(ArgumentError, match="first is 0 or more"):
            face.do(app.queues["mail"], "page", -1)

    def test_find_delete_clear_pause(self, app: App, store: Store, face: Face) -> None:
        queue = app.queues["mail"]
        push(store, *jids(250))
        found = face.do(queue, "find", jids(250)[3])
        assert found.payload == payload(jids(250)[3])
        assert face.do(queue, "delete", found)
        assert not face.do(queue, "delete", found)
        assert face.do(queue, "delete", jids(250)[4])
        assert not face.do(queue, "delete", "nobody")
        assert not face.do(queue, "delete", "")
        assert face.do(queue, "size") == 248
        face.do(queue, "pause")
        assert face.do(queue, "paused")
        assert store.ask("SMEMBERS", store.keys.paused) == [b"mail"]
        face.do(queue, "unpause")
        assert not face.do(queue, "paused")
        assert face.do(queue, "clear") == 248
        assert store.all_keys() == set()

    def test_a_walk_ends_with_what_was_there_when_it_began(self, app: App, store: Store, face: Face) -> None:
        push(store, *jids(3 * PAGE))
        more = iter(jids(10_000, first=100_000))
        met = face.walk(app.queues["mail"], lambda _: push(store, next(more)))
        assert [one.jid for one in met] == jids(3 * PAGE)[::-1]

    def test_a_walk_over_a_queue_that_is_worked_on(self, app: App, store: Store, face: Face) -> None:
        """Pushed to at the left, fetched from at the right, deleted from in the middle."""
        push(store, *jids(6 * PAGE))
        fetched = []

        def meanwhile(entry: Any) -> None:
            number = int(entry.jid)
            if number % 3 == 0:
                push(store, *jids(2, first=10_000 + 2 * number))
                fetched.append(json.loads(store.ask("RPOP", store.keys.queue("mail")))["jid"])
            if number % 7 == 0:
                store.ask("LREM", store.keys.queue("mail"), 1, entry.payload)
                store.ask("LREM", store.keys.queue("mail"), 1, payload(jids(1, number // 2)[0]))

        met = [one.jid for one in face.walk(app.queues["mail"], meanwhile)]
        left = {json.loads(one)["jid"] for one in store.queue("mail")}
        assert len(met) == len(set(met)), "each once"
        assert set(met) >= {one for one in left if int(one) < 10_000}, "none that stayed was passed over"
        assert len(fetched) > PAGE

    @pytest.mark.parametrize("back", [5, 60, 700])
    def test_a_walk_while_work_is_given_back(self, app: App, store: Store, face: Face, back: int) -> None:
        """Jobs that a stopping worker gives back come in at the right end, and shift the places of all others."""
        push(store, *jids(8 * PAGE))
        seen = []

        def meanwhile(entry: Any) -> None:
            seen.append(entry.jid)
            if len(seen) == 2 * PAGE:
                store.ask("RPUSH", store.keys.queue("mail"), *[payload(one) for one in jids(back, 20_000)])

        met = [one.jid for one in face.walk(app.queues["mail"], meanwhile)]
        assert [one for one in met if int(one) < 20_000] == jids(8 * PAGE)[::-1]

    def test_a_queue_that_goes_while_it_is_read(self, app: App, store: Store, face: Face) -> None:
        push(store, *jids(3 * PAGE))
        met = face.walk(app.queues["mail"], lambda _: store.ask("DEL", store.keys.queue("mail")))
        assert len(met) == PAGE, "the page that was read already"

    def test_garbage(self, app: App, store: Store, face: Face) -> None:
        fill(store, store.now())
        for queue in face.walk(app.queues):
            if queue.name != "wrong":
                assert len(face.walk(queue)) == face.do(queue, "size") == len(GARBAGE) + len(READABLE)
                assert face.do(queue, "latency") is None
                assert face.do(queue, "delete", "a" * 24)


class TestSets:
    def test_looking(self, app: App, store: Store, face: Face) -> None:
        add(store, store.keys.retry, *[(float(n), payload(f"{n:024}")) for n in range(250)])
        retries = app.retries
        assert face.do(retries, "size") == 250
        assert [one.jid for one in face.walk(retries)] == jids(250)
        assert [one.score for one in face.do(retries, "page", 10, 3)] == [10, 11, 12]
        assert face.do(retries, "find", jids(250)[7]).score == 7
        assert face.do(retries, "find", "nobody") is None
        assert face.do(retries, "find", "") is None
        assert len(face.walk(retries.matching("00000000000000000000001"))) == 11, "1, and 10 to 19"
        assert face.walk(retries.matching("nothing holds this")) == []

    @pytest.mark.parametrize("which", ["retries", "dead"])
    def test_between(self, app: App, store: Store, face: Face, which: str) -> None:
        held = getattr(app, which)
        entries = [(float(n // 3), payload(f"{n:024}")) for n in range(1500)]
        add(store, held.key, *entries, (float("inf"), b"end"), (float("-inf"), b"begin"))
        ordered = sorted((score, one) for score, one in entries)[:: -1 if which == "dead" else 1]

        def expected(low: float, high: float) -> list[bytes]:
            return [one for score, one in ordered if low <= score <= high]

        for low, high in ((0, 499), (0, 0), (100, 300), (499, 499), (499.5, 600), (7, 3), (-5, -1)):
            assert [one.payload for one in face.walk(held.between(low, high))] == expected(low, high)
        moment = dt.datetime.fromtimestamp(490, dt.UTC)
        assert len(face.walk(held.between(moment))) == 31
        assert len(face.walk(held.between(high=dt.datetime.fromtimestamp(1, dt.UTC)))) == 7
        assert len(face.walk(held.between())) == 1502
        with pytest.raises(ArgumentError, match="naive"):
            held.between(dt.datetime(2026, 1, 1))  # noqa: DTZ001
        for wrong in (float("nan"), "tomorrow", True, float("inf")):
            with pytest.raises(ArgumentError, match="is no time"):
                held.between(wrong)

    def test_acting_on_one_and_on_many(self, app: App, store: Store, face: Face) -> None:
        add(store, store.keys.retry, *[(float(n), payload(f"{n:024}")) for n in range(400)])
        entry = face.do(app.retries, "find", jids(1)[0])
        assert face.do(app.retries, "retry", entry) == Acted(1)
        assert face.do(app.retries, "retry", entry) == Acted(gone=1)
        assert face.do(app.retries, "delete", app.retries.between(1, 150)) == Acted(150)
        assert face.do(app.retries, "kill", app.retries.matching("399")) == Acted(1)
        assert face.do(app.retries, "kill", face.do(app.retries, "page", 0, 9)) == Acted(9)
        assert face.do(app.retries, "delete", []) == Acted()
        assert face.do(app.retries, "kill_all") == Acted(239)
        assert face.do(app.dead, "size") == 249
        assert face.do(app.dead, "delete", app.dead) == Acted(249), "the whole set, while it is read"
        assert [json.loads(one)["jid"] for one in store.queue("mail")] == jids(1)
        with pytest.raises(ArgumentError, match="is no entry"):
            face.do(app.retries, "retry", jids(1)[0])
        with pytest.raises(ArgumentError, match="dead already"):
            face.do(app.dead, "kill", entry)
        with pytest.raises(ArgumentError, match="dead already"):
            face.do(app.dead, "kill_all")

    def test_all_at_once(self, app: App, store: Store, face: Face) -> None:
        for key in (store.keys.schedule, store.keys.dead):
            add(store, key, *[(9e9 + n, payload(f"{n:024}")) for n in range(230)])
        assert face.do(app.dead, "retry_all") == Acted(230)
        assert face.do(app.scheduled, "clear") == Acted(230)
        assert len(store.queue("mail")) == 230
        assert store.all_keys() == {store.keys.queues, store.keys.queue("mail")}

    def test_reschedule_moves_the_same_bytes(self, app: App, store: Store, face: Face) -> None:
        odd = b'{ "class":"A",  "jid":"x", "args":[1e3, "\\u00e4"], "at": 12345678901234567890 }'
        add(store, store.keys.schedule, (9e9, odd), (9e9, payload("y")))
        entry = face.do(app.scheduled, "find", "x")
        moment = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
        assert face.do(app.scheduled, "reschedule", entry, moment)
        assert face.do(app.scheduled, "reschedule", entry, moment), "to where it is already"
        assert store.ask("ZRANGE", store.keys.schedule, 0, -1, "WITHSCORES") == [
            *(odd, b"%d" % moment.timestamp()),
            *(payload("y"), b"9000000000"),
        ]
        assert face.do(app.scheduled, "find", "x").score == moment.timestamp()

    def test_reschedule_of_what_is_gone_adds_nothing(self, app: App, store: Store, face: Face) -> None:
        add(store, store.keys.retry, (1.0, payload("x")))
        entry = face.do(app.retries, "find", "x")
        assert face.do(app.retries, "retry", entry) == Acted(1)
        assert not face.do(app.retries, "reschedule", entry, 5)
        assert store.members(store.keys.retry) == []
        for wrong in (float("nan"), float("inf"), "soon", None, True, 1e12):
            with pytest.raises(ArgumentError, match="is no time"):
                face.do(app.retries, "reschedule", entry, wrong)
        with pytest.raises(ArgumentError, match="give entries"):
            face.do(app.retries, "reschedule", "x", 5)
        with pytest.raises(ArgumentError, match="retry it"):
            face.do(app.dead, "reschedule", entry, 5)

    @pytest.mark.parametrize("which", ["scheduled", "dead"])
    @pytest.mark.parametrize("scores", [1, 7, 1000])
    def test_a_walk_while_entries_come_and_go(
        self, app: App, store: Store, face: Face, which: str, scores: int
    ) -> None:
        """Those met are deleted, others before and behind too, new ones come on both sides."""
        held = getattr(app, which)
        add(store, held.key, *[(float(n * scores // 1000), payload(f"{n:024}")) for n in range(1000)])
        gone: set[str] = set()

        def meanwhile(entry: Any) -> None:
            number = int(entry.jid)
            if number >= 1000:
                return
            going = {entry.jid} if number % 2 == 0 else set()
            if number % 5 == 0:
                going.add(jids(1, number * 7 % 1000)[0])
                add(store, held.key, (number * scores // 1000 - 0.5, payload(jids(1, 10_000 + number)[0])))
            if number % 100 == 99:
                going.update(jids(40, number - 30))
            if going:
                store.ask("ZREM", held.key, *[payload(one) for one in going])
                gone.update(going)

        met = [one.jid for one in face.walk(held, meanwhile)]
        assert len(met) == len(set(met)), "each once"
        assert set(met) >= set(jids(1000)) - gone, "none that stayed was passed over"

    def test_a_walk_over_a_set_that_is_cleared_or_moved(self, app: App, store: Store, face: Face) -> None:
        add(store, store.keys.retry, *[(float(n), payload(f"{n:024}")) for n in range(1000)])
        met = face.walk(app.retries, lambda one: app.retries.reschedule(one, 1e6 + one.score))
        assert [one.jid for one in met] == jids(1000), "moved behind the end, they are not met again"
        met = face.walk(app.retries, lambda _: store.ask("DEL", store.keys.retry))
        assert len(met) == PAGE + 1, "the page that was read already"

    def test_garbage(self, app: App, store: Store, face: Face) -> None:
        fill(store, store.now())
        every, bad = len(GARBAGE) + len(READABLE) + 2, len(GARBAGE) + 2
        for held in (app.scheduled, app.retries, app.dead):
            assert len(face.walk(held)) == every
            acted = face.do(held, "retry", held)
            assert (acted.done, acted.stayed) == (every - bad, bad)
            assert face.do(held, "clear").done == bad


class TestProcesses:
    def test_looking(self, app: App, store: Store, face: Face) -> None:
        assert face.walk(app.processes) == []
        for number in range(60):
            process(store, f"host:{number:02}:x", version="henchman")
        assert [one.identity for one in face.walk(app.processes)] == [f"host:{number:02}:x" for number in range(60)]
        assert face.do(app.processes, "size") == 60
        assert face.do(app.processes, "find", "host:07:x").identity == "host:07:x"
        store.ask("HSET", store.keys.process("no-process"), "info", "{}")
        assert face.do(app.processes, "find", "no-process") is None
        assert len(face.do(app.processes, "states")) == 60

    @pytest.mark.parametrize(("verb", "signal"), [("quiet", b"TSTP"), ("stop", b"TERM"), ("dump", b"TTIN")])
    def test_telling(self, app: App, store: Store, face: Face, verb: str, signal: bytes) -> None:
        process(store, "ruby:1:x", version="8.1.7")
        process(store, ME, version="henchman")
        assert not face.do(app.processes, verb, "ruby:1:x")
        assert store.ask("LRANGE", store.keys.signals("ruby:1:x"), 0, -1) == [signal]
        line = store.connections.open()
        line.send("SUBSCRIBE", store.keys.control(ME))
        line.read()
        assert face.do(app.processes, verb, face.do(app.processes, "find", ME))
        assert line.read()[2] == verb.encode()
        line.close()
        with pytest.raises(ArgumentError, match="there is no process 'nobody'"):
            face.do(app.processes, verb, "nobody")

    def test_an_embedded_ruby_process_is_not_killed(self, app: App, store: Store, face: Face) -> None:
        process(store, "puma:1:x", version="8.1.7", embedded=True)
        for verb in ("quiet", "stop"):
            with pytest.raises(ArgumentError, match="embedded in a Ruby program"):
                face.do(app.processes, verb, "puma:1:x")
        assert not face.do(app.processes, "dump", "puma:1:x")
        assert store.ask("LRANGE", store.keys.signals("puma:1:x"), 0, -1) == [b"TTIN"]

    def test_running_jobs_oldest_first(self, app: App, store: Store, face: Face) -> None:
        for number, identity in enumerate(("a:1:x", "b:2:x")):
            process(store, identity)
            for slot in range(3):
                record = {
                    "queue": "mail",
                    "payload": payload(f"{identity}{slot}").decode(),
                    "run_at": 10 * slot + number,
                }
                store.ask("HSET", store.keys.work(identity), f"t{slot}", json.dumps(record))
        assert [one.run_at for one in face.walk(app.work)] == [0, 1, 10, 11, 20, 21]
        assert face.do(app.work, "size") == 6
        found = face.do(app.work, "find", "b:2:x1")
        assert (found.identity, found.slot, found.queue) == ("b:2:x", "t1", "mail")
        assert face.do(app.work, "find", "nobody") is None
        assert face.do(app.work, "find", "") is None

    def test_garbage(self, app: App, store: Store, face: Face) -> None:
        fill(store, store.now())
        assert len(face.walk(app.processes)) == 5
        assert len(face.walk(app.work)) == face.do(app.work, "size") == 5
        assert not face.do(app.processes, "quiet", "\udcff:1:z")


def test_a_bad_member_does_not_stop_the_heart(store: Store) -> None:
    """What each worker asks at its heartbeat: which queues are paused, and who is on the list."""
    fill(store, store.now())
    assert store.run(queues.paused(store.keys)) == {"mail", "ghost", "\udcff"}
    known = store.run(leases.identities(store.keys))
    assert "\udcff:1:z" in known
    assert store.run(leases.record(store.keys, "\udcff:1:z"))[0]["info"] == "\ufffd"
    store.run(leases.strike_off_dead(store.keys, known))
    assert store.ask("EXISTS", store.keys.processes) == 0
