"""What the shop's customers and staff do, for ``henchman demo --serve``.

``python -m henchman.demo.trade`` pushes a day's work, prints ``ready`` with the id of its workflow when all of it
stands where it should, and goes on selling until a signal ends it.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Callable

from henchman.demo.shop import (
    CLOSED,
    app,
    archive,
    charge,
    check_vat,
    correct,
    count_orders,
    merge,
    print_invoices,
    rebuild_index,
    remind,
    report,
    resize_picture,
    send_mail,
    send_newsletter,
    set_stock,
    ship,
    view,
)

__all__ = ["main"]

DAY = "2026-03-02"
COUNTRIES = ("DE", "FR", "PL", "CZ", "SE", "JP")
LIMIT = 60.0  # seconds until everything stands where it should
PAUSE = 0.5  # seconds between two looks of the customers


def main() -> None:
    """Set everything up, say so, and sell until SIGTERM, or until the demo is gone."""
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    app.mark_deploy("shop 42")
    flow = _close_the_day()
    _sales()
    _mail()
    _stock()
    rebuild_index.enqueue("products")
    _until(_stands, stopped)
    second = rebuild_index.enqueue("products")
    _until(lambda: second.status().state == "blocked", stopped)
    print(f"ready {flow}", flush=True)
    parent, days = os.getppid(), itertools.count(10_100)
    while not stopped.wait(PAUSE) and os.getppid() == parent:
        _sell(next(days))
    app.close()


def _close_the_day() -> str:
    with app.workflow(f"Close of {DAY}", tags=["accounting"]) as flow:
        count = flow.add(count_orders.call(DAY))
        parts = [flow.add(report.call(DAY, one), name=f"report {one}", after=[count]) for one in COUNTRIES]
        total = flow.add(merge.call(DAY), after=parts, results=True)
        checked = flow.add(check_vat.call(DAY), after=[count])
        mended = flow.add(correct.call(DAY), after=[checked], on_failed="run")
        printed = flow.add(print_invoices.call(DAY), after=[total, mended])
        flow.add(archive.call(DAY), after=[printed])
    return flow.id


def _sales() -> None:
    for number in range(10_000, 10_040):
        ship.enqueue(str(number))
        charge.enqueue(str(number), 990 + number % 7 * 450)


def _mail() -> None:
    for name in ("ada", "jun", "zoë"):
        send_mail.enqueue(f"{name}@full.example", "parcel-sent")
    for customer in range(5):
        remind.using(delay=3600 * (customer + 1)).enqueue(4000 + customer)
    app.queues["newsletter"].pause()
    send_newsletter.enqueue_many((customer, "spring") for customer in range(240))


def _stock() -> None:
    for version, pieces in enumerate((120, 118, 97), start=1):
        set_stock.push("hamburg", {"pieces": pieces}, score=version)
        for warehouse in sorted(CLOSED):
            set_stock.push(warehouse, {"pieces": pieces}, score=version)
    set_stock.push("gdańsk", {"pieces": -3}, score=1)
    for hours, warehouse in enumerate(("oslo", "praha", "łódź"), start=1):
        set_stock.push(warehouse, {"pieces": 40 * hours}, score=1, delay=3600 * hours)
    app.crons.pause("monday-report")


def _stands() -> bool:
    """Whether what should be dead, retried, blocked and in flight is."""
    stats = app.ordered_queues["stock-levels"].stats()
    running = sum(1 for _ in app.work)
    return (
        app.dead.size() >= 3
        and app.retries.size() >= 3
        and stats.morgue_length == 1
        and stats.busy >= 1
        and running >= 3  # the index, the invoices, Hamburg's shelves
    )


def _until(fact: Callable[[], bool], stopped: threading.Event) -> None:
    end = time.monotonic() + LIMIT
    while not fact():
        if stopped.wait(0.1):
            raise SystemExit
        if time.monotonic() > end:
            raise SystemExit(f"the shop was not set up after {LIMIT:g} s")


def _sell(number: int) -> None:
    """Half a second of a shop."""
    view.enqueue_many((f"KIT-{number + one}",) for one in range(5))
    resize_picture.enqueue(f"KIT-{number}", 640)
    if number % 6 == 0:
        ship.enqueue(str(number))
        charge.enqueue(str(number), 1990)
        send_mail.enqueue(f"customer-{number}@shop.example", "thank-you")
    set_stock.push("wien", {"pieces": number % 90}, score=number)
    if number % 20 == 0:
        set_stock.push("hamburg", {"pieces": number % 90}, score=number)


if __name__ == "__main__":
    main()
