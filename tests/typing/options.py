"""Each option and setting under its name and of its type, and none beside them. Read by mypy and pyright only."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Unpack

from henchman import App, Concurrent, Isolated, IterableJob, Leaky, testing
from henchman.client.keywords import PushKeywords
from henchman.errors import Failure

app = App(redis_url="redis://localhost", concurrency=5, lease=timedelta(seconds=20), folder=Path("x"), imports=["jobs"])
App(
    redis_url=None,
    folder="x",
    queues=("a", "b:2"),
    max_memory="500MB",
    sidekiq="7",
    api_token="t" * 16,
    log_level="info",
)
App(redsi_url="redis://localhost")  # expect-error: call-arg
App(concurrency="5")  # expect-error: arg-type
App(imports="jobs")  # expect-error: arg-type
App(queues="mail")  # expect-error: arg-type
App(log_level="loud")  # expect-error: arg-type
App("redis://localhost")  # expect-error: call-arg
app.configure(processes=2)
app.configure(proceses=2)  # expect-error: call-arg
app.configure(lease="20")  # expect-error: arg-type
app.embed(concurrency=4)
app.embed(slots=4)  # expect-error: call-arg
testing.worker(app, concurrency=4, url="redis://localhost")
testing.worker(app, concurency=4)  # expect-error: call-arg


@app.job(isolate=True)
def in_a_process() -> None: ...


@app.job(isolate=Isolated(memory="512MB", reuse=10, grace=0.5))
async def within_limits(one: int) -> int:
    return one


in_a_process.enqueue()
within_limits.enqueue("1")  # expect-error: arg-type
app.job(isolate="yes")  # expect-error: call-overload
Isolated(reuse="1")  # expect-error: arg-type
App(isolated_memory="1GB", isolated_ready=2)


@app.job(
    name="work",
    queue="mail",
    retry=5,
    retry_in=lambda count: 5 * count,
    retry_for=timedelta(days=1),
    retry_on=(OSError, ValueError),
    no_retry_on=KeyError,
    retries_exhausted=lambda job, error: None,
    retry_queue="low",
    dead=False,
    backtrace=10,
    timeout=1.5,
    expires=60,
    tags=["vip"],
    log_level="debug",
    secret=("user_id",),
    ack="each",
    track=True,
    result_ttl=60,
)
def work(user_id: int) -> None: ...


app.job(retyr=5)  # expect-error: call-overload
app.job(retry="5")  # expect-error: call-overload
app.job(retry=1.5)  # expect-error: call-overload
app.job(name=["work"])  # expect-error: call-overload
app.job(tags="vip")  # expect-error: call-overload
app.job(timeout="30")  # expect-error: call-overload
app.job(ack="all")  # expect-error: call-overload
app.job(log_level="loud")  # expect-error: call-overload
app.job(retry_on=[5])  # expect-error: list-item
app.job(delay=5)  # expect-error: call-overload
app.job(limits=[Concurrent("bank", 5, by="user_id"), Leaky("shop", 60, per=60)], max_wait=timedelta(minutes=1))
app.job(limits=[5])  # expect-error: list-item

app.job(key="user_id", once=True, once_for=timedelta(days=30), on_conflict="raise", scope="users")
app.job(key=("user_id", "lang"), unique=("queued", "running"), throttle=5)
app.job(key=lambda user_id, **_: user_id, debounce=5, debounce_most=timedelta(minutes=1))
app.job(key=5, once=True)  # expect-error: call-overload
app.job(key=lambda user_id: 1.5, once=True)  # expect-error: arg-type, return-value
app.job(key="user_id", unique="forever")  # expect-error: call-overload
app.job(key="user_id", unique="queued", on_conflict="reschedule")  # expect-error: call-overload
work.using(again=True).enqueue(1)
work.using(key="user_id")  # expect-error: call-arg
app.enqueue("HardJob", "bob", key=5, unique="queued", foreign=True)
app.enqueue("HardJob", "bob", key=("bob", 5), once=True, foreign=True)  # expect-error: arg-type

work.using(delay=5, queue="x", retry=False, tags={"a"}, timeout=timedelta(minutes=1), track=True).enqueue(1)
work.using(at=datetime.now(UTC)).using(delay=None, batch=app.batch("x")).enqueue(1)
work.using(batch=None)
work.using(now=True).using(db="other")
work.using(now="yes")  # expect-error: arg-type
work.using(session="s")  # expect-error: arg-type
work.using(dealy=4)  # expect-error: call-arg
work.using(delay="4")  # expect-error: arg-type
work.using(at=5)  # expect-error: arg-type
work.using(tags="vip")  # expect-error: arg-type
work.using(batch="id")  # expect-error: arg-type
work.using(secret=["user_id"])  # expect-error: call-arg
work.using(delay=5).using(dealy=4)  # expect-error: call-arg


@app.job
async def later() -> None: ...


later.using(delay=4).enqueue()
later.using(dealy=4)  # expect-error: call-arg


def pushed(**options: Unpack[PushKeywords]) -> None:  # for a function of one's own that passes them on
    work.using(**options).enqueue(1)


app.enqueue("HardJob", "bob", 5, queue="ruby", dead=False, at=datetime.now(UTC))
app.enqueue("HardJob", queu="ruby")  # expect-error: call-arg
app.enqueue("HardJob", retry_on=OSError)  # expect-error: call-arg


@app.ordered(queue="products", claim_size=10, collapse="latest", track=True, timeout=5, derive=None)
def sync(claim: dict[str, list[int]]) -> None: ...


app.ordered(claim_sise=10)  # expect-error: call-overload
app.ordered(claim_size="10")  # expect-error: call-overload
app.ordered(collapse="max")  # expect-error: call-overload
app.ordered(retry=5)  # expect-error: call-overload


@app.iterable(queue="imports", max_iteration_runtime=300, retry=5)
class ImportFile(IterableJob[[str]]): ...


app.iterable(retyr=5)  # expect-error: call-overload
ImportFile.using(delay=5)
ImportFile.using(dealy=5)  # expect-error: call-arg

app.cron(every=60, missed="skip", overlap="skip", overlap_for=60)(work)
app.cron("0 9 * * *", zone="UTC")  # expect-error: call-arg
app.cron(every=60, missed="none")  # expect-error: arg-type
app.crons.add("c", work, every=60)
app.crons.add("c", work, evry=60)  # expect-error: call-arg
app.on("startup")
app.on("start")  # expect-error: arg-type
app.batch("x", on_sucess=work)  # expect-error: call-arg
app.batch("x", tags="vip")  # expect-error: arg-type


async def awaited() -> None:
    await app.crons.aadd("c", work, every=60)
    await app.crons.aadd("c", work, evry=60)  # expect-error: call-arg
    await app.aenqueue("HardJob", dealy=4)  # expect-error: call-arg
    raise Failure("no")
