"""What may be written where people look into the server. Read by mypy only."""

from __future__ import annotations

import datetime as dt
from typing import assert_type

from henchman import App
from henchman.inspector.base import Entry
from henchman.inspector.jobs import JobStatus
from henchman.inspector.metrics import Stats
from henchman.inspector.ordered import OrderedQueue
from henchman.inspector.ordered_id import Holder, OrderedId, OrderedStats
from henchman.inspector.processes import Processes, ProcessState, Running, Work
from henchman.inspector.queues import Queue, Queues, QueueState
from henchman.inspector.sets import Acted, JobSet
from henchman.store.call import Items

app = App()
soon = dt.datetime.now(dt.UTC)

# what an app has
assert_type(app.queues, Queues)
assert_type(app.retries, JobSet)
assert_type(app.scheduled, JobSet)
assert_type(app.dead, JobSet)
assert_type(app.processes, Processes)
assert_type(app.work, Running)
assert_type(app.stats(), Stats)
assert_type(app.stats().enqueued, int)
assert_type(app.job_status("jid"), JobStatus)
assert_type(app.job_status("jid", queue="mail").position, int | None)
app.queues = app.queues  # expect-error: misc
app.stats  # noqa: B018 - a method
app.retry  # expect-error: attr-defined  # noqa: B018

# queues
mail = app.queues["mail"]
assert_type(mail, Queue)
assert_type(app.queues.names(), list[str])
assert_type(app.queues.states(), list[QueueState])
assert_type(list(app.queues), list[Queue])
assert_type(list(mail), list[Entry])
assert_type(mail.size(), int)
assert_type(mail.latency(), float | None)
assert_type(mail.find("jid"), Entry | None)
assert_type(mail.page(0, 10), list[Entry])
assert_type(mail.delete("jid"), bool)
assert_type(mail.delete(mail.page()[0]), bool)
assert_type(mail.clear(), int)
mail.delete(5)  # expect-error: arg-type
app.queues[5]  # expect-error: index
len(mail)  # expect-error: arg-type

# sets
entry = app.retries.find("jid")
assert entry is not None
assert_type(entry, Entry)
assert_type(entry.score, float | None)
assert_type(app.retries.matching("text"), Items[Entry])
assert_type(app.retries.between(soon, 9e9), Items[Entry])
assert_type(app.retries.retry(entry), Acted)
assert_type(app.retries.retry(app.retries.matching("text")), Acted)
assert_type(app.retries.delete([entry]), Acted)
assert_type(app.retries.kill(app.retries), Acted)
assert_type(app.dead.retry_all(), Acted)
assert_type(app.scheduled.reschedule(entry, soon), bool)
assert_type(app.scheduled.reschedule(entry, 9e9), bool)
app.retries.retry("jid")  # expect-error: arg-type
app.scheduled.reschedule("jid", soon)  # expect-error: arg-type
app.scheduled.reschedule(entry, "soon")  # expect-error: arg-type
app.retries.between("soon")  # expect-error: arg-type

# ordered queues
products = app.ordered_queues["products"]
assert_type(products, OrderedQueue)
assert_type(app.ordered_queues.get("products"), OrderedQueue | None)
assert_type(app.ordered_queues.stats(), list[OrderedStats])
assert_type(products.stats().max_parallel, int | None)
assert_type(products.find("42"), OrderedId)
assert_type(products.find("42").holder, Holder | None)
assert_type(products.by_time(soon, 9e9, reverse=True), Items[OrderedId])
assert_type(list(products.morgue()), list[OrderedId])
assert_type(products.page(0, 10, by="retry"), list[OrderedId])
assert_type(products.revive("42", "43"), Acted)
assert_type(products.move_to(app.ordered_queues["other"]), Acted)
products.set_max_parallel(None)
products.set_max_parallel("24")  # expect-error: arg-type
products.page(by="name")  # expect-error: arg-type
products.kill(["42"])  # expect-error: arg-type

# processes and what they run
assert_type(list(app.processes), list[ProcessState])
assert_type(app.processes.find("host:1:abc"), ProcessState | None)
assert_type(app.processes.quiet("host:1:abc"), bool)
assert_type(list(app.work), list[Work])
assert_type(app.work.find("jid"), Work | None)


# awaited
async def looks() -> None:
    assert_type(await app.astats(), Stats)
    assert_type(await app.ajob_status("jid"), JobStatus)
    assert_type(await mail.asize(), int)
    assert_type(await mail.alatency(), float | None)
    assert_type(await mail.afind("jid"), Entry | None)
    assert_type(await mail.adelete("jid"), bool)
    assert_type([one async for one in app.queues], list[Queue])
    assert_type([one async for one in mail], list[Entry])
    assert_type([one async for one in app.retries.matching("text")], list[Entry])
    assert_type([one async for one in app.work], list[Work])
    assert_type(await products.afind("42"), OrderedId)
    assert_type([one async for one in products.busy()], list[OrderedId])
    assert_type(await products.arevive_all(), Acted)
    assert_type(await app.retries.aretry(app.retries.matching("text")), Acted)
    assert_type(await app.dead.aclear(), Acted)
    assert_type(await app.processes.astop("host:1:abc"), bool)
    await mail.adelete(5)  # expect-error: arg-type
    [one async for one in app.stats()]  # expect-error: attr-defined
