"""The incidents of a shop at night: what breaks, by what its page is known, and the act against it. And the links
of a page that somebody follows who does not know the console yet."""

from __future__ import annotations

import html
import time
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

from redis import Redis

from henchman import App, Concurrent
from henchman.errors import JobDeadline
from henchman.inspector.metrics import mark_deploy
from henchman.store import fair
from henchman.store.call import ask, run
from henchman.wire.payload import encode
from support.bank import parked_since
from support.worker import until, working

__all__ = ["INCIDENTS", "Content", "NightShop"]

JID = "c" * 24
_CONTROLS = frozenset({"trail", "acts", "facets", "pager", "skip"})
_VOID = frozenset({"input", "br", "meta", "link", "img", "hr", "rect", "line", "path", "circle", "use"})


class Content(HTMLParser):
    """The links of what a page tells: not those of navigation, forms, buttons and filters."""

    def __init__(self, text: str, part: str) -> None:
        super().__init__()
        self._part, self._inside, self._hidden = part, list[str](), 0
        self._open = list[tuple[str, bool]]()
        self.links = list[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        facts = {name: value or "" for name, value in attrs}
        classes = set(facts.get("class", "").split())
        hides = tag in ("nav", "form", "footer", "dialog", "header") or bool(classes & _CONTROLS)
        if tag == self._part or facts.get("id") == self._part:
            self._inside.append(tag)
        if tag == "a" and self._inside and not self._hidden and "button" not in classes:
            self.links.append(html.unescape(facts["href"]))
        if tag not in _VOID:
            self._open.append((tag, hides))
            self._hidden += hides

    def handle_endtag(self, tag: str) -> None:
        while self._open:
            opened, hides = self._open.pop()
            self._hidden -= hides
            if opened == tag:
                break
        if self._inside and self._inside[-1] == tag and not any(one == tag for one, _ in self._open):
            self._inside.pop()


class NightShop:
    """A shop at work: a worker is alive, a queue is served, jobs have run."""

    def __init__(self, app: App, redis: Redis) -> None:
        self.app, self.redis = app, redis
        self.alive("host-1:401:" + "a" * 12, queues=["mail", "default"])

        @app.job(name="shop.mail", queue="mail")
        def mail(user: int) -> None: ...

        @app.job(name="shop.sync", retry=5)
        def sync(shop: int) -> None:
            raise TimeoutError(f"shop {shop} does not answer")

        @app.job(name="shop.pay", key="order", once=True, retry=0)
        def pay(order: str) -> None:
            raise RuntimeError("the bank is closed")

        @app.job(name="shop.ship", after=pay, key="order")
        def ship(order: str) -> None: ...

        @app.job(name="shop.book", limits=[Concurrent("bank", 1)])
        def book(order: str) -> None: ...

        @app.job(name="shop.import", queue="imports", fair_by="shop")
        def import_(shop: str, file: int) -> None: ...

        @app.job(name="shop.report", deadline=3600, retry=0)
        def report(day: str) -> None:
            raise JobDeadline("its deadline passed while it ran")

        @app.ordered(queue="prices", name="shop.price")
        def price(claim: dict[str, list[Any]]) -> None:
            raise ValueError("no price is that high")

        self.mail, self.sync, self.pay, self.ship, self.price = mail, sync, pay, ship, price
        self.book, self.import_, self.report = book, import_, report
        mail.enqueue_many([(user,) for user in range(3)])

    def alive(
        self, identity: str, *, queues: list[str], ago: float = 0.0, busy: int = 0, up: float = 3600, **more: str
    ) -> None:
        """A process as its heartbeat tells."""
        now = time.time() - ago
        version = more.pop("version", "henchman 1")
        info = {"hostname": identity.split(":")[0], "pid": int(identity.split(":")[1]), "queues": queues}
        self.redis.sadd("processes", identity)
        facts = {"info": encode({**info, "concurrency": 10, "started_at": now - up, "version": version})}
        self.redis.hset(identity, mapping={**facts, "busy": busy, "beat": repr(now), "quiet": "false", **more})  # type: ignore[dict-item]

    def put(self, queue: str, name: str, **more: Any) -> bytes:
        job = {"class": name, "jid": JID, "args": [77], "queue": queue, "created_at": time.time() - 900}
        return encode({**job, "enqueued_at": time.time() - 900, **more})

    # ---- what breaks

    def no_consumer(self) -> None:
        self.redis.sadd("queues", "pay")
        self.redis.lpush("queue:pay", self.put("pay", "shop.charge"))

    def dead_host(self) -> None:
        identity = "host-3:412:" + "b" * 12
        self.alive(identity, queues=["mail"], ago=45.0, busy=1)
        work = {"queue": "mail", "run_at": time.time() - 100, "payload": self.put("mail", "shop.report").decode()}
        for name in ("work", "workers"):
            self.redis.hset(f"{identity}:{name}", "t2", encode(work))

    def poison_pill(self) -> None:
        died = {"error_class": "PoisonPill", "error_message": "3 processes died with it: 03:01 host-7, SIGSEGV"}
        self.redis.zadd("dead", {self.put("pay", "shop.resize", **died, failed_at=time.time() - 60): time.time() - 60})

    def new_error(self) -> None:
        run(self.app.connections, mark_deploy(self.app.keys, "v2.4.1"))
        self.sync.enqueue_many([(shop,) for shop in range(6)])
        with working(self.app):
            until(lambda: self.redis.zcard("retry") == 6, "six have failed")
            until(lambda: self.redis.zcard("hm:errors"), "they are in a group")
        self.mail.enqueue(4)

    def stuck_id(self) -> None:
        queue = self.app.ordered_queues["prices"]
        self.price.push("sku-13", {"price": 2**63}, score=1)
        with working(self.app):
            for failures in range(5):
                until(lambda: queue.find("sku-13").retry_count >= failures, "it failed")  # noqa: B023
                queue.run_now("sku-13")
            until(lambda: queue.find("sku-13").retry_count >= 4, "it failed five times")

    def stalled_batch(self) -> None:
        batch = self.app.batch("Import of the spring").open()
        self.mail.using(batch=batch).enqueue(1)
        self.redis.hset(f"hm:batch:{batch.id}", "created", repr(time.time() - 1200))
        self.redis.delete(f"hm:batch:{batch.id}:producer", self.app.keys.producer(batch.id))
        self.app.close()

    def nearly_full(self) -> None:
        used = int(self.redis.info("memory")["used_memory"])  # type: ignore[index]
        self.redis.config_set("maxmemory", int(used * 1.1))

    def evicts(self) -> None:
        self.redis.config_set("maxmemory-policy", "allkeys-lru")

    def slow_server(self) -> None:
        self.alive("host-5:7:" + "9" * 12, queues=["mail"], rtt_us="45000")

    def many_die(self) -> None:
        for one in range(12):
            died = {"error_class": "bank.Refused", "error_message": "no such account", "jid": f"{one:024}"}
            self.redis.zadd("dead", {self.put("pay", "shop.settle", **died): time.time() - 30 - one})

    def paused(self) -> None:
        self.app.queues["mail"].pause()

    def paused_batch(self) -> None:
        with self.app.batch("Import of the autumn") as batch:
            self.mail.enqueue(5)
        batch.pause("their server is down", by="bo")

    def late_queue(self) -> None:
        self.redis.hset("hm:objectives", "default", 20)
        self.redis.sadd("queues", "default")
        self.redis.lpush("queue:default", self.put("default", "shop.bill", enqueued_at=time.time() - 30))

    def late_scheduler(self) -> None:
        self.redis.zadd("schedule", {self.put("mail", "shop.remind"): time.time() - 240})

    def dead_dependency(self) -> None:
        self.ship.enqueue("A-1")
        self.pay.enqueue("A-1")
        with working(self.app):
            until(lambda: self.redis.zcard("dead") == 1, "what it waits for is dead")

    def stepped_clock(self) -> None:
        self.redis.hset("hm:clock", mapping={"by": "-3600", "at": repr(time.time() - 120)})

    def late_history(self) -> None:
        self.redis.xadd("hm:history", {"e": "[]"}, id=f"{int((time.time() - 300) * 1000)}-0")

    def levels(self, *minutes: tuple[int, int]) -> None:
        """What a worker wrote down in the last minutes, the earliest first: how long mail was, jobs that had ended."""
        for back, (size, ended) in zip(range(len(minutes), 0, -1), minutes, strict=True):
            line = {"at": time.time() - 60 * back, "processed": ended, "sizes": {"mail": size}}
            self.redis.lpush("hm:levels", encode(line))

    def retry_storm(self) -> None:
        self.levels((0, 0), (0, 50), (0, 100), (0, 150), (0, 200))
        self.redis.set("stat:processed", 250)
        error = {"error_class": "TimeoutError", "error_message": "the bank does not answer", "retry_count": 3}
        soon = {self.put("pay", "shop.charge", jid=f"{one:024}", **error): time.time() + 30 for one in range(1200)}
        self.redis.zadd("retry", soon)

    def growing_queue(self) -> None:
        self.levels((10, 0), (60, 90), (110, 190), (170, 260), (240, 330))
        self.mail.enqueue_many([(user,) for user in range(300)])

    def missed_cron(self) -> None:
        self.app.crons.add("nightly report", job=self.mail, every=3600, args=[7])
        self.redis.zadd("hm:cron:ticks", {"nightly report": time.time() - 2 * 3600})

    def mixed_versions(self) -> None:
        self.alive("host-2:377:" + "e" * 12, queues=["mail"], version="henchman 0.9")

    def old_code(self) -> None:
        run(self.app.connections, mark_deploy(self.app.keys, "v2.4.1", now=time.time() - 1800))
        self.alive("host-2:377:" + "e" * 12, queues=["mail"], up=1000)

    def skewed_host(self) -> None:
        self.alive("host-9:99:" + "f" * 12, queues=["mail"], skew="41.25")

    def waits_for_the_bank(self) -> None:
        """A job has waited for a place of the bank for twenty minutes."""
        self.book.enqueue("A-1")
        with working(self.app):
            until(lambda: self.app.blocked.size() == 1, "it waits for a place")
        parked_since(self.redis, 1200)

    def full_limit(self) -> None:
        identity = "host-4:433:" + "d" * 12
        self.alive(identity, queues=["default"], busy=1)
        work = {"queue": "default", "run_at": time.time() - 200, "payload": self.put("default", "shop.settle").decode()}
        for name in ("work", "workers"):
            self.redis.hset(f"{identity}:{name}", "t2", encode(work))
        self.redis.hset("hm:slots:bank:", JID, f"1 {time.time() - 200}")
        self.waits_for_the_bank()

    def closed_limit(self) -> None:
        with working(self.app):
            until(self.app.limits.all, "the limit is known")
        self.app.limits.set("bank", 0)
        self.waits_for_the_bank()

    def paused_tenant(self) -> None:
        self.import_.enqueue("acme", 1)
        run(self.app.connections, ask(fair.take_in(self.app.keys, "imports")))
        self.app.queues["imports"].line("acme").pause(reason="their server is down")

    def missed_deadlines(self) -> None:
        self.report.enqueue_many([(f"day-{one}",) for one in range(6)])
        with working(self.app):
            until(lambda: self.redis.zcard("dead") == 6, "six have died")
            until(lambda: self.redis.zcard("hm:errors"), "they are in a group")
        self.mail.enqueue(4)


INCIDENTS: dict[str, tuple[Callable[[NightShop], None], list[str], str]] = {
    "no consumer": (NightShop.no_consumer, ["shop.charge", "No worker serves queue pay"], "henchman work -q pay"),
    "dead host": (NightShop.dead_host, ["shop.report", "host-3"], "do/cancel"),
    "poison pill": (NightShop.poison_pill, ["PoisonPill", "3 processes died with it"], "do/retry"),
    "new error": (NightShop.new_error, ["TimeoutError", "does not answer", "shop.sync"], "do/retry"),
    "stuck ordered id": (NightShop.stuck_id, ["sku-13", "no price is that high"], "do/kill"),
    "stalled batch": (NightShop.stalled_batch, ["Import of the spring", "Whoever filled it is gone"], "do/close"),
    "server nearly full": (NightShop.nearly_full, ["a full server refuses jobs"], "raise maxmemory"),
    "eviction": (NightShop.evicts, ["allkeys-lru: a full server throws jobs away"], "set maxmemory-policy noeviction"),
    "slow server": (NightShop.slow_server, ["host-5", "45 ms"], "do/stop"),
    "many die": (NightShop.many_die, ["bank.Refused", "no such account"], "do/retry"),
    "paused queue": (NightShop.paused, ["Queue mail is paused"], "henchman queues unpause mail"),
    "paused batch": (NightShop.paused_batch, ["Its batch", "their server is down"], "do/resume"),
    "late queue": (NightShop.late_queue, ["shop.bill", "default"], "do/cancel"),
    "late scheduler": (NightShop.late_scheduler, ["shop.remind", "Its time has come"], "do/retry"),
    "dead dependency": (NightShop.dead_dependency, ["shop.ship", "shop.pay"], "do/release"),
    "stepped clock": (NightShop.stepped_clock, ["the server's clock went back by 3,600 s"], "see what sets it"),
    "retry storm": (NightShop.retry_storm, ["shop.charge", "the bank does not answer"], "do/retry"),
    "growing queue": (NightShop.growing_queue, ["shop.mail", "Queue mail"], "do/cancel"),
    "missed cron": (NightShop.missed_cron, ["nightly report", "shop.mail"], "do/run"),
    "mixed versions": (NightShop.mixed_versions, ["henchman 0.9", "host-2"], "do/stop"),
    "workers with old code": (NightShop.old_code, ["host-1"], "do/stop"),
    "clock of a host": (NightShop.skewed_host, ["host-9"], "do/stop"),
    "full limit": (NightShop.full_limit, ["shop.settle", "host-4"], "do/cancel"),
    "limit of 0": (NightShop.closed_limit, ["bank", "shop.book"], "henchman limits set bank 1"),
    "paused tenant": (NightShop.paused_tenant, ["imports@acme", "their server is down"], "do/resume"),
    "missed deadlines": (NightShop.missed_deadlines, ["JobDeadline", "shop.report"], "do/retry"),
    "history behind": (NightShop.late_history, ["behind", "nobody records"], "henchman history status"),
}
