"""However a job ends, also by hand and before it ran, whoever waits for it is told: by a key, by an id, as a step."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from henchman import App, current_job
from henchman.batch import procedures
from henchman.store.call import run
from henchman.store.jobs import Move
from support.locks import left_of_keys
from support.store import Store
from support.worker import until, working

KINDS = ["once", "followed", "id", "step"]


class Scene:
    """``ship`` waits for ``charge``, which is in ``place``, and runs however that ends: ``needs`` is what it hears."""

    def __init__(self, app: App, store: Store, kind: str, place: str) -> None:
        self.app, self.store, self.place = app, store, place
        self.needs: dict[str, str] = {}
        on_dead: Any = "wait" if place == "dead" else "run"
        keyed = {"once": {"key": "order", "once": True}, "followed": {"key": "order", "followed": True}}
        said: dict[str, Any] = keyed.get(kind, {"followed": True} if kind == "id" else {})

        def charge(order: str) -> None:
            self.needs = {"charge": "ran"}

        def ship(order: str) -> None:
            self.needs = dict(current_job().needs)

        charging: Any = app.job(name="charge", retry=3 if place == "retry" else 0, **said)(charge)
        shipping: Any = app.job(name="ship")(ship)
        pushing = charging.using(**{"schedule": {"delay": 3600}, "expired": {"expires": 0.01}}.get(place, {}))
        self.batch: Any = app.workflow() if kind == "step" else app.batch("Orders")
        with self.batch as batch:
            if kind == "step":
                first = batch.add(pushing.call("17"))
                batch.add(shipping.call("17"), after=first, on_failed="run", on_dead=on_dead)
                self.label, self.jid = first.name, first.jid
            else:
                handle = pushing.using(batch=None if place == "dead" else batch).enqueue("17")
                shipping.using(batch=None, after=handle, on_failed="run", on_dead=on_dead).enqueue("17")
                self.label = self.jid = handle.jid
        if place in ("retry", "dead"):
            self.fails()

    def fails(self) -> None:
        """It waits for its next attempt, or has none."""
        [payload] = self.store.ask("LRANGE", "queue:default", 0, -1)
        self.store.ask("DEL", "queue:default")
        self.store.ask("ZADD", "retry", self.store.now() + 3600, payload)
        if self.place == "dead":
            assert self.app.retries.kill_all().done == 1

    def has_expired(self) -> None:
        time.sleep(0.02)

    def is_cancelled(self) -> None:
        self.app.cancel(self.jid)

    def batch_is_cancelled(self) -> None:
        self.batch.cancel()

    def batch_has_expired(self) -> None:
        run(self.app.connections, procedures.expire(self.app, self.batch.id))

    def is_deleted(self) -> None:
        there: Any = {"schedule": self.app.scheduled, "retry": self.app.retries, "dead": self.app.dead}
        if self.place == "queue":
            assert self.app.queues["default"].delete(self.jid)
        else:
            [entry] = there[self.place]
            assert there[self.place].delete(entry).done == 1

    def all_are_deleted(self) -> None:
        there: Any = {"schedule": self.app.scheduled, "retry": self.app.retries, "dead": self.app.dead}
        there.get(self.place, self.app.queues["default"]).clear()

    def is_killed(self) -> None:
        there: Any = {"schedule": self.app.scheduled, "retry": self.app.retries}
        assert there[self.place].kill_all().done == 1

    def is_trimmed(self) -> None:
        """Another one dies, and there is room for one."""
        other = json.dumps({"class": "other", "args": [], "jid": "b" * 24, "queue": "default"}).encode()
        self.store.ask("ZADD", "retry", 1, other)
        assert self.store.move("retry", Move(other, other), dead_max=1) == [1]
        assert self.store.ask("ZCARD", "dead") == 1


ENDS: list[tuple[str, Callable[[Scene], None], str]] = [
    *(("queue", act, "over") for act in (Scene.is_deleted, Scene.all_are_deleted, Scene.is_cancelled)),
    ("expired", Scene.has_expired, "over"),
    *(("schedule", act, "over") for act in (Scene.is_deleted, Scene.all_are_deleted, Scene.batch_is_cancelled)),
    ("schedule", Scene.batch_has_expired, "over"),
    ("schedule", Scene.is_killed, "dead"),
    *(("retry", act, "over") for act in (Scene.is_deleted, Scene.all_are_deleted, Scene.batch_is_cancelled)),
    ("retry", Scene.batch_has_expired, "over"),
    ("retry", Scene.is_killed, "dead"),
    *(("dead", act, "over") for act in (Scene.is_deleted, Scene.all_are_deleted, Scene.is_trimmed)),
]


def cases() -> list[Any]:
    """Each end for each kind. A dead step is kept by its batch, whose end is that of the one that waits, too."""
    found = []
    for place, act, told in ENDS:
        for kind in KINDS:
            if kind != "step" or not (place == "dead" or act in (Scene.batch_is_cancelled, Scene.batch_has_expired)):
                found.append(pytest.param(kind, place, act, told, id=f"{kind}, {place}: {act.__name__}"))
    return found


@pytest.mark.parametrize(("kind", "place", "act", "told"), cases())
def test_who_waits_is_told(
    app: App, store: Store, kind: str, place: str, act: Callable[[Scene], None], told: str
) -> None:
    scene = Scene(app, store, kind, place)
    assert app.blocked.size() == 1
    act(scene)
    with working(app):
        until(lambda: scene.needs, "it was told")
        stays = {store.keys.lock(phase, scope) for phase in "of" for scope in ("charge", "")} | {store.keys.doubt}
        until(lambda: left_of_keys(store) <= (stays if told == "dead" else set()), "nothing else is left")
    assert scene.needs == {scene.label: told}
    assert not store.ask("EXISTS", store.keys.broken)
