"""The rest of the demo's shop, for ``henchman demo --serve``: mail, payments, parcels, stock and the close of a day.

Some of its work fails, waits or takes long on purpose: a console then has something to show on each of its pages.
"""

from __future__ import annotations

import time
import zlib
from datetime import timedelta
from typing import Any

from henchman import Failure, Kill, current_job
from henchman.demo.jobs import app

__all__ = [
    "CardDeclined",
    "MailboxFull",
    "ServiceAway",
    "app",
    "archive",
    "charge",
    "check_vat",
    "correct",
    "count_orders",
    "merge",
    "nightly_report",
    "print_invoices",
    "rebuild_index",
    "remind",
    "report",
    "resize_picture",
    "send_mail",
    "send_newsletter",
    "set_stock",
    "ship",
    "sync_warehouse",
    "view",
]

LOOK = 0.25  # seconds between two looks of a long job at whether it should end
CLOSED = {"lyon", "porto"}  # warehouses that do not answer
DECLINED = {"10007", "10013", "10029"}  # orders whose card the bank declines


class CardDeclined(Exception):
    """The bank says no: a person has to ask the customer."""


class MailboxFull(Exception):
    """Worth another try in half an hour."""


class ServiceAway(Exception):
    """Another service does not answer; worth another try."""


def _work(seconds: float) -> None:
    time.sleep(seconds)


def _long(steps: int, what: str) -> int:
    """A long run, a step each ``LOOK``, that says how far it is and ends when it is asked to; the steps that it did."""
    job = current_job()
    for done in range(steps):
        if job.stopping or job.cancelled:
            return done
        job.progress(done, steps)
        if done % 40 == 0:
            job.log(f"{done:,} of {steps:,} {what}")
        _work(LOOK)
    return steps


# ---- orders: a key each, and a parcel that waits for its payment


@app.job(queue="payments", key="order", once=True, retry=0, backtrace=True)
def charge(order: str, cents: int) -> str:
    """Charge an order, once."""
    _work(0.03)
    if order in DECLINED:
        raise CardDeclined(f"the bank declined {cents / 100:.2f} EUR for order {order}: insufficient funds")
    return f"payment-{order}"


@app.job(queue="parcels", key="order", after=charge)
def ship(order: str) -> str:
    """Ship an order when it is paid."""
    _work(0.02)
    return f"parcel-{order}"


@app.job(queue="mail", retry=5, retry_in=1800, backtrace=True)
def send_mail(to: str, template: str) -> None:
    """Send one mail."""
    _work(0.015)
    if to.endswith("@full.example"):
        raise MailboxFull(f"552 5.2.2 {to}: the mailbox is full")


@app.job(queue="mail")
def remind(customer: int) -> None:
    """Remind a customer of the basket."""


@app.job(queue="newsletter")
def send_newsletter(customer: int, issue: str) -> None:
    """One copy of the newsletter; the queue is paused until somebody has read it once more."""


# ---- pictures and page views: what goes on all day


@app.job(queue="pictures", retry=8, retry_in=2, backtrace=True)
def resize_picture(sku: str, width: int) -> None:
    """Fails now and then, and is healed by a retry."""
    _work(0.02 + zlib.crc32(sku.encode()) % 60 / 1000)
    if current_job().attempt == 1 and zlib.crc32(f"{sku}{width}".encode()) % 23 == 0:
        raise ServiceAway("picture store answered 502")


@app.job(queue="views")
def view(sku: str) -> None:
    """Count one look at a product."""
    _work(0.004)


# ---- stock: an ordered queue, one warehouse an id


@app.ordered(queue="stock-levels", retry_in=900)
def set_stock(claim: dict[str, list[dict[str, Any]]]) -> None:
    """Write the counts of a warehouse, the oldest first."""
    for warehouse, counts in claim.items():
        if warehouse in CLOSED:
            raise ServiceAway(f"warehouse {warehouse} does not answer")
        if any(one["pieces"] < 0 for one in counts):
            raise Kill(f"{warehouse} counts fewer than no pieces")
        if warehouse == "hamburg":
            _long(7200, "shelves")


@app.cron(every=timedelta(seconds=20), name="stock-pulse")
@app.job(queue="stock")
def sync_warehouse(warehouse: str = "oslo") -> None:
    """Ask a warehouse for its counts."""
    _work(0.05)


@app.cron("0 3 * * *", tz="Europe/Berlin", name="nightly-report")
@app.cron("30 8 * * mon", tz="Europe/Paris", name="monday-report", kwargs={"kind": "week"})
@app.job(queue="reports")
def nightly_report(kind: str = "day") -> None:
    """Figures for those who do not look at a console."""


@app.job(queue="search", key="index", unique=("queued", "running"), track=True)
def rebuild_index(index: str) -> int:
    """Takes half an hour; one at a time, and at most one more waits."""
    return _long(7200, "products")


# ---- the close of a day: a workflow


@app.job(queue="reports")
def count_orders(day: str) -> int:
    """How many orders a day had."""
    _work(0.1)
    return 412


@app.job(queue="reports")
def report(day: str, country: str) -> dict[str, Any]:
    """What a country bought."""
    _work(0.1)
    return {"country": country, "orders": zlib.crc32(country.encode()) % 160}


@app.job(queue="reports")
def merge(day: str) -> int:
    """All countries together."""
    return sum(one["orders"] for one in current_job().results.values() if isinstance(one, dict))


@app.job(queue="reports")
def check_vat(day: str) -> None:
    """The answer is no, for good."""
    raise Failure("VAT number DE81159344 of order 10002 has eight digits, and should have nine")


@app.job(queue="reports")
def correct(day: str) -> str:
    """Runs because the check failed."""
    return "1 invoice is put aside"


@app.job(queue="reports", track=True)
def print_invoices(day: str) -> int:
    """Long: it says how far it is."""
    return _long(7200, "invoices")


@app.job(queue="reports")
def archive(day: str) -> None:
    """Waits for the invoices."""
