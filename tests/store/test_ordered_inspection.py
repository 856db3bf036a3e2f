"""Ordered queues for people: figures, ids, pages, actions; each with plain methods and with awaited ones."""

from __future__ import annotations

import copy
import inspect
import json

import pytest

from henchman import App, ArgumentError
from henchman.inspector.ordered import OrderedQueue as Face_of_queue
from henchman.inspector.ordered import OrderedQueues
from henchman.inspector.sets import PAGE, Acted
from henchman.store import leases
from henchman.store.call import BothWays
from henchman.store.ordered import Push, Verdict
from support.faces import Face
from support.ordered import FAR, LOOK, OrderedQueue
from support.store import ME, Store

HOSTILE = "[red]\x1b[2J\u202e*?"


@pytest.fixture
def queue(store: Store) -> OrderedQueue:
    made = OrderedQueue(store, "products")
    made.join(ME)
    return made


@pytest.fixture
def seen(app: App, queue: OrderedQueue) -> Face_of_queue:
    return app.ordered_queues["products"]


def end(queue: OrderedQueue, name: str, verdict: str, delay: float = 1e6, count: int = 0, error: str = "Boom") -> None:
    """Push one payload for an id, and end its run so."""
    queue.put(name, b'{"n":1}', 5)
    [(token, one)] = queue.take(ME)
    assert queue.settle(ME, Verdict(token, one.id, verdict, delay, count, error)) == [1]


def four(queue: OrderedQueue) -> int:
    """One id dead, one retrying, one in flight with arrivals, one waiting till far away; the token of the claim."""
    end(queue, "dead", "to_morgue", error="Boom: for good")
    end(queue, "again", "retry", 1e6, 3, "Boom: again")
    queue.put("held", b'{"n":2}', 1)
    queue.put("held", b'{"n":3}', 2)
    [(token, _)] = queue.take(ME)
    queue.put("held", b'{"n":4}', 3, FAR)
    queue.put("later", b'{"n":5}', 4, FAR)
    return token


def ids(found: object) -> list[str]:
    return [one.id for one in found]  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", [Face_of_queue, OrderedQueues])
def test_each_method_has_an_awaited_form_of_the_same_signature(kind: type[BothWays]) -> None:
    iterated = {"by_time", "by_retry_count", "by_id", "busy", "morgue", "morgue_by_id"}
    names = [one for one, it in vars(kind).items() if inspect.isfunction(it) and not one.startswith("_")]
    plain = [one for one in names if one not in iterated and not inspect.iscoroutinefunction(getattr(kind, one))]
    for name in plain:
        here, there = inspect.signature(getattr(kind, name)), inspect.signature(getattr(kind, f"a{name}"))
        assert (here.parameters, here.return_annotation) == (there.parameters, there.return_annotation)
    assert plain


class TestFigures:
    def test_of_nothing(self, app: App, face: Face) -> None:
        assert face.do(app.ordered_queues, "names") == []
        assert face.do(app.ordered_queues, "get", "products") is None
        stats = face.do(app.ordered_queues["products"], "stats")
        assert stats == ("products", 0, 0, 0.0, 0, 0, 0, 0, 0, False, None, "", None)
        for name in ("", 5, None):
            with pytest.raises(ArgumentError, match="no name of a queue"):
                app.ordered_queues[name]  # type: ignore[index]

    def test_of_one_in_each_state(self, app: App, queue: OrderedQueue, seen: Face_of_queue, face: Face) -> None:
        four(queue)
        stats = face.do(seen, "stats")
        assert (stats.length, stats.busy, stats.fresh, stats.retries, stats.morgue_length) == (2, 1, 1, 1, 1)
        assert (stats.processed, stats.failed, stats.lag) == (0, 2, 0)
        assert face.do(seen, "length") == 2
        assert face.do(app.ordered_queues, "names") == ["products"]
        assert [one.name for one in face.walk(app.ordered_queues)] == ["products"]
        assert face.do(app.ordered_queues, "get", "products").name == "products"
        assert face.do(app.ordered_queues, "stats") == [stats]
        assert stats.to_json()["length"] == 2
        counts = face.do(app, "stats")
        assert (counts.ordered, counts.ordered_busy, counts.morgue, counts.enqueued) == (2, 1, 1, 0)

    def test_lag(self, queue: OrderedQueue, seen: Face_of_queue, face: Face) -> None:
        """The first that nobody holds; an id in flight that is overdue says nothing."""
        for name in ("a", "b", "c"):
            queue.put(name)
        [(_, one), *_] = queue.take(ME, claims=1)
        queue.set_due(one.id, 1)
        queue.set_due(b"b", queue.store.now() - 60)
        assert face.do(seen, "stats").lag == pytest.approx(60, abs=30)
        queue.take(ME)
        queue.overdue()
        assert face.do(seen, "stats").lag == 0

    def test_failed_ones_in_flight_are_no_retries(self, queue: OrderedQueue, seen: Face_of_queue, face: Face) -> None:
        end(queue, "a", "retry", 0)
        assert face.do(seen, "stats").retries == 1
        queue.put("b")
        assert len(queue.take(ME)) == 2
        stats = face.do(seen, "stats")
        assert (stats.length, stats.busy, stats.fresh, stats.retries) == (0, 2, 0, 0)
        for number in range(5):
            queue.put(str(number))
        assert face.do(seen, "stats")[1:7] == (5, 0, pytest.approx(0, abs=30), 2, 5, 0)

    def test_limits_and_where_they_come_from(self, queue: OrderedQueue, seen: Face_of_queue, face: Face) -> None:
        def limits() -> tuple[int | None, str, int | None]:
            return face.do(seen, "stats")[10:]  # type: ignore[no-any-return]

        queue.declare(limit=24, group_limit=2, separator="/")
        assert limits() == (24, "code", 2)
        queue.silence()
        face.do(seen, "set_max_parallel", 48)
        assert limits() == (48, "set", 2)
        assert queue.silence(), "who slept because of the limit looks again"
        face.do(seen, "set_max_parallel", 0)
        assert limits() == (None, "set", 2)
        face.do(seen, "set_max_parallel", None)
        assert limits() == (24, "code", 2)
        for wrong in (-1, True, 2.5, "9", 10**9):
            with pytest.raises(ArgumentError, match="is no limit"):
                face.do(seen, "set_max_parallel", wrong)

    def test_a_limit_counts_from_the_next_claim_on(self, queue: OrderedQueue, seen: Face_of_queue, face: Face) -> None:
        for number in range(5):
            queue.put(str(number))
        face.do(seen, "set_max_parallel", 2)
        assert len(queue.take(ME)) == 2
        assert queue.take(ME) == []
        face.do(seen, "set_max_parallel", 3)
        assert len(queue.take(ME)) == 1
        face.do(seen, "set_max_parallel", None)
        assert len(queue.take(ME)) == 2

    def test_pause(self, app: App, queue: OrderedQueue, seen: Face_of_queue, face: Face) -> None:
        queue.put("a")
        face.do(seen, "pause")
        assert (face.do(seen, "paused"), face.do(seen, "stats").paused) == (True, True)
        assert queue.take(ME) == []
        assert face.do(app.queues, "states") == [], "it is no plain queue"
        queue.silence()
        face.do(seen, "unpause")
        assert (face.do(seen, "paused"), queue.silence()) == (False, True)
        assert len(queue.take(ME)) == 1

    def test_lowkiq_shapes(self, app: App, queue: OrderedQueue, store: Store, face: Face) -> None:
        four(queue)
        OrderedQueue(store, "mail").put("a", when=store.now() - 60)
        shape = face.do(app.ordered_queues, "lowkiq_stats")
        lag = shape["total"]["lag"]
        assert lag == pytest.approx(60, abs=30)
        assert shape == {
            "total": {"length": 3, "morgue_length": 1, "lag": lag},
            "by_worker": {
                "mail": {"length": 1, "morgue_length": 0, "lag": lag},
                "products": {"length": 2, "morgue_length": 1, "lag": 0},
            },
        }
        products = face.do(app.ordered_queues, "lowkiq_dashboard")["queues"][1]
        assert products == {
            "name": "products",
            "lag": 0,
            "processed": 0,
            "failed": 2,
            "busy": 1,
            "enqueued": 2,
            "fresh": 1,
            "retries": 1,
            "dead": 1,
        }

    def test_lowkiq_shapes_of_nothing(self, app: App, face: Face) -> None:
        empty = {"total": {"length": 0, "morgue_length": 0, "lag": 0.0}, "by_worker": {}}
        assert face.do(app.ordered_queues, "lowkiq_stats") == empty


class TestFind:
    def test_in_flight(self, queue: OrderedQueue, seen: Face_of_queue, face: Face, store: Store) -> None:
        before = store.now()
        token = four(queue)
        found = face.do(seen, "find", "held")
        assert (found.state, found.retry_count, found.crashes, found.error) == ("in flight", -1, 0, None)
        assert [(one.score, one.value) for one in found.payloads] == [(1, {"n": 2}), (2, {"n": 3})]
        assert [one.value for one in found.arrivals] == [{"n": 4}]
        assert (found.payload_count, found.arrival_count, found.dead_count) == (2, 1, 0)
        assert before <= found.due <= found.at
        assert found.arrivals_due == FAR
        holder = found.holder
        assert (holder.identity, holder.token, holder.delivered, holder.alive) == (ME, token, 2, True)
        assert before <= holder.since <= found.at
        assert LOOK - 30 < holder.lease_left <= LOOK
        facts = json.loads(json.dumps(found.to_json()))
        assert facts["holder"]["token"] == str(token)
        assert facts["payloads"][0] == {"score": 1.0, "payload": {"n": 2}}

    def test_a_holder_that_is_gone(self, queue: OrderedQueue, seen: Face_of_queue, face: Face, store: Store) -> None:
        queue.put("a")
        queue.take(ME)
        store.ask("DEL", store.keys.lease(ME))
        holder = face.do(seen, "find", "a").holder
        assert (holder.lease_left, holder.alive, holder.delivered) == (None, False, 1)
        store.run(leases.join(store.keys, ME, [], 30_000))
        store.run(leases.entomb(store.keys, ME, force=True))
        assert not face.do(seen, "find", "a").holder.alive

    def test_the_others(self, queue: OrderedQueue, seen: Face_of_queue, face: Face, store: Store) -> None:
        four(queue)
        again, dead, later, nobody = (face.do(seen, "find", one) for one in ("again", "dead", "later", "nobody"))
        assert (again.state, again.retry_count, again.error, again.holder) == ("retrying", 3, "Boom: again", None)
        assert again.due == pytest.approx(store.now() + 1e6, abs=60)
        assert (dead.state, dead.dead_error, [one.text for one in dead.dead]) == ("dead", "Boom: for good", ['{"n":1}'])
        assert dead.died_at == pytest.approx(store.now(), abs=60)
        assert (later.state, later.due) == ("waiting", FAR)
        assert (nobody.state, nobody.due, nobody.payloads, nobody.to_json()["due"]) == ("absent", None, [], None)

    def test_crashes(self, queue: OrderedQueue, seen: Face_of_queue, face: Face) -> None:
        queue.put("a")
        queue.take(ME)
        queue.free(ME, charge=True)
        assert face.do(seen, "find", "a").crashes == 1

    def test_put_off_by_its_group(self, queue: OrderedQueue, seen: Face_of_queue, face: Face) -> None:
        queue.declare(group_limit=1, separator="/")
        queue.put("g/1", when=1)
        queue.put("g/2", when=2)
        queue.take(ME)
        first, second = face.do(seen, "find", "g/1"), face.do(seen, "find", "g/2")
        assert (first.state, first.put_off, first.due) == ("in flight", False, 1)
        assert (second.state, second.put_off, second.due) == ("waiting", True, 2)

    def test_many_payloads(self, queue: OrderedQueue, seen: Face_of_queue, face: Face) -> None:
        queue.push(*[Push(b"a", "", str(number), b"%d" % number) for number in range(50)])
        found = face.do(seen, "find", "a", 3)
        assert ([one.value for one in found.payloads], found.payload_count) == ([0, 1, 2], 50)
        with pytest.raises(ArgumentError, match="at least one"):
            face.do(seen, "find", "a", 0)

    def test_hostile_names_and_payloads(self, app: App, store: Store, face: Face) -> None:
        queue = OrderedQueue(store, HOSTILE, collapse="none")
        for name, payload in ((HOSTILE.encode(), b"\xff\x00"), (b"\xff\xfe", b"NaN"), (b"a|b|c", b'"\xed\xa0\x80"')):
            queue.put(name, payload)
        queue.join("ho|st:1:x")
        queue.take("ho|st:1:x", claims=1)
        seen = app.ordered_queues[HOSTILE]
        assert {one.id for one in face.walk(seen.by_id())} < {HOSTILE, "\udcff\udcfe", "a|b|c"}
        [held] = face.walk(seen.busy())
        assert held.holder.identity == "ho|st:1:x"
        assert face.do(seen, "find", "\udcff\udcfe").payloads[0].text == "NaN"
        assert face.do(seen, "find", HOSTILE).payloads[0].value == "\\xff\x00"
        for wrong in ("", None, 1.5, True):
            with pytest.raises(ArgumentError, match="is no id"):
                face.do(seen, "find", wrong)

    def test_a_whole_number_is_an_id(self, queue: OrderedQueue, seen: Face_of_queue, face: Face) -> None:
        queue.put("42")
        assert face.do(seen, "find", 42).state == "waiting"


class TestPages:
    @pytest.fixture
    def many(self, queue: OrderedQueue) -> list[str]:
        """More than two pages, due one after another far away."""
        names = [f"id{number:04}" for number in range(2 * PAGE + 7)]
        queue.push(*[Push(one.encode(), str(FAR + place), "", b"1") for place, one in enumerate(names)])
        return names

    def test_by_time(self, many: list[str], queue: OrderedQueue, seen: Face_of_queue, face: Face) -> None:
        queue.put("held")
        queue.take(ME)
        assert ids(face.walk(seen.by_time())) == many
        assert ids(face.walk(seen.by_time(reverse=True))) == many[::-1]
        assert ids(face.walk(seen.by_time(FAR + 10, FAR + 12))) == many[10:13]
        assert ids(face.do(seen, "page", 1, 3)) == many[:3], "the first place is that of the id in flight"
        assert ids(face.do(seen, "page", 0, 3, reverse=True)) == many[:-4:-1]
        assert ids(face.do(seen, "page", 100, 150)) == many[99:]

    def test_by_time_while_it_changes(self, many: list[str], queue: OrderedQueue, face: Face, app: App) -> None:
        """Ids that stay as they are are met once each; those that leave or come may be met."""
        gone = set(many[::3])
        left = iter(sorted(gone))

        def change(_: object) -> None:
            name = next(left, None)
            if name:
                queue.store.ask("ZREM", queue.key("due"), name)
                queue.put(f"new{name}", when=5)

        met = ids(face.walk(app.ordered_queues["products"].by_time(), change))
        assert len(met) == len(set(met))
        assert set(many) - gone <= set(met)

    def test_by_retry_count(self, queue: OrderedQueue, seen: Face_of_queue, face: Face) -> None:
        for name, count in (("b", 5), ("a", 0), ("c", 2)):
            end(queue, name, "retry", 1e6, count)
        queue.put("fresh", when=FAR)
        end(queue, "held", "retry", 0, 1)
        queue.take(ME)
        assert ids(face.walk(seen.by_retry_count())) == ["fresh", "a", "c", "b"]
        assert ids(face.walk(seen.by_retry_count(reverse=True))) == ["b", "c", "a", "fresh"]
        assert ids(face.walk(seen.by_retry_count(0))) == ["a", "c", "b"]
        assert ids(face.walk(seen.by_retry_count(1, 2))) == ["c"]
        assert ids(face.walk(seen.by_retry_count(-1, -1))) == ["fresh"]
        assert ids(face.do(seen, "page", by="retry", reverse=True)) == ["b", "c", "a"]

    def test_by_id(self, many: list[str], seen: Face_of_queue, face: Face) -> None:
        assert sorted(ids(face.walk(seen.by_id()))) == many
        assert sorted(ids(face.walk(seen.by_id("id000")))) == many[:10]
        assert ids(face.walk(seen.by_id("id*"))) == [], "a star is a star"

    def test_busy(self, many: list[str], queue: OrderedQueue, seen: Face_of_queue, face: Face) -> None:
        for name in many[:150]:
            queue.set_due(name.encode(), 1)
        queue.take(ME, claims=150)
        assert sorted(ids(face.walk(seen.busy()))) == many[:150]
        assert ids(face.walk(seen.by_time())) == many[150:]

    def test_morgue(self, queue: OrderedQueue, seen: Face_of_queue, face: Face) -> None:
        for name in ("b", "a", "c"):
            end(queue, name, "to_morgue", error=f"Boom: {name}")
        assert [(one.id, one.dead_error) for one in face.walk(seen.morgue())] == [
            ("c", "Boom: c"),
            ("a", "Boom: a"),
            ("b", "Boom: b"),
        ]
        assert ids(face.walk(seen.morgue(reverse=False))) == ["b", "a", "c"]
        assert ids(face.walk(seen.morgue(FAR))) == []
        assert sorted(ids(face.walk(seen.morgue_by_id()))) == ["a", "b", "c"]
        assert ids(face.walk(seen.morgue_by_id("a"))) == ["a"]
        assert ids(face.do(seen, "page", 0, 2, by="morgue", reverse=True)) == ["c", "a"]

    def test_what_is_no_page(self, seen: Face_of_queue, face: Face) -> None:
        for wrong in ({"first": -1}, {"most": 0}, {"by": "name"}):
            with pytest.raises(ArgumentError, match="by one of"):
                face.do(seen, "page", **wrong)


class TestActions:
    def test_by_id(self, queue: OrderedQueue, seen: Face_of_queue, face: Face) -> None:
        four(queue)
        assert face.do(seen, "revive", "dead", "nobody") == Acted(1, 1)
        assert face.do(seen, "find", "dead").state == "waiting"
        refused = face.do(seen, "kill", "again", "held")
        assert (refused.done, refused.stayed, refused.stopped) == (1, 1, False)
        assert refused.reasons == ("held: in flight; it stays as it is until its run has ended",)
        assert face.do(seen, "find", "again").dead_error == "Boom: again"
        refused = face.do(seen, "delete", "dead", "held")
        assert (refused.done, refused.stayed) == (1, 1)
        assert "what arrived meanwhile is deleted" in refused.reasons[0]
        assert face.do(seen, "find", "held").arrivals == []
        assert face.do(seen, "morgue_delete", "again") == Acted(1)
        assert face.do(seen, "run_now", "later") == Acted(1)
        assert [one.id for _, one in queue.take(ME)] == [b"later"]
        assert face.do(seen, "delete") == Acted()

    def test_run_now_keeps_the_order_of_many(self, queue: OrderedQueue, seen: Face_of_queue, face: Face) -> None:
        names = [f"{number:04}" for number in range(250)]
        queue.push(*[Push(one.encode(), str(FAR - place), "", b"1") for place, one in enumerate(names)])
        assert face.do(seen, "run_now", *names).done == 250
        assert [one.id.decode() for _, one in queue.take(ME, claims=300)] == names[::-1]

    def test_run_all_now(self, queue: OrderedQueue, seen: Face_of_queue, face: Face) -> None:
        queue.put("old", when=1)
        queue.put("held")
        [(token, _)] = [one for one in queue.take(ME) if one[1].id == b"held"]
        queue.settle(
            ME, *[Verdict(int(held), name, "release") for name, held in queue.held(ME).items() if name == b"old"]
        )
        names = [f"{number:04}" for number in range(250)]
        queue.push(*[Push(one.encode(), str(FAR + place), "", b"1") for place, one in enumerate(names)])
        acted = face.do(seen, "run_all_now")
        assert (acted.done, acted.stayed) == (250, 1)
        assert [one.id.decode() for _, one in queue.take(ME, claims=400)] == ["old", *names]
        assert queue.settle(ME, Verdict(token, b"held", "done")) == [1], "it was held all the while"

    def test_all_failed(self, queue: OrderedQueue, seen: Face_of_queue, face: Face) -> None:
        def fail(count: int) -> None:
            queue.push(*[Push(b"%04d" % number, "", "", b"1") for number in range(count)])
            taken = queue.take(ME, claims=count)
            queue.settle(ME, *[Verdict(token, one.id, "retry", 1e6, 0, "Boom") for token, one in taken])
            queue.set_due(b"0000", 1)
            [(_, one)] = queue.take(ME)
            queue.push(Push(b"fresh", str(FAR), "", b"1"), Push(b"0000", "", "9", b"arrived"))
            assert one.id == b"0000"

        fail(250)
        killed = face.do(seen, "kill_all_failed")
        assert (killed.done, killed.stayed) == (249, 1)
        assert killed.reasons == ("0000: in flight; it stays as it is until its run has ended",)
        assert face.do(seen, "stats")[1:3] == (1, 249)
        revived = face.do(seen, "revive_all")
        assert revived == Acted(249)
        assert face.do(seen, "stats")[1:3] == (250, 0)
        assert face.do(seen, "delete_all_failed").done == 0, "the revived have not failed"
        assert queue.kept().arrived[b"0000"], "what is not failed is not deleted"
        assert face.do(seen, "kill", *[f"{number:04}" for number in range(1, 250)]).done == 249
        assert face.do(seen, "morgue_delete_all") == Acted(249)
        assert ids(face.walk(seen.by_time())) == ["fresh"]

    def test_delete_all_failed(self, queue: OrderedQueue, seen: Face_of_queue, face: Face) -> None:
        for name in ("a", "b"):
            end(queue, name, "retry", 1e6, 0)
        queue.put("c", when=FAR)
        assert face.do(seen, "delete_all_failed") == Acted(2)
        assert ids(face.walk(seen.by_time())) == ["c"]
        assert queue.left() == {"due", "one"}

    def test_revive_all_ends_though_everything_dies_again(
        self, queue: OrderedQueue, store: Store, face: Face, app: App
    ) -> None:
        """Between any two calls a worker buries again what was revived."""
        queue.push(*[Push(b"%04d" % number, "", "", b"1") for number in range(150)])
        assert face.do(app.ordered_queues["products"], "kill", *[f"{number:04}" for number in range(150)]).done == 150
        run = type(store.connections).run

        class Busy:
            def run(self, call: object) -> object:
                answer = run(store.connections, call)  # type: ignore[arg-type]
                for token, one in queue.take(ME, claims=200):
                    queue.settle(ME, Verdict(token, one.id, "to_morgue", error="Boom"))
                return answer

        busy = copy.copy(store)
        busy.connections = Busy()  # type: ignore[assignment]
        acted = Face_of_queue(busy, "products").revive_all()  # type: ignore[arg-type]
        assert acted.done == 150
        assert face.do(app.ordered_queues["products"], "stats").morgue_length == 150

    def test_move_to(self, app: App, queue: OrderedQueue, seen: Face_of_queue, store: Store, face: Face) -> None:
        token = four(queue)
        queue.push(*[Push(b"%04d" % number, str(FAR + number), "7", b"1") for number in range(250)])
        other = OrderedQueue(store, "other")
        assert face.do(seen, "move_to", "other", "later", "nobody", "held")[:3] == (1, 1, 1)
        acted = face.do(seen, "move_to", app.ordered_queues["other"])
        assert (acted.done, acted.stayed) == (251, 1)
        assert acted.reasons == ("held: in flight; it stays as it is until its run has ended",)
        assert queue.settle(ME, Verdict(token, b"held", "done")) == [1]
        assert face.do(seen, "move_to", "other").done == 1
        assert other.waiting(b"0249") == [(7, b"1")]
        assert other.scores("due")[b"0249"] == FAR + 249
        assert (other.scores("retry"), other.table("err")) == ({b"again": 3}, {b"again": b"Boom: again"})
        assert queue.left() == {"morgue", "m:dead", "merr"}
        for wrong in ("products", "", 5):
            with pytest.raises(ArgumentError):
                face.do(seen, "move_to", wrong)

    def test_move_to_loses_no_equal_payloads(self, app: App, store: Store, face: Face) -> None:
        """Where a queue keeps equal payloads apart, they stay apart."""
        source, target = OrderedQueue(store, "source", collapse="none"), OrderedQueue(store, "target", collapse="none")
        source.push(Push(b"a", "", "1", b"x"), Push(b"a", "", "1", b"x"))
        target.push(Push(b"a", "", "2", b"x"))
        assert face.do(app.ordered_queues["source"], "move_to", "target") == Acted(1)
        assert target.waiting(b"a") == [(1, b"x"), (1, b"x"), (2, b"x")]

    def test_one_that_breaks_stops_nobody(self, queue: OrderedQueue, seen: Face_of_queue, face: Face) -> None:
        for name in ("a", "b", "c"):
            end(queue, name, "retry", 1e6, 0)
        queue.store.ask("SET", queue.key("m:b"), "no set")
        acted = face.do(seen, "kill_all_failed")
        assert (acted.done, acted.stayed) == (2, 1)
        assert "b: the server refused: " in acted.reasons[0]
        assert "WRONGTYPE" in acted.reasons[0]
