"""``henchman.contrib.fastapi``: the lifespan, the app as a dependency, errors as answers, the web API as a router."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fastapi import FastAPI
from redis import Redis

from henchman import App
from henchman.contrib.fastapi import Jobs, exception_handlers, jobs_app, lifespan, router
from henchman.errors import BatchClosed, ConfigError, DuplicateJob, HistoryAway, ServerAway
from henchman.web.views import Refusal
from support.asgi import TOKEN, Answer, scope_of
from support.asgi import _ask as asked
from support.worker import jobs_in, until

pytestmark = pytest.mark.frameworks("it serves jobs and pages through FastAPI")


@pytest.fixture
def app(redis_url: str) -> Iterator[App]:
    made = App(redis_url=redis_url, api_token=TOKEN)

    @made.job(name="note", result_ttl=60, key="number", once=True, on_conflict="raise")
    def note(number: int) -> int:
        return number * 2

    yield made
    made.close()


def shop(app: App, **options: Any) -> FastAPI:
    web = FastAPI(lifespan=options.pop("within", lifespan(app)), exception_handlers=exception_handlers, **options)

    @web.post("/notes/{number}")
    async def push(number: int, jobs: Jobs) -> dict[str, str]:
        return {"jid": (await jobs.aenqueue("note", number)).jid}

    @web.get("/batches/{batch}")
    def batch(batch: str, jobs: Jobs) -> dict[str, int]:
        return {"total": jobs.batch_status(batch).total}

    return web


def within(web: FastAPI, use: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """What ``use`` returns while ``web`` is up."""

    async def live() -> Any:
        async with web.router.lifespan_context(web):
            return await use()

    return asyncio.run(asyncio.wait_for(live(), 60))


async def get(web: FastAPI, path: str, method: str = "GET", **headers: str) -> Answer:
    return await asked(web, scope_of(path, method, headers))


def test_a_job_is_pushed_and_a_worker_of_this_process_runs_it(app: App, redis: Redis) -> None:
    web = shop(app, within=lifespan(app, worker=True, concurrency=2))

    async def use() -> Any:
        answer = await get(web, "/notes/21", "POST")
        assert answer.status == 200
        return await app.aresult(answer.json["jid"], timeout=30)

    assert within(web, use) == 42
    assert within(web, use_again(web, app)) == 44, "a second life, as tests have it"
    assert not redis.keys("hm:lease:*"), "the worker said goodbye"


def use_again(web: FastAPI, app: App) -> Callable[[], Coroutine[Any, Any, Any]]:
    async def use() -> Any:
        return await app.aresult((await get(web, "/notes/22", "POST")).json["jid"], timeout=30)

    return use


def test_it_goes_around_a_lifespan_of_ones_own(app: App) -> None:
    told: list[str] = []

    @asynccontextmanager
    async def own(web: FastAPI) -> AsyncIterator[dict[str, int]]:
        assert web.state.henchman is app
        told.append("begun")
        yield {"answer": 42}
        await app.aenqueue("note", 1)
        told.append("pushed at the end")

    web = FastAPI(lifespan=lifespan(app, own))

    async def live() -> Any:
        async with web.router.lifespan_context(web) as state:
            return state

    assert asyncio.run(live()) == {"answer": 42}
    assert told == ["begun", "pushed at the end"]


def test_without_it_the_error_says_what_is_missing() -> None:
    web = FastAPI()

    @web.get("/")
    def index(jobs: Jobs) -> None: ...

    with pytest.raises(ConfigError, match=r"FastAPI\(lifespan="):
        asyncio.run(get(web, "/"))


def test_settings_are_refused_where_it_is_made(app: App) -> None:
    with pytest.raises(ConfigError, match="say worker=True as well"):
        lifespan(app, concurrency=4)
    with pytest.raises(ConfigError, match="namespace"):
        lifespan(app, worker=True, namespace="x")


def test_a_test_replaces_the_app(app: App) -> None:
    web = shop(App(redis_url="redis://127.0.0.1:1"))
    web.dependency_overrides[jobs_app] = lambda: app
    assert asyncio.run(get(web, "/notes/1", "POST")).status == 200


def test_errors_are_answers(app: App, redis: Redis) -> None:
    web = shop(app)

    async def use() -> None:
        missing = await get(web, "/batches/nosuchbatch0")
        assert (missing.status, missing.headers["content-type"]) == (404, "application/problem+json")
        assert "nosuchbatch0" in missing.json["detail"]
        assert (await get(web, "/notes/1", "POST")).status == 200
        twice = await get(web, "/notes/1", "POST")
        assert twice.status == 409
        assert "has this key" in twice.json["detail"]

    within(web, use)
    assert len(jobs_in(redis, "queue:default")) == 1


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ServerAway("redis://user:secret@host cannot be reached"), 503),
        (HistoryAway("postgresql://user:secret@host"), 503),
        (DuplicateJob("note", "abc"), 409),
        (BatchClosed("it takes no more"), 409),
    ],
)
def test_what_cannot_be_asked_is_told_without_addresses(app: App, error: Exception, status: int) -> None:
    web = FastAPI(exception_handlers=exception_handlers)

    @web.get("/")
    def index() -> None:
        raise error

    answer = asyncio.run(get(web, "/"))
    assert answer.status == status
    assert b"secret" not in answer.body
    assert ("retry-after" in answer.headers) == (status == 503)


def test_other_errors_stay_the_programs(app: App) -> None:
    web = FastAPI(exception_handlers=exception_handlers)

    @web.get("/")
    def index() -> None:
        raise Refusal(500, "mine")

    with pytest.raises(Refusal):
        asyncio.run(get(web, "/"))


def test_the_web_api_is_a_router_under_any_prefix(app: App) -> None:
    web = shop(app)
    web.include_router(router(app), prefix="/a/jobs-api")
    with app.batch("Import") as batch:
        app.enqueue("note", 7)

    async def use() -> None:
        path = f"/a/jobs-api/batches/{batch.id}"
        assert (await get(web, path)).status == 401
        opened = await get(web, path, authorization=f"Bearer {TOKEN}")
        assert (opened.status, opened.json["id"], opened.json["total"]) == (200, batch.id, 1)
        assert (await get(web, path, "POST", authorization=f"Bearer {TOKEN}")).status == 405
        assert (await get(web, "/a/jobs-api/nothing", authorization=f"Bearer {TOKEN}")).status == 404
        schema = (await get(web, "/openapi.json")).json
        assert sorted(schema["paths"]) == ["/batches/{batch}", "/notes/{number}"]

    within(web, use)


def test_pushes_of_path_functions_in_threads(app: App, redis: Redis) -> None:
    web = FastAPI(lifespan=lifespan(app))

    @web.post("/")
    def push(jobs: Jobs) -> None:
        jobs.enqueue("note", 5)

    within(web, lambda: get(web, "/", "POST"))
    until(lambda: json.loads(redis.lindex("queue:default", 0))["args"] == [5], "it is pushed")  # type: ignore[arg-type]
