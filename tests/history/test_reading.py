"""Reading: keyset pages, also while jobs go on; what changed since; failures; the search."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from henchman.config import Config
from henchman.errors import ArgumentError, HistoryAway, HistoryError
from henchman.history.database import Database
from henchman.history.reading import History
from henchman.history.recorder import Recorder
from henchman.history.records import Search
from henchman.history.search import is_wide, parse_search
from support.history import ME, Teller

BATCH = "d" * 32


def record(recorder: Recorder, teller: Teller) -> None:
    teller.flush()
    assert recorder.drain(60)


def test_pages_stay_right_while_jobs_go_on(recorder: Recorder, teller: Teller, history: History) -> None:
    for number in range(50):
        teller.enqueued(f"job-{number:02}", BATCH)
    record(recorder, teller)
    first = history.events(BATCH, limit=20)
    assert [one.jid for one in first.events] == [f"job-{number:02}" for number in range(20)]
    for number in (5, 25, 45):  # behind, ahead, and far ahead
        teller.ended(f"job-{number:02}", "failed", BATCH, ending="failed", message="no")
    teller.enqueued("job-50", BATCH)
    record(recorder, teller)
    rest = history.events(BATCH, after=first.after, limit=20)
    last = history.events(BATCH, after=rest.after, limit=20)
    assert [one.jid for one in (*rest.events, *last.events)] == [f"job-{number:02}" for number in range(20, 51)]
    assert last.after is None
    failed = history.events(BATCH, "failed", limit=2)
    assert [one.jid for one in failed.events] == ["job-05", "job-25"]
    assert [one.jid for one in history.events(BATCH, "failed", after=failed.after).events] == ["job-45"]
    both = history.events(BATCH, ("failed", "enqueued"), limit=7)
    assert [one.jid for one in both.events] == [f"job-{number:02}" for number in range(7)]
    with pytest.raises(ArgumentError, match="there is no status 'fialed'"):
        history.events(BATCH, "fialed")
    with pytest.raises(ArgumentError, match="limit = 0"):
        history.events(BATCH, limit=0)


def test_failures_are_both_kinds_in_order(recorder: Recorder, teller: Teller, history: History) -> None:
    for number in range(1100):
        teller.enqueued(f"job-{number}", BATCH)
    for number in range(1100):
        status = ("failed", "error", "finished")[number % 3]
        teller.ended(f"job-{number}", status, BATCH, ending="done", message=None)
    record(recorder, teller)
    wanted = [f"job-{number}" for number in range(1100) if number % 3 != 2]
    assert [one.jid for one in history.failures(BATCH)] == wanted

    async def all_of() -> list[str]:
        return [one.jid async for one in history.afailures(BATCH)]

    assert asyncio.run(all_of()) == wanted


def test_what_changed_since(recorder: Recorder, teller: Teller, history: History) -> None:
    for number in range(10):
        teller.enqueued(f"job-{number}", BATCH)
    teller.enqueued("another", "e" * 32)
    record(recorder, teller)
    some = history.changed_since(BATCH, 0, limit=6)
    assert (len(some.events), some.more) == (6, True)
    rest = history.changed_since(BATCH, some.position)
    assert (len(rest.events), rest.more) == (4, False)
    nothing = history.changed_since(BATCH, rest.position)
    assert (nothing.events, nothing.position) == ([], rest.position)
    teller.progress("job-3", 1, 2, BATCH)
    teller.log("job-1", "said", BATCH)
    teller.working("job-7", BATCH)
    record(recorder, teller)
    found = history.changed_since(BATCH, rest.position)
    assert [one.jid for one in found.events] == ["job-3", "job-1", "job-7"]
    assert found.events[0].to_json()["progress_done"] == 1.0


def test_a_search_finds_what_fits_the_latest_first(recorder: Recorder, teller: Teller, history: History) -> None:
    old = int((time.time() - 7200) * 1000)
    teller.write(f"{old}-0", k="job", j="old", b=BATCH, s="enqueued", a=0, w="", d='{"class": "a.b", "queue": "x"}')
    teller.enqueued("mail", BATCH, **{"class": "shop.mail", "queue": "mail"})
    teller.ended("mail", "error", BATCH, ending="dead", error_class="KeyError", message="100% sure")
    teller.enqueued("other", "f" * 32, args=["Blue_Shoe"])
    record(recorder, teller)

    def found(said: str = "") -> list[str]:
        return [one.jid for one in history.find(parse_search(said)).events]

    assert found() == ["other", "mail", "old"]
    assert found("class:shop.mail") == ["mail"]
    assert found("queue:x") == ["old"]
    assert found("status:error since:1h") == ["mail"]
    assert found("until:1h") == ["old"]
    assert found(f"batch:{BATCH}") == ["mail", "old"]
    assert found("100% SURE") == ["mail"]
    assert found("keyerror") == ["mail"]
    assert found("blue_shoe") == ["other"]
    assert found("blueXshoe") == []
    page = history.find(Search(), limit=2)
    assert [one.jid for one in history.find(Search(), after=page.after).events] == ["old"]


def test_what_is_typed_wrongly_is_named() -> None:
    assert parse_search("since:2h until:2026-11-21T09:30", now=10_000.0) == Search(since=2800.0, until=1795253400.0)
    for words, said in (
        ("clas:x", "did you mean class:?"),
        ("status:fail", "no status fail; did you mean 'failed'"),
        ("cause:timeot", "no cause timeot; did you mean 'timeout'"),
        ("since:yesterday", "since:yesterday: it must be a time ago"),
        ("size:>64k", "size:>64k: that is not recorded in history; there are class, queue"),
        ("e:77aa10", "not recorded in history"),
        ("took:30s", "took:>30s or took:<30s"),
    ):
        with pytest.raises(ArgumentError) as caught:
            parse_search(words)
        assert said in str(caught.value)


def test_terms_of_a_search_hold_together(recorder: Recorder, teller: Teller, history: History) -> None:
    for jid, class_, queue, args, tags in (
        ("one", "shop.charge", "pay", [{"shop": 77}, "EUR"], ["vip", "eu"]),
        ("two", "shop.charge", "low", [{"shop": 78}, "EUR"], ["vip-2"]),
        ("six", "shop.mail", "low", [77], []),
        ("ten", "other", "pay", ["shop", "77"], ["vip"]),
    ):
        teller.enqueued(
            jid, BATCH if jid == "one" else "", **{"class": class_, "queue": queue, "args": args, "tags": tags}
        )
    teller.working("one", BATCH)
    teller.ended("one", "finished", BATCH)
    teller.ended("two", "error", ending="dead", error_class="KeyError", message="no", cause="timeout")
    record(recorder, teller)

    def found(said: str) -> set[str]:
        every = set[str]()
        after: int | None = None
        while True:
            page = history.find(parse_search(said), after=after, limit=2)
            every |= {one.jid for one in page.events}
            if page.after is None:
                return every
            after = page.after

    every = {"one", "two", "six", "ten"}
    assert found("") == every
    assert found("class:shop.*") == {"one", "two", "six"}
    assert found("class:shop.charge,other -queue:low") == {"one", "ten"}
    assert found("-class:shop.*") == {"ten"}
    assert found("args.shop:77") == {"one"}
    assert found("args.0.shop:78,77 queue:low") == {"two"}
    assert found("args.0:77") == {"six"}
    assert found("args.1:EUR") == {"one", "two"}
    assert found("-args.1:EUR") == {"six", "ten"}
    assert found("args.1:EU*") == {"one", "two"}
    assert found("kwargs.to:ada") == set()
    assert found("tag:vip") == {"one", "ten"}
    assert found("tag:vip*") == {"one", "two", "ten"}
    assert found("-tag:vip,vip-2") == {"six"}
    assert found("state:done") == {"one"}
    assert found("state:dead,done") == {"one", "two"}
    assert found("-state:dead") == {"one", "six", "ten"}
    assert found("status:error -cause:timeout") == set()
    assert found("-cause:timeout") == {"one", "six", "ten"}
    assert found("error:Key*") == {"two"}
    assert found("-error:KeyError class:shop.charge") == {"one"}
    assert found("jid:one,six") == {"one", "six"}
    assert found("-batch:" + BATCH) == {"two", "six", "ten"}
    assert found("took:<1h") == {"one"}, "others have not run, as far as is known"
    assert found("waited:<1h state:done") == {"one"}
    assert found("took:>1h") == set()
    assert found("attempt:>0") == {"one", "two"}
    assert found("attempt:0") == {"six", "ten"}
    assert found("since:1h -until:1h") == every
    assert found("-since:1h") == set()
    assert found("worker:nobody") == set()
    assert found('"77"') == {"one", "six", "ten"}
    assert found("EUR -queue:low") == {"one"}


@pytest.mark.parametrize(
    ("said", "wide"),
    [
        ("refused", True),
        ("refused since:2h", False),
        ("refused until:2h", False),
        ("refused batch:b", False),
        ("refused -batch:b", True),
        ("class:shop.charge", False),
        ("class:shop.*", True),
        ("args.0:1 class:shop.charge", True),
        ("state:dead,failed", False),
        ("jid:a", False),
        ("took:>30s", True),
        ("", False),
    ],
)
def test_what_every_event_is_read_for_is_wide(said: str, wide: bool) -> None:
    assert is_wide(parse_search(said)) is wide


def test_a_history_that_is_not_there_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="set database_url"):
        History.open(Config(redis_url="redis://localhost"))
    with pytest.raises(HistoryError, match='history = "off"'):
        History.open(Config(history="off", database_url="sqlite:///x"))
    history = History(Database(f"sqlite:///{tmp_path}/none.sqlite"))
    with pytest.raises(HistoryAway, match="there is no history yet"):
        history.batch(BATCH)
    assert list(tmp_path.iterdir()) == []


def test_awaited_forms_say_the_same(recorder: Recorder, teller: Teller, history: History) -> None:
    teller.batch(BATCH, "open", description="d")
    teller.enqueued("job", BATCH)
    record(recorder, teller)

    async def look() -> None:
        assert await history.abatch(BATCH) == history.batch(BATCH)
        assert await history.aevents(BATCH) == history.events(BATCH)
        assert await history.ajob("job") == history.job("job")
        assert await history.afind(Search()) == history.find(Search())
        assert await history.achanged_since(BATCH, 0) == history.changed_since(BATCH, 0)

    asyncio.run(look())
    assert history.sizes()["events"] == 1


def test_the_longest_that_ended_on_a_process(recorder: Recorder, teller: Teller, history: History) -> None:
    now = time.time()
    for number in range(6):
        teller.enqueued(f"job-{number}")
        teller.ended(f"job-{number}", "finished", ending="finished", started=now - number, elapsed=number)
    teller.ended("elsewhere", "finished", process="host:9:00", ending="finished", started=now - 99, elapsed=99)
    teller.enqueued("waits")
    teller.working("waits")
    record(recorder, teller)
    found = history.longest_on(ME, now - 60, most=3)
    assert [one.jid for one in found] == ["job-5", "job-4", "job-3"]
    assert len(history.longest_on(ME, now - 60)) == 6
    assert [one.jid for one in history.longest_on("host:9:00", now - 60)] == ["elsewhere"]
    assert history.longest_on(ME, now + 60) == []
    assert history.longest_on("nobody", 0) == []
