"""Tables that are sorted by a click on the head of a column; an address says by which."""

from __future__ import annotations

import html
import re
import time

import pytest
from redis import Redis

from console.test_errors import group
from console.test_errors import write as write_errors
from console.test_metrics import write as write_figures
from henchman import App
from henchman.console.narrowing import in_order
from henchman.wire.payload import encode
from support.browsing import Browser

NOW = 1_764_000_000.0


@pytest.fixture
def browser(app: App, redis: Redis) -> Browser:
    """Three of each: of classes, queues and errors, ``b`` being the largest and ``c`` without a value."""
    write_figures(app, {"a": ([20.0] * 5, 0), "b": ([10.0] * 30, 10), "c": ([], 0), "d": ([5.0], 9)})
    for name, many, waited in (("a", 1, 300), ("b", 3, 200), ("d", 2, 100)):
        job = {"class": "work", "queue": name, "args": [], "enqueued_at": time.time() - waited}
        redis.sadd("queues", name)
        redis.lpush(f"queue:{name}", *(encode(job | {"jid": f"{name}{place:023}"}) for place in range(many)))
    app.queues["c"].pause()
    write_errors(
        app,
        group("aaa", NOW - 30, count=2, error="a", first=NOW - 300),
        group("bbb", NOW - 10, count=9, error="b", first=NOW - 200),
        group("ddd", NOW - 20, count=1, error="d", first=NOW - 400),
    )
    return Browser(app.console())


def order(browser: Browser, address: str) -> str:
    """The names of the rows, one letter each."""
    text = browser.get(address).text
    rows = re.findall(r'<tr id="[mqe]-.*?</a>', text, re.DOTALL)
    return "".join(re.sub(r"<[^>]+>|\s", "", row) for row in rows)


@pytest.mark.parametrize(
    ("page", "sort", "wanted"),
    [
        *(
            ("metrics", "name", "abd"),
            ("metrics", "done", "bad"),
            ("metrics", "share", "dba"),
            ("metrics", "mean", "abd"),
        ),
        *(("queues", "name", "abcd"), ("queues", "size", "bdac"), ("queues", "waited", "abdc")),
        *(
            ("errors", "error", "abd"),
            ("errors", "times", "bad"),
            ("errors", "first", "bad"),
            ("errors", "last", "bda"),
        ),
    ],
)
def test_by_a_column_and_turned_round(browser: Browser, page: str, sort: str, wanted: str) -> None:
    assert order(browser, f"/{page}?sort={sort}") == wanted
    turned = order(browser, f"/{page}?sort=-{sort}")
    known = wanted[:-1] if (page, sort) == ("queues", "waited") else wanted
    assert turned == known[::-1] + wanted[len(known) :], "what has no value stays last"
    assert order(browser, f"/{page}?sort=nothing") == order(browser, f"/{page}")


def test_a_click_sorts_the_next_turns_it_round_and_the_third_takes_it_back(browser: Browser) -> None:
    """The other filters stay; the first page is shown again."""
    said, seen = "/queues?q=&p=2&n=2", []
    for _ in range(3):
        text = browser.get(said).text
        [head] = re.findall(r'<th scope="col" class="n"( aria-sort="\w+")?><a href="([^"]+)">Size', text)
        said = html.unescape(head[1])
        seen.append((head[0].strip(), said))
    assert seen == [
        ("", "/queues?n=2&sort=size"),
        ('aria-sort="descending"', "/queues?n=2&sort=-size"),
        ('aria-sort="ascending"', "/queues?n=2"),
    ]


def test_texts_by_alphabet_numbers_the_largest_first_and_what_has_no_value_last() -> None:
    columns = {"text": lambda row: row[0], "number": lambda row: row[1]}
    rows = [("b", 1), ("a", None), ("c", 3)]
    assert [row[0] for row in in_order(rows, columns, "text")] == ["a", "b", "c"]
    assert [row[0] for row in in_order(rows, columns, "-text")] == ["c", "b", "a"]
    assert [row[0] for row in in_order(rows, columns, "number")] == ["c", "b", "a"]
    assert [row[0] for row in in_order(rows, columns, "-number")] == ["b", "c", "a"]
    assert in_order(rows, columns, "other") == rows
