"""An app with very much of everything: what its console looks like after years, in half a minute."""

from __future__ import annotations

import datetime as dt
import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from henchman import App
from henchman.console.render import tilde
from henchman.history.database import Database
from henchman.inspector import audit
from henchman.inspector.operations import Wish
from henchman.oncall.finding import Finding
from henchman.store import admission, cron, days, leases, limits, operations
from henchman.store.call import Call, ask, commands, run, side_by_side
from henchman.store.failures import group_errors
from henchman.store.metrics import Counted, flush
from henchman.wire import times
from henchman.wire.payload import encode

__all__ = ["FEW", "MANY", "Crowd", "Sizes", "crowded"]

PART = 5000  # entries of one command
EVERY = 40  # members of the batch: one has failed


class Sizes(NamedTuple):
    """How many of each."""

    queued: int = 1_000_000  # the batch's among them
    members: int = 500_000
    dead: int = 100_000
    retries: int = 100_000
    ordered: int = 100_000
    processes: int = 1000
    slots: int = 10  # of each process, all at work
    groups: int = 2000
    crons: int = 300
    keys: int = 100_000
    blocked: int = 100_000
    classes: int = 60


MANY = Sizes()
FEW = Sizes(4000, 2000, 300, 300, 300, 20, 10, 200, 120, 600, 600, 30)


class Crowd(NamedTuple):
    """The app, and what its pages are about: a batch, a workflow, jobs in each state, an error, a process."""

    app: App
    batch: str
    workflow: str
    names: dict[str, str]

    def path(self, address: str) -> str:
        """An address with the names in it: ``/batches/{batch}``."""
        return address.format_map(self.names)


@contextmanager
def crowded(url: str, folder: Path, sizes: Sizes = MANY) -> Iterator[Crowd]:
    """Fill the server at ``url``, and a history in ``folder``."""
    address = f"sqlite:///{folder}/history.sqlite"
    app = App(redis_url=url, database_url=address, io_timeout=60)
    try:
        yield _Filling(app, sizes, time.time()).all(folder / "history.sqlite")
    finally:
        app.close()


def jid(kind: int, number: int) -> str:
    """An id that shows what it belongs to."""
    return f"{kind:04x}{number:020x}"


class _Filling:
    def __init__(self, app: App, sizes: Sizes, now: float) -> None:
        self.app, self.sizes, self.now = app, sizes, now
        self.keys, self.run = app.keys, app.connections.run

    def all(self, history: Path) -> Crowd:
        batch, workflow = self._batches()
        self._queues()
        group = self._errors()
        self._sets(group)
        self._ordered()
        process, running = self._processes()
        waiting = self._keyed()
        self._limits()
        self._crons()
        self._metrics()
        self._audit()
        self._operations()
        self._history(history, batch)
        self._days()
        names = {
            "day": times.day(self.now - 799),
            "batch": batch,
            "workflow": workflow,
            "error": group,
            "process": tilde(process),
            "running": running,
            "dead": jid(1, self.sizes.dead // 2),
            "retry": jid(2, self.sizes.retries // 2),
            "queued": jid(3, 7),
            "blocked": waiting,
            "member": jid(9, 17),
            "unknown": "f" * 24,
            "scope": "account",
            "key": "42",
            "id": "sku-77",
            "cron": "nightly-7",
        }
        return Crowd(self.app, batch, workflow, names)

    def _many(self, verb: str, key: str, entries: Iterable[tuple[Any, ...]]) -> None:
        """One command for some thousands of entries at a time."""
        words: list[Any] = []
        for number, entry in enumerate(entries, 1):
            words += entry
            if number % PART == 0:
                self.run(commands((verb, key, *words)))
                words = []
        if words:
            self.run(commands((verb, key, *words)))

    def _batches(self) -> tuple[str, str]:
        @self.app.job(name="shop.import_row", queue="import")
        def import_row(number: int) -> None: ...

        @self.app.job(name="shop.step", queue="import")
        def step(number: int) -> None: ...

        for number in range(40):
            with self.app.batch(f"Import of shop {number}", tags=["night"]) as small:
                import_row.enqueue_many([(number,)])
        with self.app.workflow("Close the month") as flow:
            before = [flow.add(step.call(0), name="collect")]
            for number in range(1, 120):
                one = flow.add(step.call(number), name=f"step-{number}", after=[before[number // 3]])
                before.append(one)
        with self.app.batch("Import products.csv", tags=["spring"]) as batch:
            import_row.enqueue_many((number,) for number in range(self.sizes.members))
        assert small.id != batch.id
        return batch.id, flow.id

    def _operations(self) -> None:
        """As many as are kept, at their end."""
        wish = msgspec.json.encode(Wish("delete", "dead", "shop.job7", self.now, planned=1200))
        for number in range(1, operations.KEPT + 1):
            facts = {"wish": wish, "author": "ana", "made": repr(self.now), "done": 1200, "kept": 1200}
            self.run(operations.made(self.keys, str(number), facts))
            self.run(operations.turn(self.keys, str(number), "done", ("running",)))

    def _queues(self) -> None:
        left = self.sizes.queued - self.sizes.members
        names = ["mail", "pay", "default", "reports", *(f"shop-{number}" for number in range(200))]
        self.run(commands(("SADD", self.keys.queues, *names)))
        pushed = round((self.now - 20) * 1000)
        for place, name in enumerate(names):
            many = left // 5 if place < 4 else left // 5 // 200
            text = encode(
                {"class": "shop.mail", "args": [4711, "a note"], "queue": name, "retry": True, "jid": "J" * 24}
            )
            text = text[:-1] + b',"created_at":%d,"enqueued_at":%d}' % (pushed, pushed)
            head, tail = text.split(b"J" * 24)
            some = ((head + jid(3 + place, number).encode() + tail,) for number in range(many))
            self._many("LPUSH", self.keys.queue(name), some)
        muted = [self.now + 3600, "ana", "the shop knows"]
        paused = Finding("warning", "paused", "", "", "queue", "reports")
        self.run(commands(("HSET", self.keys.findings_muted, paused.id, json.dumps(muted))))
        self.app.queues["reports"].pause("the shop is away", by="ana")

    def _errors(self) -> str:
        hour = int(self.now // 3600)
        names = [f"{number:012x}" for number in range(self.sizes.groups)]
        for first in range(0, len(names), 200):
            found = [
                {
                    "id": name,
                    "error": f"shop.errors.Failure{number % 37}",
                    "message": f"shop <n> does not answer: {'the service is away ' * 4}",
                    "place": "shop.sync:charge",
                    "trace": [f"shop/sync.py:{line}:in charge" for line in range(40)],
                    "count": number + 1,
                    "first": self.now - 86400 * (number % 9) - 60,
                    "last": self.now - number,
                    "jid": jid(1, number),
                    "jobs": {"shop.charge": number + 1},
                    "queues": {"pay": number + 1},
                    "hours": {str(hour - back): 3 for back in range(40)},
                }
                for number, name in enumerate(names[first : first + 200], first)
            ]
            self.run(group_errors(self.keys, found, self.now))
        return names[-1]

    def _sets(self, group: str) -> None:
        for kind, key, many, ahead in (
            (1, self.keys.dead, self.sizes.dead, -1),
            (2, self.keys.retry, self.sizes.retries, 1),
            (12, self.keys.schedule, self.sizes.retries, 1),
        ):
            error = {"error_class": "shop.errors.Failure", "error_message": "no answer " * 20, "retry_count": 3}
            more = {
                "error_backtrace": ["shop/sync.py:7:in charge"] * 12,
                "error_group": group,
                "failed_at": self.now - 900,
            }
            if kind == 2:
                tried = "worker-0001.shop.internal:1001:000000000001", "shop.errors.Failure", group, "no answer"
                more["error_attempts"] = [[number, self.now - 900, 0.5, *tried] for number in range(1, 4)]
                more["error_causes"] = [["shop.errors.Refused", "no answer", ["shop/sync.py:9:in ask"]]]
            fields = {"class": "shop.charge", "args": [1, "x" * 60], "queue": "pay", "retry": 25, "jid": "J" * 24}
            text = encode({**fields, "created_at": self.now - 999, **(error | more if kind < 12 else {})})
            head, tail = text.split(b"J" * 24)
            self._many(
                "ZADD",
                key,
                (
                    (repr(self.now + ahead * (60 + number)), head + jid(kind, number).encode() + tail)
                    for number in range(many)
                ),
            )

    def _ordered(self) -> None:
        @self.app.ordered(name="shop.sync", queue="products")
        def sync(claim: Any) -> None: ...

        at = self.now - 600
        sync.push_many(
            {"id": f"sku-{n}", "payload": {"price": n}, "score": n, "at": at} for n in range(self.sizes.ordered)
        )
        sync.push_many({"id": "sku-77", "payload": {"price": n, "note": "x" * 900}, "score": n} for n in range(400))
        dead = [f"sku-{number}" for number in range(self.sizes.ordered // 2, self.sizes.ordered // 2 + 2000)]
        self.app.ordered_queues["products"].kill(*dead)

    def _processes(self) -> tuple[str, str]:
        served = ["import", "mail", "pay", "default", *(f"shop-{number}" for number in range(200))]
        calls: list[Call[Any]] = []
        for number in range(self.sizes.processes):
            identity = f"worker-{number:04}.shop.internal:{1000 + number}:{number:012x}"
            info = {"hostname": identity.partition(":")[0], "pid": 1000 + number, "tag": "shop", "version": "henchman"}
            info |= {"queues": served, "started_at": self.now - 7200, "concurrency": self.sizes.slots, "labels": []}
            facts: dict[str, Any] = {
                "info": json.dumps(info),
                "concurrency": self.sizes.slots,
                "busy": self.sizes.slots,
            }
            facts |= {"beat": repr(self.now + 3600), "quiet": "false", "rss": 123_456, "rtt_us": 420}
            work = {f"t{slot}": self._running(number * self.sizes.slots + slot) for slot in range(self.sizes.slots)}
            calls.append(leases.beat(self.keys, identity, facts, work, old_work=False, every=1200))
            flights = [self.keys.in_flight(identity, 0, queue) for queue in served[:4]]
            calls.append(leases.join(self.keys, identity, flights, 3_600_000))
            fetched = [json.loads(one)["payload"] for one in work.values()]
            calls.append(commands(("LPUSH", flights[1], *fetched)))
        for first in range(0, len(calls), 100):
            run(self.app.connections, side_by_side(*map(ask, calls[first : first + 100])))
        return identity, jid(4000, (self.sizes.processes - 1) * self.sizes.slots)

    def _running(self, number: int) -> bytes:
        since = self.now - number % 800
        fields = {"class": "shop.mail", "args": [number, "a note"], "queue": "mail", "created_at": since, "retry": True}
        payload = encode({**fields, "jid": jid(4000, number)}).decode()
        return json.dumps({"queue": "mail", "payload": payload, "run_at": int(since)}).encode()

    def _keyed(self) -> str:
        """Each key of one scope is held; as many jobs wait, for two of them the most."""
        held, scope = self.sizes.keys, "account"

        def push(rows: list[admission.KeyedPush], asked: dict[str, Any]) -> None:
            call = admission.push(self.keys, "keyed", json.dumps(asked).encode(), rows, (os.urandom(6).hex(), 1))
            self.run(call)

        def payload(number: int, kind: int, key: str) -> bytes:
            ours = {"key": [scope, key, "u"]}
            fields = {"class": "shop.entry", "args": [number, key], "queue": "keyed", "retry": True}
            return encode({**fields, "jid": jid(kind, number), "created_at": self.now - 60, "hm": ours})

        for kind, many in ((5000, held), (5001, self.sizes.blocked)):
            conflict = "skip" if kind == 5000 else "wait"
            asked = {"scope": scope, "phases": "u", "conflict": conflict, "once_for": 604_800}
            for first in range(0, many, 500):
                some = [(n, str(n if kind == 5000 else n % 2)) for n in range(first, min(first + 500, many))]
                push(
                    [admission.KeyedPush(jid(kind, n), "", payload(n, kind, key), "0a1b2c3d", key) for n, key in some],
                    asked,
                )
        assert self.app.blocked.size() >= self.sizes.blocked
        return jid(5001, 3)

    def _limits(self) -> None:
        """Of one limit a place is taken for each of very many accounts, and a job waits; and many limits."""
        names = ["shop.bank", *(f"shop.limit{number}" for number in range(self.sizes.crons))]
        declared = [("c", name, 1, 0.0) for name in names[:-1]] + [("l", names[-1], 60, 60.0)]
        self.run(limits.declare(self.keys, declared))
        values = [f"account-{number}" for number in range(self.sizes.keys)]
        for first in range(0, len(values), 500):
            asked: list[tuple[Any, ...]] = []
            for number, by in enumerate(values[first : first + 500], first):
                line = limits.limit_line("shop.bank", by)
                asked.append(
                    ("HSET", self.keys.places("shop.bank", by), jid(4, number), f"{number + 1} {self.now - 9}")
                )
                asked.append(("ZADD", self.keys.awaits(line), number, jid(5001, number)))
                asked.append(("ZADD", self.keys.doubt, self.now + 600, f"s {line[1:]}"))
            self.run(commands(("SADD", self.keys.taken("shop.bank"), *values[first : first + 500]), *asked))

    def _crons(self) -> None:
        @self.app.job(name="shop.nightly")
        def nightly() -> None: ...

        self.app.crons.add("nightly", nightly, "5 4 * * *")
        text = self.run(cron.read(self.keys)).definitions["nightly"]
        self.run(cron.put(self.keys, "code", [(f"nightly-{number}", text) for number in range(self.sizes.crons)]))

    def _metrics(self) -> None:
        counts = {
            f"shop.job{number}": Counted(50 + number, number % 7, 9000, [1 if at < 9 else 0 for at in range(26)])
            for number in range(self.sizes.classes)
        }
        for minute in range(60):
            at = dt.datetime.fromtimestamp(self.now - 60 * minute, dt.UTC)
            self.run(flush(self.keys, at, counts, ("8", "7")))

    def _audit(self) -> None:
        for number in range(300):
            begun = run(self.app.connections, audit.begin(self.keys, "10.0.0.1", "retry", "dead", [jid(1, number)]))
            run(self.app.connections, audit.end(self.keys, begun, "1 job put into its queue", done=True))

    def _days(self) -> None:
        """Each of the days that are kept is full."""
        for back in range(days.DAYS_KEPT):
            at, ends = self.now - 799 - back * 86_400, days.DayEnds()
            for number in range(self.sizes.classes * 5):
                ends.counts.update({(f"shop.job{number}", "done"): 900 + number, (f"shop.job{number}", "dead"): number})
            rows = 1000 if back == 0 else 1
            texts = "shop.job1", "shop.Failure7", "the shop answered with status 502 " * 6
            ends.dead.extend(days.EndedRow(at, jid(1, number), *texts) for number in range(rows))
            ends.done.extend(days.EndedRow(at, jid(9, number), "shop.import_row") for number in range(min(rows, 200)))
            self.run(commands(*days.add(self.keys, {times.day(at): ends})))

    def _history(self, file: Path, batch: str) -> None:
        database = Database(f"sqlite:///{file}")
        database.upgrade()
        database.close()
        with sqlite3.connect(file) as sql:
            names = (
                "jid batch class queue args kwargs status attempts enqueued_at started_at ended_at message born changed"
            )
            words = ("finished",) * (EVERY - 1) + ("failed",)
            rows = (
                (
                    *(jid(9, n), batch, "shop.import_row", "import", f"[{n}]", "{}", words[n % EVERY], 1),
                    *(self.now - 900, self.now - 800, self.now - 799, None, n << 21, n << 21),
                )
                for n in range(self.sizes.members)
            )
            marks = ", ".join("?" * len(names.split()))
            sql.executemany(f"insert into henchman_events ({names.replace(' ', ', ')}) values ({marks})", rows)  # noqa: S608
            running = jid(4000, (self.sizes.processes - 1) * self.sizes.slots)
            told = [(running, number, None, self.now - 9, f"page {number} of the shop is read") for number in range(60)]
            sql.executemany("insert into henchman_messages values (?, ?, ?, ?, ?)", told)
            far = "jid, class, queue, status, attempts, progress_done, progress_total, born, changed"
            row = (running, "shop.mail", "mail", "working", 1, 60, 100, 1, 1)
            sql.execute(f"insert into henchman_events ({far}) values (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)  # noqa: S608
            sql.execute("analyze")
