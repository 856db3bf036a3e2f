"""What the core announces, as lines: at which level, how often, and with what beside it."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from henchman.errors import Failure, ServerAway, ServerError
from henchman.kernel.events import Events
from henchman.log.events import ENDINGS, PER_SECOND, PLAIN, Announcer
from henchman.log.handler import subscribe
from henchman.wire.secret import Secrets
from henchman.work.current import running
from henchman.work.outcome import DONE, Outcome
from henchman.work.outcome import ENDINGS as ALL_ENDINGS
from support.events import StrictEvents
from support.runs import make_run


class Scene:
    """Events that are listened to at debug, with a clock of our own."""

    def __init__(self, caplog: pytest.LogCaptureFixture, level: int = logging.DEBUG) -> None:
        self.now = 0.0
        self.events = StrictEvents()
        self.announcer = Announcer(lambda: self.now)
        for name, listener in self.announcer.listeners(level):
            self.events.on(name, listener)
        caplog.set_level(level)
        self._caplog = caplog

    def emit(self, name: str, **facts: Any) -> list[logging.LogRecord]:
        """The records that one event gave."""
        before = len(self._caplog.records)
        self.events.emit(name, **facts)
        return self._caplog.records[before:]


@pytest.fixture
def scene(caplog: pytest.LogCaptureFixture) -> Scene:
    return Scene(caplog)


def facts_of(record: logging.LogRecord) -> dict[str, Any]:
    known = logging.makeLogRecord({}).__dict__
    return {name: value for name, value in record.__dict__.items() if name not in known and name != "message"}


def test_nothing_listens_to_the_hot_events_above_info() -> None:
    for level in ("warning", "error"):
        events = Events()
        subscribe(events, level)
        assert not any(events.heard(name) for name in ("job_start", "job_end", "job_log", "heartbeat"))
        assert all(events.heard(name) for name in ("job_failed", "error", "server_away", "lease_lost"))
    events = Events()
    subscribe(events, "info")
    assert events.heard("job_end")
    assert not events.heard("job_start"), "one line a job"


def test_start_and_done(scene: Scene) -> None:
    run = make_run([1, 2], jid="aa", retry_count=0)
    (start,) = scene.emit("job_start", run=run)
    (done,) = scene.emit("job_end", run=run, outcome=DONE)
    assert (start.getMessage(), start.levelno, start.name) == ("start", logging.DEBUG, "henchman.job")
    job = {"jid": "aa", "class": "shop.pay", "queue": "default", "attempt": 2}
    assert facts_of(start) == job | {"arguments": "[1, 2]"}
    assert done.getMessage() == "done"
    assert facts_of(done) == job | {"elapsed": 0.0}


def test_arguments_are_masked_and_only_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    run = make_run([1, "4111-1111"], {"pin": "123"}, secret=("card", "pin"))
    (start,) = Scene(caplog).emit("job_start", run=run)
    assert facts_of(start)["arguments"] == "[1, '***']"
    assert facts_of(start)["keywords"] == "{'pin': '***'}"
    assert Scene(caplog, logging.INFO).emit("job_start", run=run) == []


@pytest.mark.parametrize("order", [("job_failed", "job_end"), ("job_end", "job_failed"), ("job_failed",), ("job_end",)])
def test_an_ending_is_told_once(scene: Scene, order: tuple[str, ...]) -> None:
    run = make_run([1])
    outcome = Outcome("failed", reason="not eligible", error=Failure("not eligible"))
    (record,) = [record for name in order for record in scene.emit(name, run=run, outcome=outcome)]
    assert (record.levelno, record.getMessage()) == (logging.WARNING, "failed")
    assert facts_of(record)["reason"] == "not eligible"


def test_every_ending_of_a_run_has_words() -> None:
    assert set(ALL_ENDINGS) == set(ENDINGS)


def test_an_error_has_the_masked_message_and_the_users_traceback(scene: Scene) -> None:
    run = make_run([1, "4111-1111"], jid="aa", secret=("card",))
    token = running.set(run)
    try:
        raise ValueError("no 4111-1111")
    except ValueError as error:
        caught = error
    facts = {"context": "job raised", "job": {"jid": "aa", "class": "shop.pay"}, "queue": "q", "message": "no ***"}
    (record,) = scene.emit("error", error=caught, facts=facts)
    assert record.levelno == logging.WARNING
    assert (record.msg, record.args) == ("job raised", ()), "constant, for those who group by it"
    assert record.exc_info is not None
    assert repr(record.exc_info[1]) == "ValueError('no ***')", "for any handler, not only ours"
    assert record.exc_info[2] is caught.__traceback__
    facts_shown = facts_of(record)
    assert facts_shown.pop("hm_secrets").hide("no 4111-1111") == "no ***"
    assert facts_shown == {"jid": "aa", "class": "shop.pay", "queue": "q", "error": "ValueError: no ***"}
    running.reset(token)  # as in the worker, where a failure is judged when the job has been left
    (record,) = scene.emit("error", error=caught, facts=facts, secrets=Secrets(["4111-1111"]))
    assert "4111-1111" not in repr({**record.__dict__, "exc_text": None})
    (dead,) = scene.emit("job_failed", run=run, outcome=Outcome("dead", reason="no ***", error=caught))
    assert dead.levelno == logging.ERROR


def test_the_same_line_again_and_again_is_counted(scene: Scene) -> None:
    def fail(times: int) -> list[logging.LogRecord]:
        facts = {"context": "job raised", "job": {"jid": "aa", "class": "shop.pay"}}
        return [one for _ in range(times) for one in scene.emit("error", error=ValueError("boom"), facts=facts)]

    assert len(fail(1020)) == PER_SECOND
    other = scene.emit("error", error=KeyError("x"), facts={"context": "job raised", "job": {"class": "shop.pay"}})
    assert len(other) == 1
    scene.now = 1.5
    summary, again = fail(1)
    assert summary.getMessage() == "more lines like this were left out"
    left_out = {"lines": 1000, "line": "job raised", "class": "shop.pay", "error": "ValueError: boom"}
    assert facts_of(summary) == left_out
    assert again.getMessage() == "job raised"
    fail(30)
    assert scene.emit("beat", identity="x") == []
    scene.now = 3.0
    (summary,) = scene.emit("beat", identity="x")
    assert facts_of(summary)["lines"] == 11


def test_summaries_that_are_held_come_at_the_end(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(25):
        scene.emit("part_failed", part="stager", error=OSError("x"))
    scene.announcer.flush()
    held = {"lines": 5, "line": "a part of the process failed and goes on", "part": "stager", "error": "OSError: x"}
    assert facts_of(caplog.records[-1]) == held
    scene.announcer.flush()
    assert len(caplog.records) == PER_SECOND + 1


def test_the_server_goes_and_comes_back_in_two_lines(scene: Scene) -> None:
    away = [
        record
        for failures in range(1, 5)
        for part in ("fetcher", "heart", "watcher")
        for record in scene.emit("server_away", part=part, error=ServerAway("refused"), failures=failures)
    ]
    assert [(one.levelno, one.getMessage()) for one in away] == [(logging.ERROR, "the server is away")]
    assert facts_of(away[0]) == {"part": "fetcher", "error": "ServerAway: refused"}
    scene.now = 7.25
    assert scene.emit("server_back", part="acker") == []
    assert scene.emit("server_back", part="fetcher") == []
    (back,) = scene.emit("beat", identity="x")
    assert (back.levelno, back.getMessage()) == (logging.WARNING, "the server is back")
    assert facts_of(back) == {"downtime": 7.25}
    assert scene.emit("server_back", part="watcher") == []
    assert scene.emit("beat", identity="x") == []


def test_a_server_that_refuses_one_part_is_not_back_because_another_beats(scene: Scene) -> None:
    (away,) = scene.emit("server_away", part="fetcher", error=ServerError("OOM command not allowed"), failures=1)
    assert away.getMessage() == "the server refuses"
    assert facts_of(away)["error"] == "ServerError: OOM command not allowed"
    assert scene.emit("beat", identity="x") == []
    assert scene.emit("server_away", part="fetcher", error=ServerError("OOM"), failures=2) == []
    assert len(scene.emit("server_back", part="fetcher")) == 1


def test_events_that_are_lines_as_they_are(scene: Scene) -> None:
    run = make_run([1], jid="aa")
    unit = run.unit
    for name in PLAIN:
        facts: dict[str, Any] = {"count": 3, "args": "taken", "msg": "taken", "error": ValueError("x")}
        (record,) = scene.emit(name, run=run, unit=unit, **facts)
        assert facts_of(record)["jid"] == "aa"
        assert facts_of(record)["args_"] == "taken"
        assert facts_of(record)["error"] == "ValueError: x"
    (record,) = scene.emit("refused", unit=b"\xff not a job", ending="staged", reason="OOM")
    assert facts_of(record) == {"payload": "b'\\xff not a job'", "ending": "staged", "reason": "OOM"}
    (record,) = scene.emit("refused", unit=b'{"jid":"bb","class":"C"}', ending="staged", reason="OOM")
    assert facts_of(record)["jid"] == "bb"


def test_a_broken_handler_is_named(scene: Scene) -> None:
    (record,) = scene.emit("handler_broken", handler=make_run, error=RuntimeError("x"))
    assert facts_of(record) == {"handler": "support.runs.make_run", "error": "RuntimeError: x"}
    (record,) = scene.emit("handler_broken", handler=object(), error=RuntimeError("x"))
    assert "object" in facts_of(record)["handler"]


def test_what_a_job_says(scene: Scene) -> None:
    (record,) = scene.emit("job_log", run=make_run([1], jid="aa"), message="100 % of %s")
    assert record.getMessage() == "100 % of %s"
    assert facts_of(record)["jid"] == "aa"


def test_the_stacks_that_somebody_asked_for(scene: Scene) -> None:
    stacks = {"henchman-job-1": ["/app/a.py:3:in work", "/app/b.py:9:in main"], "MainThread": []}
    busy, idle, task = scene.emit("dump", threads=stacks, tasks={"shop.pay aa": ["/app/c.py:1:in pay"]})
    assert {one.getMessage() for one in (busy, idle, task)} == {"stack"}
    assert facts_of(busy) == {"of": "thread henchman-job-1"}
    assert busy.stack_info == "/app/a.py:3:in work\n/app/b.py:9:in main"
    assert facts_of(idle) == {"of": "thread MainThread"}
    assert facts_of(task) == {"of": "task shop.pay aa"}
    assert {one.levelno for one in (busy, idle, task)} == {logging.WARNING}
