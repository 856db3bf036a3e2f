"""What may be written where a job is pushed. Read by mypy and pyright only."""
# pyright: reportUnnecessaryComparison=error

from __future__ import annotations

from typing import Any, assert_type

from henchman import App
from henchman.client.job import AsyncJob, Job, Using
from henchman.client.push import Handle, Pushed

app = App()


@app.job(queue="mail", retry=5)
def send(user_id: int, *, lang: str = "en") -> str:
    return lang


@app.job
def plain(path: str, times: int = 1) -> None: ...


@app.job(queue="fast")
async def fetch(url: str, *, depth: int) -> list[bytes]:
    return []


@app.job
async def touch(url: str) -> None: ...


@app.job
def nothing() -> None: ...


@app.job
def many(a: int, b: str, c: float, d: bytes, e: str) -> None: ...


@app.job
def links(*urls: str) -> None: ...


# a job is still its function
assert_type(send(42), str)
assert_type(plain("a"), None)


async def calls() -> None:
    assert_type(await fetch("u", depth=1), list[bytes])


# a handle is of what the function returns, also for an async def
assert_type(send.enqueue(42), Handle[str])
assert_type(send.enqueue(user_id=42, lang="de"), Handle[str])
assert_type(plain.enqueue("a", 2), Handle[None])
assert_type(fetch.enqueue("u", depth=1), Handle[list[bytes]])
assert_type(touch.enqueue("u"), Handle[None])
assert_type(send.using(delay=60).enqueue(42), Handle[str])
assert_type(fetch.using(delay=60).enqueue("u", depth=2), Handle[list[bytes]])
assert_type(fetch.using(delay=60).using(queue="x").enqueue("u", depth=2), Handle[list[bytes]])


async def pushes() -> None:
    assert_type(await send.aenqueue(42), Handle[str])
    assert_type(await fetch.aenqueue("u", depth=1), Handle[list[bytes]])
    assert_type(await send.using(queue="x").aenqueue(42), Handle[str])
    assert_type(await fetch.using(queue="x").aenqueue("u", depth=1), Handle[list[bytes]])
    assert_type(await send.aenqueue_many([(1,)]), Pushed)
    await send.aenqueue_many([("1",)])  # expect-error: list-item
    await send.aenqueue("x")  # expect-error: arg-type
    await fetch.aenqueue("u")  # expect-error: call-arg
    await fetch.using(queue="x").aenqueue(1, depth=1)  # expect-error: arg-type


# wrong arguments
send.enqueue()  # expect-error: call-arg
send.enqueue("42")  # expect-error: arg-type
send.enqueue(42, "de")  # expect-error: call-arg
send.enqueue(42, lang=1)  # expect-error: arg-type
send.enqueue(42, land="de")  # expect-error: call-arg
plain.enqueue("a", "b")  # expect-error: arg-type
fetch.enqueue("u")  # expect-error: call-arg
fetch.enqueue("u", depth="1")  # expect-error: arg-type
send.using(delay=60).enqueue("42")  # expect-error: arg-type
fetch.using(delay=60).enqueue(1, depth=1)  # expect-error: arg-type
send("42")  # expect-error: arg-type

# rows
send.enqueue_many([send.call(1, lang="fr")])
assert_type(send.enqueue_many([(1,), {"user_id": 2}, send.call(3)]), Pushed)
send.enqueue_many((number,) for number in range(3))
send.enqueue_many({"user_id": number} for number in range(3))
send.enqueue_many([])
plain.enqueue_many([("a",)])
plain.enqueue_many([("a", 2)])
plain.enqueue_many(zip(["a"], [2], strict=True))
nothing.enqueue_many([(), {}])
many.enqueue_many([(1, "a", 1.5, b"", "e")])
links.enqueue_many([("a", "b")])
from_elsewhere: list[tuple[Any, ...]] = []
send.enqueue_many(from_elsewhere)
send.using(delay=60).enqueue_many([(1,), send.call(3)])
send.enqueue_many([("1",)])  # expect-error: list-item
send.enqueue_many([(1, 2)])  # expect-error: list-item
send.enqueue_many([1, 2])  # expect-error: list-item
send.enqueue_many("ab")  # expect-error: arg-type
send.enqueue_many(("x",) for number in range(3))  # expect-error: misc
send.enqueue_many([plain.call("a")])  # expect-error: list-item
plain.enqueue_many([()])  # expect-error: list-item
plain.enqueue_many([("a", "b")])  # expect-error: list-item
fetch.enqueue_many([("u",)])  # expect-error: list-item
many.enqueue_many([(1, "a", 1.5)])  # expect-error: list-item
many.enqueue_many([(1, "a", 1.5, "no", "e")])  # expect-error: list-item
links.enqueue_many([("a", 5)])  # expect-error: list-item
send.using(delay=60).enqueue_many([1])  # expect-error: list-item
send.using(delay=60).enqueue_many([plain.call("a")])  # expect-error: list-item
send.call("1")  # expect-error: arg-type
send.call(1, land="fr")  # expect-error: call-arg
fetch.call("u")  # expect-error: call-arg

# what things are
job: Job[[str, int], None] = plain
awaited: AsyncJob[[str], None] = touch
narrowed: Using[[str], None] = touch.using(queue="x")

# what is told
pushed = send.enqueue_many([])
created: int = pushed.created
pushed.created = 5  # expect-error: misc
handle = send.enqueue(1)
jid: str = handle.jid
if handle.admission == "pushed":  # expect-error: comparison-overlap
    pass
other: Handle[int] = send.enqueue(1)  # expect-error: assignment

# by name anything goes
app.enqueue("HardJob", "bob", 5, queue="ruby")
app.enqueue()  # expect-error: call-arg

# what can be a job
app.job(7)  # expect-error: call-overload
app.job(queue="mail")(7)  # expect-error: call-overload
