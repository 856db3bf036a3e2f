"""The judge of the chaos run, of batches: it must see each kind of harm, in the ledger, on the server and in SQL."""

from __future__ import annotations

import importlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from support.worker import looker

CHAOS = Path(__file__).parents[2] / "chaos"
GOOD, SAD, GONE = "a" * 32, "b" * 32, "c" * 32  # all finished; one failed, one gave up; cancelled
MADE = [
    f"100.0 bopening {GOOD} block -",
    f"100.0 bopening {SAD} nested -",
    f"100.0 bopening {GONE} cancelled {SAD}",
    f"100.5 bcancelling {GONE}",
    f"100.6 bcancelled {GONE}",
]
OF = {
    "tiny-exact-1": GOOD,
    "atiny-exact-2": GOOD,
    "refuser-exact-3": SAD,
    "killer-exact-4": SAD,
    "dropper-exact-5": SAD,
    "tiny-exact-6": GONE,
    "tiny-exact-7": GONE,
}
ENDS = ["ok", "ok", "Failure", "Kill", "Discard", "ok"]  # of the first six; the last was cancelled before it ran
CALLS = [f"complete-{GOOD}", f"success-{GOOD}", f"complete-{SAD}", f"death-{SAD}", f"complete-{GONE}"]
COUNTS: dict[str, dict[str, Any]] = {
    GOOD: {"total": 2, "n:finished": 2, "n:enqueued": 0, "generation": 1, "results": 1},
    SAD: {"total": 3, "n:failed": 1, "n:error": 1, "n:cancelled": 1, "bad_children": 1, "generation": 1},
    GONE: {"total": 2, "n:finished": 1, "n:cancelled": 1, "why": "cancelled", "generation": 1},
}
STATUSES = ["finished", "finished", "failed", "error", "cancelled", "finished", "cancelled"]


def ledger() -> list[str]:
    lines = list(MADE)
    for key, batch in OF.items():
        lines += [f"100.0 bjob {batch} {key}", f"100.0 push {key}", f"100.1 accepted {key}"]
    for key, how in zip(OF, ENDS, strict=False):
        lines += [f"100.2 start {key} 1 100.05 x", f"100.3 end {key} 1 {how}"]
    for call in CALLS:
        lines += [f"101.2 start called-{call} 1 101.1 x", f"101.3 end called-{call} 1 ok"]
    return lines


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    with looker(redis_url) as client:
        for number, (batch, counts) in enumerate(COUNTS.items()):
            client.zadd("hm:batches", {batch: number})
            client.hset(f"hm:batch:{batch}", mapping={"state": "complete", **counts})
        client.rpush(f"hm:batch:{GOOD}:rows", "1 j-1", "1 j-2")
        client.hset(f"hm:batch:{GOOD}:results", mapping={"j-1": "=null", "j-2": "=7"})
        client.zadd(f"hm:batch:{SAD}:dead", {'{"args": ["killer-exact-4"]}': 100.3})
        client.mset({"stat:processed": 11, "stat:failed": 1})
        yield client


@pytest.fixture
def record(tmp_path: Path) -> Path:
    path = tmp_path / "history.sqlite"
    with sqlite3.connect(path) as db:
        db.execute(
            "CREATE TABLE henchman_events (jid TEXT PRIMARY KEY, batch TEXT, status TEXT, args TEXT, queue TEXT)"
        )
        db.execute("CREATE TABLE henchman_batches (id TEXT PRIMARY KEY, state TEXT, total INT, generation INT)")
        rows = [(f"j-{key}", batch, status, f'["{key}"]') for (key, batch), status in zip(OF.items(), STATUSES)]  # noqa: B905
        db.executemany("INSERT INTO henchman_events VALUES (?, ?, ?, ?, 'fast')", rows)
        db.executemany("INSERT INTO henchman_batches VALUES (?, 'complete', 0, 1)", [(name,) for name in COUNTS])
        db.execute("CREATE TABLE henchman_changes (jid TEXT, sid INT, status TEXT, PRIMARY KEY (jid, sid))")
        changes = [(row[0], sid, status) for row in rows for sid, status in enumerate(("enqueued", row[2]))]
        db.executemany("INSERT INTO henchman_changes VALUES (?, ?, ?)", changes)
    return path


@pytest.fixture
def judged(redis: Redis, record: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., set[str]]:
    """The rules that the judge finds violated, of the ledger above without some lines and with others."""
    monkeypatch.syspath_prepend(str(CHAOS))
    judge: Any = importlib.import_module("judge")
    past: Any = importlib.import_module("past")

    def look(*more: str, without: str = "?") -> set[str]:
        lines = [*(line for line in ledger() if without not in line), *more]
        (tmp_path / "worker-8-b.txt").write_text("".join(f"{line}\n" for line in lines))
        verdict = judge.Judgement(past.History(tmp_path), redis, None, record)
        return {rule.removeprefix("batches: ") for rule, told in verdict.violations.items() if told}

    return look


def test_the_judge_finds_nothing_where_all_agree(judged: Callable[..., set[str]]) -> None:
    assert judged() == set()


CALLED, STATUS = "callbacks not enqueued exactly once", "status of a job and ledger differ"
CHANGES = "changes of a job lost or doubled in SQL"
AGAIN = f"102.2 start called-complete-{GOOD} 1 102.1 x", f"102.3 end called-complete-{GOOD} 1 ok"


@pytest.mark.parametrize(
    ("rule", "more", "without"),
    [
        (CALLED, (), f"called-complete-{GOOD}"),
        (CALLED, (), f"end called-success-{GOOD}"),
        (CALLED, (), f"called-death-{SAD}"),
        (CALLED, AGAIN, "?"),
        (CALLED, (f"101.2 start called-success-{SAD} 1 101.1 x", f"101.3 end called-success-{SAD} 1 ok"), "?"),
        (STATUS, (), "tiny-exact-1 1"),
        (STATUS, ("100.2 start tiny-exact-7 1 100.05 x", "100.3 end tiny-exact-7 1 ok"), "?"),
        ("started after the cancellation", ("106.2 start tiny-exact-7 1 100.05 x",), "?"),
        ("members and ledger differ", (f"100.0 bjob {GOOD} tiny-exact-9", "100.1 accepted tiny-exact-9"), "?"),
        ("members and ledger differ", ("100.2 refused tiny-exact-1",), "?"),
        ("members and ledger differ", (), f"bjob {GOOD} tiny-exact-1"),
        ("members and ledger differ", (f"100.0 bjob {SAD} tiny-exact-1",), f"bjob {GOOD} tiny-exact-1"),
    ],
)
def test_the_judge_sees_harm_in_the_ledger(
    judged: Callable[..., set[str]], rule: str, more: tuple[str, ...], without: str
) -> None:
    assert rule in judged(*more, without=without)


def test_a_callback_that_was_repeated_with_a_cause_was_enqueued_once(judged: Callable[..., set[str]]) -> None:
    again = f"102.2 start called-complete-{GOOD} 1 101.1 x", f"102.3 end called-complete-{GOOD} 1 ok"
    assert judged(*again) == {"repeats without a cause"}
    assert judged(*again, "101.4 window kill 101.2 101.4 8") == set()


MENDED = "d" * 32
ROUNDS = [
    f"100.0 bopening {MENDED} mended -",
    f"100.0 bjob {MENDED} mender-exact-8",
    "100.0 push mender-exact-8",
    "100.1 accepted mender-exact-8",
    "100.2 start mender-exact-8 1 100.05 m",
    "100.3 end mender-exact-8 1 Kill",
    "102.2 start mender-exact-8 1 102.05 m",
    "102.3 end mender-exact-8 1 ok",
    *(f"101.2 start called-{which}-{MENDED} 1 101.1 x" for which in ("complete", "death")),
    *(f"101.3 end called-{which}-{MENDED} 1 ok" for which in ("complete", "death")),
    *(f"103.2 start called-{which}-{MENDED} 1 103.1 x" for which in ("complete", "success")),
    *(f"103.3 end called-{which}-{MENDED} 1 ok" for which in ("complete", "success")),
]


@pytest.mark.parametrize(
    ("without", "more", "rules"),
    [
        ("?", (), set()),
        (f"called-complete-{MENDED} 1 103", (), {CALLED}),
        (f"called-death-{MENDED}", (), {CALLED}),
        (f"called-success-{MENDED}", (), {CALLED}),
        ("?", (f"104.2 start called-death-{MENDED} 1 104.1 x", f"104.3 end called-death-{MENDED} 1 ok"), {CALLED}),
        ("02.", (), {STATUS, "dead set"}),
    ],
)
def test_each_generation_calls_back_once(
    judged: Callable[..., set[str]], redis: Redis, record: Path, without: str, more: tuple[str, ...], rules: set[str]
) -> None:
    redis.zadd("hm:batches", {MENDED: 9})
    facts = {"state": "complete", "total": 1, "n:finished": 1, "generation": 2}
    redis.hset(f"hm:batch:{MENDED}", mapping=facts)
    redis.mset({"stat:processed": 17, "stat:failed": 2})
    with sqlite3.connect(record) as db:
        db.execute("INSERT INTO henchman_events VALUES ('m', ?, 'finished', ?, 'fast')", (MENDED, '["mender-exact-8"]'))
        db.execute("INSERT INTO henchman_batches VALUES (?, 'complete', 0, 2)", (MENDED,))
        life = [("m", sid, status) for sid, status in enumerate(("enqueued", "error", "enqueued", "finished"))]
        db.executemany("INSERT INTO henchman_changes VALUES (?, ?, ?)", life)
    found = judged(*(line for line in (*ROUNDS, *more) if without not in line))
    assert rules <= found
    assert bool(rules) == bool(found), found


FLOW = "e" * 32
#: a step that says no; who waits for it is cancelled, fails, and runs all the same
STEPS = {"stepno-x-1": "failed", "stepoff-x-2": "cancelled", "stepfail-x-3": "error", "stepany-x-4": "finished"}
FLOWED = [
    f"100.0 bopening {FLOW} atomicflow -",
    *(f"100.0 bjob {FLOW} {key}" for key in STEPS),
    *(f"100.0 needs {key} stepno/stepno-x-1" for key in list(STEPS)[1:]),
    *(f"100.0 push {key}" for key in STEPS),
    *(f"100.1 accepted {key}" for key in STEPS),
    *("100.2 start stepno-x-1 1 100.05 s1", "100.3 end stepno-x-1 1 Failure"),
    *("100.4 start stepany-x-4 1 100.35 s4", "100.5 end stepany-x-4 1 ok"),
    *(f"101.2 start called-{which}-{FLOW} 1 101.1 x" for which in ("complete", "death")),
    *(f"101.3 end called-{which}-{FLOW} 1 ok" for which in ("complete", "death")),
]
POLICY = "dependencies: a policy that was carried out otherwise"


@pytest.fixture
def flow(redis: Redis, record: Path) -> None:
    redis.zadd("hm:batches", {FLOW: 9})
    counts = {f"n:{status}": 1 for status in STEPS.values()}
    redis.hset(f"hm:batch:{FLOW}", mapping={"state": "complete", "total": 4, "generation": 1, **counts})
    redis.zadd(f"hm:batch:{FLOW}:dead", {'{"args": ["stepfail-x-3"]}': 100.3})
    redis.mset({"stat:processed": 15, "stat:failed": 1})
    with sqlite3.connect(record) as db:
        rows = [(f"f-{key}", FLOW, status, f'["{key}"]') for key, status in STEPS.items()]
        db.executemany("INSERT INTO henchman_events VALUES (?, ?, ?, ?, 'fast')", rows)
        db.execute("INSERT INTO henchman_batches VALUES (?, 'complete', 0, 1)", (FLOW,))
        for jid, _, status, _ in rows:
            life = ("enqueued", status) if jid == "f-stepno-x-1" else ("blocked", status)
            life = ("blocked", "enqueued", status) if jid == "f-stepany-x-4" else life
            db.executemany("INSERT INTO henchman_changes VALUES (?, ?, ?)", [(jid, *one) for one in enumerate(life)])


@pytest.mark.usefixtures("flow")
@pytest.mark.parametrize(
    ("without", "more", "rules"),
    [
        ("?", (), set()),
        ("?", ("100.4 start stepoff-x-2 1 100.35 s2", "100.5 end stepoff-x-2 1 ok"), {POLICY, "retries miscounted"}),
        ("?", ("100.4 start stepfail-x-3 1 100.35 s3", "100.5 end stepfail-x-3 1 ok"), {POLICY, "retries miscounted"}),
        ("stepany-x-4 1", (), {"accepted jobs that did not reach their end", STATUS}),
        (
            "stepany-x-4 1",
            ("100.25 start stepany-x-4 1 100.2 s4", "100.5 end stepany-x-4 1 ok"),
            {"dependencies: started before what it waits for had succeeded"},
        ),
        (f"called-death-{FLOW}", (), {CALLED}),
    ],
)
def test_the_judge_sees_harm_to_a_workflow(
    judged: Callable[..., set[str]], without: str, more: tuple[str, ...], rules: set[str]
) -> None:
    found = judged(*(line for line in FLOWED if without not in line), *more)
    assert rules <= found
    assert bool(rules) == bool(found), found


@pytest.mark.usefixtures("flow")
@pytest.mark.parametrize(
    ("key", "status"),
    [("stepoff-x-2", "error"), ("stepfail-x-3", "cancelled"), ("stepany-x-4", "cancelled"), ("stepno-x-1", "finished")],
)
def test_a_step_that_ended_otherwise_than_its_policy_says(
    judged: Callable[..., set[str]], record: Path, key: str, status: str
) -> None:
    with sqlite3.connect(record) as db:
        db.execute("UPDATE henchman_events SET status = ? WHERE jid = ?", (status, f"f-{key}"))
    assert STATUS in judged(*FLOWED)


@pytest.mark.usefixtures("flow")
def test_a_workflow_that_was_not_whole_ran_nothing_of_it(
    judged: Callable[..., set[str]], redis: Redis, record: Path
) -> None:
    """Nobody knows whether it was closed: then the auditor aborts it, and all of its steps are cancelled."""
    redis.hset(f"hm:batch:{FLOW}", mapping={"why": "aborted", "n:cancelled": 4, "n:failed": 0, "n:error": 0})
    redis.hset(f"hm:batch:{FLOW}", "n:finished", 0)
    redis.delete(f"hm:batch:{FLOW}:dead")
    redis.mset({"stat:processed": 12, "stat:failed": 1})
    with sqlite3.connect(record) as db:
        db.execute("UPDATE henchman_events SET status = 'cancelled' WHERE batch = ?", (FLOW,))
        db.execute("DELETE FROM henchman_changes WHERE jid LIKE 'f-%'")
        lives = [(f"f-{key}", sid, one) for key in STEPS for sid, one in enumerate(("blocked", "cancelled"))]
        db.executemany("INSERT INTO henchman_changes VALUES (?, ?, ?)", lives)
    unheard = [line.replace("accepted", "unknown") for line in FLOWED if " 1 " not in line or "complete" in line]
    assert judged(*unheard) == set()


@pytest.mark.parametrize(
    ("rule", "harm"),
    [
        ("batches that are not complete", ("hset", f"hm:batch:{GOOD}", "state", "closed")),
        ("batches that are not complete", ("hset", f"hm:batch:{GOOD}", "n:working", "1")),
        ("batches that are not complete", ("hset", f"hm:batch:{GOOD}", "total", "3")),
        ("counts of the server and of SQL differ", ("hset", f"hm:batch:{SAD}", "n:failed", "2")),
        ("counts of the server and of SQL differ", ("delete", f"hm:batch:{GOOD}")),
        ("results of rows and counts differ", ("rpush", f"hm:batch:{GOOD}:rows", "1 j-1")),
        ("results of rows and counts differ", ("lpop", f"hm:batch:{GOOD}:rows")),
        ("results of rows and counts differ", ("hdel", f"hm:batch:{GOOD}:results", "j-1")),
        ("results of rows and counts differ", ("hset", f"hm:batch:{GOOD}:results", "j-1", '!{"status":"error"}')),
        ("left on the server", ("hset", f"hm:batch:{GOOD}:jobs", "jid", "working")),
        ("left on the server", ("rpush", f"hm:batch:{GOOD}:parked", "x")),
        ("left on the server", ("set", f"hm:batch:{GOOD}:producer", "1")),
        ("left on the server", ("xadd", "hm:history", {"k": "job"})),
        ("dead set", ("delete", f"hm:batch:{SAD}:dead")),
    ],
)
def test_the_judge_sees_harm_on_the_server(
    judged: Callable[..., set[str]], redis: Redis, rule: str, harm: tuple[Any, ...]
) -> None:
    getattr(redis, harm[0])(*harm[1:])
    assert rule in judged()


@pytest.mark.parametrize(
    ("rule", "harm"),
    [
        (STATUS, "UPDATE henchman_events SET status = 'failed' WHERE jid = 'j-tiny-exact-1'"),
        ("counts of the server and of SQL differ", "UPDATE henchman_events SET status = 'working'"),
        ("counts of the server and of SQL differ", "DELETE FROM henchman_events WHERE jid = 'j-tiny-exact-1'"),
        (CHANGES, "DELETE FROM henchman_changes WHERE jid = 'j-tiny-exact-1' AND status = 'finished'"),
        (CHANGES, "DELETE FROM henchman_changes WHERE jid = 'j-tiny-exact-1'"),
        (CHANGES, "UPDATE henchman_changes SET status = 'scheduled' WHERE jid = 'j-tiny-exact-1' AND sid = 0"),
        (CHANGES, "INSERT INTO henchman_changes VALUES ('j-tiny-exact-1', 2, 'finished')"),
        (CHANGES, "INSERT INTO henchman_changes VALUES ('j-killer-exact-4', 2, 'enqueued')"),
        ("members and ledger differ", "DELETE FROM henchman_events WHERE jid = 'j-tiny-exact-1'"),
        ("counts of the server and of SQL differ", "UPDATE henchman_batches SET state = 'closed'"),
        ("counts of the server and of SQL differ", "UPDATE henchman_batches SET generation = 2"),
        ("counts of the server and of SQL differ", "DELETE FROM henchman_batches WHERE id LIKE 'a%'"),
        (
            "counts of the server and of SQL differ",
            "INSERT INTO henchman_events "
            "SELECT 'k', batch, status, args, queue FROM henchman_events WHERE status = 'failed'",
        ),
    ],
)
def test_the_judge_sees_harm_in_sql(judged: Callable[..., set[str]], record: Path, rule: str, harm: str) -> None:
    with sqlite3.connect(record) as db:
        db.execute(harm)
    assert rule in judged()


@pytest.mark.parametrize(
    ("life", "retried", "fine"),
    [
        ("enqueued retrying enqueued finished", 1, True),
        ("enqueued working enqueued enqueued retrying enqueued finished", 1, True),
        ("blocked scheduled enqueued working scheduled enqueued finished", 0, True),
        ("enqueued retrying cancelled", None, True),
        ("enqueued retrying finished", 1, False),
        ("enqueued retrying retrying enqueued finished", 2, False),
        ("enqueued retrying enqueued finished", 2, False),
        ("enqueued working", None, False),
        ("working finished", 0, False),
        ("blocked finished", 0, False),
        ("blocked error", 0, True),
    ],
)
def test_a_life_is_a_chain(monkeypatch: pytest.MonkeyPatch, life: str, retried: int | None, fine: bool) -> None:
    monkeypatch.syspath_prepend(str(CHAOS))
    judge: Any = importlib.import_module("life_judge")
    assert (not list(judge.broken(life.split(), retried, False))) is fine
