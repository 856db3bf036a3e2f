"""What is handed to looks and actions by mistake is named, with the way out; nothing has happened then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from henchman import App
from henchman.errors import ArgumentError
from support.store import Store

ENTRY = " is no entry: find(jid), page() and matching(text) give entries"
JID = ": give a text, the id of a job, such as handle.jid"
JOB = ": give a text, the id of a job, or an entry that was found here"
PAGE = ": give two whole numbers, first is 0 or more, most is 1 or more"


@pytest.fixture
def app(redis_url: str) -> Iterator[App]:
    made = App(redis_url=redis_url)
    note = made.job(name="note")(lambda: None)
    for number in range(150):
        note.using(delay=60 + number).enqueue()
    note.enqueue()
    yield made
    made.close()


MISTAKES: list[tuple[Callable[[App], Any], str]] = [
    (lambda app: app.scheduled.delete(5), "5" + ENTRY),  # type: ignore[arg-type]
    (lambda app: app.scheduled.delete(None), "None" + ENTRY),  # type: ignore[arg-type]
    (lambda app: app.scheduled.delete("jid"), "'jid'" + ENTRY),  # type: ignore[arg-type]
    (lambda app: app.scheduled.delete({"jid": 1}), "{'jid': 1}" + ENTRY),  # type: ignore[arg-type]
    (lambda app: app.scheduled.retry([*app.scheduled.page(0, 5), 5]), "5" + ENTRY),  # type: ignore[list-item]
    (lambda app: app.scheduled.kill(b"jid"), "b'jid'" + ENTRY),  # type: ignore[arg-type]
    (lambda app: app.scheduled.reschedule(5, 1), "5" + ENTRY),  # type: ignore[arg-type]
    (lambda app: app.scheduled.find(5), "find(5)" + JID),  # type: ignore[arg-type]
    (lambda app: app.scheduled.find(None), "find(None)" + JID),  # type: ignore[arg-type]
    (lambda app: app.scheduled.matching(5), "matching(5): give a text, which the payload holds"),  # type: ignore[arg-type]
    (lambda app: app.scheduled.page("a"), "page('a', 50)" + PAGE),  # type: ignore[arg-type]
    (lambda app: app.scheduled.page(0.5, 1), "page(0.5, 1)" + PAGE),  # type: ignore[arg-type]
    (lambda app: app.scheduled.page(-1), "page(-1, 50)" + PAGE),
    (lambda app: app.queues["default"].page(0, 0), "page(0, 0)" + PAGE),
    (lambda app: app.queues["default"].page(True), "page(True, 50)" + PAGE),
    (lambda app: app.queues["default"].find(5), "find(5)" + JID),  # type: ignore[arg-type]
    (lambda app: app.queues["default"].delete(5), "delete(5)" + JOB),  # type: ignore[arg-type]
    (lambda app: app.queues["default"].delete(None), "delete(None)" + JOB),  # type: ignore[arg-type]
    (lambda app: asyncio.run(app.scheduled.adelete(5)), "5" + ENTRY),  # type: ignore[arg-type]
    (lambda app: asyncio.run(app.scheduled.adelete(_given(5))), "5" + ENTRY),
    (lambda app: asyncio.run(app.queues["default"].adelete(5)), "delete(5)" + JOB),  # type: ignore[arg-type]
    (lambda app: app.cancel(5), "cancel(5): give the id of a job, such as handle.jid"),  # type: ignore[arg-type]
    (lambda app: app.cancel(None), "cancel(None): give the id of a job, such as handle.jid"),  # type: ignore[arg-type]
    (lambda app: app.scheduled.delete("x" * 1000), "'" + "x" * 99 + ENTRY),  # type: ignore[arg-type]
]


async def _given(*values: Any) -> Any:
    for value in values:
        yield value


@pytest.mark.parametrize(("act", "said"), MISTAKES, ids=[said[:40] for _, said in MISTAKES])
def test_a_mistake_is_named(app: App, store: Store, act: Callable[[App], Any], said: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        act(app)
    assert str(caught.value) == said
    assert app.scheduled.size() == 150
    assert app.queues["default"].size() == 1
    assert not store.ask("EXISTS", store.keys.cancelled, store.keys.dead)
