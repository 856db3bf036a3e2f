"""Relays that are frozen, killed and superseded at any step, COMMITs of unknown fate, a server that forgets its last
moments: each committed order has exactly one job in the end, and each part of the design is needed for that.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from henchman.errors import OutboxAway, OutboxError
from henchman.outbox import relay as module
from henchman.outbox.relay import Relay
from henchman.store import outbox as store
from support.outbox import Hands, Shop, made_anew, relaying, tick_until

FORGETS = 1.9  # seconds, at most
STEPS = 350


class World:
    """A shop, its server, and relays of which each is at some step."""

    def __init__(self, shop: Shop, redis: Redis, dice: random.Random) -> None:
        self.shop, self.redis, self.dice = shop, redis, dice
        self.clock = Hands()
        self.number = 0
        self.sent, self.lease = shop.sent(), shop.lease()
        self.keys = ("queue:default", self.sent, self.lease, *("queue:charges", "hm:lock:o:charge", shop.duplicates()))
        self.actors: list[Actor] = []
        self.past: deque[tuple[float, dict[str, bytes]]] = deque()

    @contextmanager
    def relays(self, count: int) -> Iterator[None]:
        self.actors = [Actor(self) for _ in range(count)]
        try:
            yield
        finally:
            for one in self.actors:
                one.end()

    def act(self) -> None:
        """Something happens."""
        acts: list[tuple[int, Callable[[], object]]] = [
            (30, lambda: self.dice.choice(self.actors).go_on()),
            (30, self.actors[0].go_on),
            (8, self.sell),
            (2, self.roll_back),
            (3, lambda: self.redis.delete(self.lease)),
            (1, lambda: self.replace(self.dice.randrange(len(self.actors)))),
            (2, lambda: self.dice.choice(self.actors).lose_a_commit()),
            (2, self.forget),
            (2, lambda: self.dice.shuffle(self.actors)),
        ]
        self.dice.choices([one for _, one in acts], [weight for weight, _ in acts])[0]()
        self.remember()
        self.clock.now += self.dice.random() * 0.4

    def sell(self) -> None:
        many = self.dice.randint(1, 3)
        self.shop.sell(*range(self.number, self.number + many))
        self.number += many

    def roll_back(self) -> None:
        with self.shop.session() as session:
            self.shop.order(session, self.number)
            session.flush()
            session.rollback()
        self.number += 1

    def replace(self, place: int) -> None:
        """Kill a relay, and begin another."""
        self.actors[place].end()
        self.actors[place] = Actor(self)

    def remember(self) -> None:
        """What the server holds now."""
        held = {key: self.redis.dump(key) for key in self.keys}
        self.past.append((self.clock.now, {key: one for key, one in held.items() if one is not None}))  # type: ignore[misc]
        while self.past[0][0] < self.clock.now - FORGETS:
            self.past.popleft()

    def forget(self) -> None:
        """The server loses its last moments."""
        back = self.dice.randrange(len(self.past)) if self.past else 0
        while len(self.past) > back + 1:
            self.past.pop()
        if self.past:
            self.redis.delete(*self.keys)
            for key, held in self.past[-1][1].items():
                self.redis.restore(key, 0, held)

    def settle(self) -> dict[Any, int]:
        """Everybody is gone but one new relay, which finishes; what is wrong then."""
        for one in self.actors:
            one.end()
        self.redis.delete(self.lease)
        with relaying(self.shop, self.clock) as relay:
            done = lambda: not self.shop.count() and not self.redis.exists(self.sent)  # noqa: E731
            tick_until(relay, self.clock, done, 600)
        return self.shop.wrong(self.redis)


class Actor:
    """One relay, which goes on by a step at a time: whoever is not chosen is frozen."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._context = relaying(world.shop, world.clock)
        self.relay: Relay = self._context.__enter__()
        self._steps: Iterator[str] = iter(())
        self._delete = self.relay._delete
        self._ended = False

    def go_on(self) -> None:
        try:
            if next(self._steps, None) is None:
                self._steps = self.relay.steps() if self.relay._lead() else iter(())
        except store.RelayFenced:
            self.relay._dethroned()
            self._steps = iter(())
        except OutboxError:
            self._steps = iter(())

    def lose_a_commit(self) -> None:
        """The next deletion's end is unknown: it was done, or not."""
        done = self._world.dice.random() < 0.5

        def lost(ids: Any) -> None:
            self.relay._delete = self._delete  # type: ignore[method-assign]
            if done:
                self._delete(ids)
            raise OutboxAway("the COMMIT was not answered")

        self.relay._delete = lost  # type: ignore[method-assign]

    def end(self) -> None:
        """kill -9: it gives nothing back."""
        if not self._ended:
            self._ended = True
            self.relay._leader = None
            self._context.__exit__(None, None, None)


def run(seed: int, redis: Redis, redis_url: str, folder: Path) -> dict[Any, int]:
    """One history; the orders with too many jobs (or too few)."""
    url = f"sqlite:///{folder}/shop-{seed}.sqlite"
    made_anew(url)
    redis.flushall()
    shop = Shop(redis_url, url, charges=True)
    try:
        world = World(shop, redis, random.Random(seed))
        with world.relays(3):
            for _ in range(STEPS):
                world.act()
            return world.settle()
    finally:
        shop.close()


@pytest.fixture(autouse=True)
def _without_syncing(monkeypatch: pytest.MonkeyPatch) -> None:
    purpose = module.OutboxDatabase.purpose._replace(pragmas=("busy_timeout=5000", "synchronous=OFF"))
    monkeypatch.setattr(module.OutboxDatabase, "purpose", purpose)


@pytest.mark.parametrize("seed", range(8))
def test_each_committed_order_has_one_job(seed: int, redis: Redis, redis_url: str, tmp_path: Path) -> None:
    assert run(seed, redis, redis_url, tmp_path) == {}


def unfenced(patch: pytest.MonkeyPatch, redis: Redis) -> None:
    """Whoever pushes and looks does so under the token that stands there, and what is known is not asked."""

    def with_any_token(call: Any, keys: Any, outbox: str, _: str, *rest: Any) -> Any:
        return call(keys, outbox, (redis.get(keys.outbox_relay(outbox)) or b"").decode(), *rest)

    for name in ("push", "known", "forget"):
        patch.setattr(store, name, partial(with_any_token, getattr(store, name)))


def undelayed(patch: pytest.MonkeyPatch, redis: Redis) -> None:
    patch.setattr(module, "CONFIRM_AFTER", 0.0)
    patch.setattr(module, "TOGETHER", 0.0)


def unconfirmed(patch: pytest.MonkeyPatch, redis: Redis) -> None:
    patch.setattr(Relay, "_still_known", lambda self, ids: list(ids))


@pytest.mark.scale("it searches hundreds of lives of a relay for one that shows the part missing")
@pytest.mark.parametrize("without", [unfenced, undelayed, unconfirmed])
def test_no_part_can_be_left_out(
    without: Callable[..., None], redis: Redis, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, redis)
    wrong: dict[Any, int] = {}
    for seed in range(100, 160):
        with suppress(AssertionError):
            wrong = run(seed, redis, redis_url, tmp_path)
        if wrong:
            return
    pytest.fail("the model found nothing wrong without it")
