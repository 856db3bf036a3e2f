"""The demo's proof: the product file once more, row by row, against what the jobs left behind.

It asks the same pure functions what each row should have become. It proves that the way there, through queues, retries
and several processes, lost nothing, doubled nothing and mixed nothing up. Each function gives one line for each thing
that is wrong, and nothing when all is right.
"""

from __future__ import annotations

import csv
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from henchman.batch.batch import BatchStatus
from henchman.demo.catalogue import Catalogue, Change
from henchman.demo.products import PriceChange, Product, meant, retail
from henchman.demo.rows import Row
from henchman.history.records import Event

__all__ = ["wrong_batch", "wrong_failures", "wrong_prices", "wrong_rows"]


def wrong_rows(
    rows: Iterable[Row], events: Iterable[Event], products: Mapping[str, tuple[Product, int]]
) -> Iterator[str]:
    """Rows that are missing, doubled, or not what the file says, in history and in the catalogue."""
    known, left = defaultdict(list), dict(products)
    for one in events:
        if one.args and isinstance(one.args[0], dict):
            known[one.args[0]["number"]].append((one.status, one.message or ""))
    for row in rows:
        wanted = meant(row)
        found = known.pop(row.number, [])
        status = ("failed", wanted) if isinstance(wanted, str) else ("finished", "")
        if found != [status]:
            yield f"row {row.number} ({row.sku.strip()}): {found or 'missing'}; it should be {status}"
        elif isinstance(wanted, Product):
            stored = left.pop(wanted.sku, None)
            price = retail(wanted)
            if stored != (wanted, price):
                yield f"row {row.number} ({wanted.sku}): the catalogue has {stored}; it should have {(wanted, price)}"
    yield from (f"row {number}: in history, but not in the file" for number in known)
    yield from (f"{sku}: in the catalogue, but no row of the file asks for it" for sku in left)


def wrong_failures(path: Path, rows: Iterable[Row]) -> Iterator[str]:
    """Rows that the CSV of failures lacks, or has though the file does not refuse them, or with another reason."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = list(csv.DictReader(file))
    told = Counter((json.loads(one["arguments"])[0]["number"], one["message"]) for one in lines)
    wanted = Counter((row.number, reason) for row in rows if isinstance(reason := meant(row), str))
    for words, more in (("lacks it", wanted - told), ("has it too often", told - wanted)):
        yield from (f"row {number}: {path.name} {words}: {reason}" for number, reason in more)


def wrong_batch(status: BatchStatus, events: Iterable[Event], called: Sequence[str]) -> Iterator[str]:
    """Where the server's count of the batch, its history and its callback are not one and the same."""
    server = {name: many for name, many in status.counts.items() if many}
    recorded = Counter(one.status for one in events)
    if status.state != "complete":
        yield f"the batch is {status.state}; it should be complete"
    if server != recorded:
        yield f"the batch counts {server}, its history {dict(recorded)}"
    if status.called != {"complete": [1]}:
        yield f"callbacks were enqueued as {status.called}, and on_complete was to be, once"
    if set(called) != {status.id}:
        yield f"on_complete was run for {called}, not for {status.id}"


def wrong_prices(plan: Mapping[str, Sequence[PriceChange]], catalogue: Catalogue) -> Iterator[str]:
    """Products whose price is not their newest, or whose changes were not handled one after another."""
    now, handled = catalogue.prices(), defaultdict(list)
    for change in catalogue.changes():
        handled[change.sku].append(change)
    for sku, changes in plan.items():
        mine = handled.pop(sku, [])
        if missing := {one.version for one in changes} - {one.version for one in mine}:
            yield f"{sku}: price changes {sorted(missing)} were never handled"
        if now.get(sku) != changes[-1]:
            yield f"{sku}: the price is {now.get(sku)}; it should be {changes[-1]}"
        yield from (f"{sku}: {words}" for words in _wrong_turns(mine))
    yield from (f"{sku}: a price was changed that nobody asked to change" for sku in handled)


def _wrong_turns(changes: Sequence[Change]) -> Iterator[str]:
    """What is wrong with the order in which the changes of one product were handled, in the order of their writing."""
    if any(one.token == after.token and one.version > after.version for one, after in pairwise(changes)):
        yield "a turn did not get its changes by version"
    written = [one.version for one in changes if one.written]
    if written != sorted(written):
        yield f"the price went back: versions {written} were written in this order"
    ends: dict[tuple[float, int], float] = {}  # of each turn, by its beginning and its token
    for one in changes:
        ends[one.began, one.token] = one.ended
    for ((_, token), ended), ((began, later), _) in pairwise(sorted(ends.items())):
        if began < ended:
            yield f"two had it at once, with the tokens {token} and {later}"
        elif later <= token:
            yield f"the token {later} came after {token}"
