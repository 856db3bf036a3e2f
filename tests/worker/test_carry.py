"""Context variables travel with a job."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing
from contextvars import ContextVar

import pytest

from henchman import App, ArgumentError, DefinitionError, current_job
from support.worker import looker, until, working

tenant: ContextVar[str] = ContextVar("tenant")
locale: ContextVar[str | None] = ContextVar("locale", default=None)


def test_set_at_the_push_set_in_the_run_and_in_its_retry(redis_url: str) -> None:
    app = App(redis_url=redis_url, concurrency=2)
    app.carry(tenant, locale)
    seen: list[tuple[str, object, object]] = []

    @app.job(name="plain", retry_in=0.05, retry=1)
    def plain() -> None:
        seen.append(("plain", tenant.get(None), locale.get()))
        if current_job().attempt == 1:
            raise ValueError("once more")
        inner.enqueue()

    @app.job(name="inner")
    async def inner() -> None:
        await asyncio.sleep(0)
        seen.append(("inner", tenant.get(None), locale.get()))

    with working(app):
        token = tenant.set("acme")
        plain.enqueue()
        tenant.reset(token)
        until(lambda: len(seen) == 3, "two runs, and the job that the second pushed")
        asyncio.run(outside(app, inner, seen))
    assert seen[:3] == [("plain", "acme", None), ("plain", "acme", None), ("inner", "acme", None)]
    assert seen[3] == ("inner", None, "de")
    assert tenant.get(None) is None


async def outside(app: App, job: object, seen: list[tuple[str, object, object]]) -> None:
    locale.set("de")
    await job.aenqueue()  # type: ignore[attr-defined]
    await app.aclose()
    await asyncio.to_thread(until, lambda: len(seen) == 4, "the job pushed by a task")


def test_a_context_is_stored_once(redis_url: str) -> None:
    app = App(redis_url=redis_url)
    app.carry(tenant)

    @app.job(name="plain")
    def plain() -> None:
        """Not run here."""

    with closing(app), looker(redis_url) as redis:
        token = tenant.set("acme")
        plain.using(delay=60, timeout=5).enqueue()
        tenant.reset(token)
        (stored,) = redis.zrange("schedule", 0, -1)  # type: ignore[misc]
        assert json.loads(stored)["hm"] == {"delay": 60.0, "timeout": 5.0, "context": {"tenant": "acme"}}


def test_what_cannot_travel_is_named(redis_url: str) -> None:
    app = App(redis_url=redis_url)
    odd: ContextVar[object] = ContextVar("odd")
    app.carry(odd)
    with closing(app), looker(redis_url) as redis:
        token = odd.set(object())
        with pytest.raises(ArgumentError, match=r"a carried context variable cannot be sent: .*odd"):
            app.enqueue("Anything")
        odd.reset(token)
        assert redis.keys("queue:*") == []
    with pytest.raises(DefinitionError, match=r"carry\(odd, odd\)"):
        app.carry(odd, ContextVar("odd"))
    with pytest.raises(DefinitionError, match=r"carry\('odd'\): give context variables"):
        app.carry("odd")  # type: ignore[arg-type]
