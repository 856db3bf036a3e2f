"""Delays, ids, events, text."""

from __future__ import annotations

import os
import re
import socket
import time
from typing import Any

import pytest

from henchman.kernel.clock import ServerClock, awake, capped_backoff
from henchman.kernel.events import Events
from henchman.kernel.figures import figure
from henchman.kernel.text import did_you_mean, mask_url, shorten, visible
from henchman.store.leases import new_identity
from henchman.wire.payload import new_jid, new_jids
from henchman.worker.retry import retry_delay


@pytest.mark.parametrize("count", [0, 1, 2, 10, 24])
def test_retry_delay_is_sidekiqs(count: int) -> None:
    base = count**4 + 15
    delays = {retry_delay(count) for _ in range(500)}
    assert base <= min(delays) <= max(delays) < base + 10 * (count + 1)
    assert len(delays) > 1


def test_backoff_doubles_up_to_its_limit() -> None:
    for failures, base in ((0, 0.1), (1, 0.2), (5, 3.2), (9, 30.0), (10**6, 30.0)):
        for _ in range(50):
            assert base <= capped_backoff(failures) <= base * 1.2
    assert capped_backoff(3, first=1.0, most=2.0) <= 2.4


def test_jids() -> None:
    many = new_jids(1000)
    assert len(set(many)) == 1000
    for one in (new_jid().encode(), *many):
        assert re.fullmatch(rb"[0-9a-f]{24}", one if isinstance(one, bytes) else one.encode())
    assert new_jids(0) == []


def test_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DYNO", raising=False)
    host, pid, nonce = new_identity().rsplit(":", 2)
    assert (host, pid) == (socket.gethostname(), str(os.getpid()))
    assert re.fullmatch(r"[0-9a-f]{12}", nonce)
    monkeypatch.setenv("DYNO", "web.1")
    assert new_identity().startswith("web.1:")
    assert new_identity() != new_identity()


def test_awake_goes_on_while_the_machine_sleeps() -> None:
    assert awake() <= awake()
    if hasattr(time, "CLOCK_BOOTTIME"):
        assert abs(awake() - time.clock_gettime(time.CLOCK_BOOTTIME)) < 10


def test_the_server_clock_is_learned_and_outlives_a_wrong_wall() -> None:
    lasting, wall = [100.0], [5_000.0]
    clock = ServerClock(lambda: lasting[0], lambda: wall[0])
    assert (clock.now(), clock.age) == (5_000.0, float("inf"))
    sent = clock.sent()
    lasting[0] += 0.2
    clock.heard(1_000.1, sent)
    assert clock.now() == pytest.approx(1_000.1, abs=0.11)
    lasting[0] += 50
    wall[0] += 7_200
    assert clock.now() == pytest.approx(1_050.1, abs=0.11)
    assert clock.age == pytest.approx(50)
    clock.heard(1_050.2, clock.sent())
    assert clock.now() == pytest.approx(1_050.2)
    assert clock.stepped == 0.0


def test_the_server_clock_tells_steps_from_slow_answers() -> None:
    lasting = [0.0]
    clock = ServerClock(lambda: lasting[0])
    clock.heard(1_000.0, 0.0)
    lasting[0] = 30.0
    clock.heard(1_001.0, 1.0)  # an answer that took 29 s
    assert clock.stepped == 0.0
    assert clock.now() == pytest.approx(1_030.0)
    clock.heard(1_030.0 - 18_000, 30.0)
    assert (clock.stepped, clock.now()) == (-18_000, 1_030.0 - 18_000)
    clock.heard(1_030.0 + 60, 30.0)
    assert (clock.stepped, clock.now()) == (60, 1_090.0)
    assert (clock.leapt(-17_000.0), clock.leapt(1_029.0)) == (18_060, 0.0), "it had gone back after that"
    for n in range(20):
        clock.heard(1_090.0 + 60 * (n + 1), 30.0)
    assert clock.leapt(0.0) == 8 * 60.0, "the last ones are remembered"


def test_listeners_are_told_in_order() -> None:
    events, heard = Events(), list[Any]()
    events.on("done", lambda **facts: heard.append((1, facts)))
    events.on("done", lambda **facts: heard.append((2, facts)))
    assert (events.heard("done"), events.heard("other")) == (True, False)
    events.emit("done", jid="j")
    events.emit("other", jid="k")
    assert heard == [(1, {"jid": "j"}), (2, {"jid": "j"})]


def test_a_listener_that_throws_is_announced_and_stops_nobody() -> None:
    broken, heard = list[Any](), list[str]()
    events = Events()
    events.on("handler_broken", lambda handler, error: broken.append((handler, str(error))))

    def bad(**facts: Any) -> None:
        raise ValueError("oops")

    events.on("done", bad)
    events.on("done", lambda **facts: heard.append("still"))
    events.emit("done")
    assert (broken, heard) == ([(bad, "oops")], ["still"])

    events.on("handler_broken", bad)
    events.emit("done")
    assert heard == ["still", "still"]


def test_listeners_leave() -> None:
    events = Events()
    for listener in (print, repr):
        events.on("done", listener)
    events.off("done", print)
    events.off("done", print)
    assert events.heard("done")
    events.off("done", repr)
    events.off("never", repr)
    assert not events.heard("done")


def test_a_listener_may_leave_while_it_is_told() -> None:
    events, heard = Events(), list[str]()

    def once(**facts: Any) -> None:
        heard.append("once")
        events.off("done", once)

    events.on("done", once)
    events.on("done", lambda **facts: heard.append("other"))
    events.emit("done")
    events.emit("done")
    assert heard == ["once", "other", "other"]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://h:1/0", "redis://h:1/0"),
        ("redis://:pw@h", "redis://:***@h"),
        ("rediss://me:p@w:d@h:1/2", "rediss://me:***@h:1/2"),
        ("redis://me@h", "redis://***@h"),  # a server has no user without a password: it is the password
        ("unix://:pw@/tmp/s?db=0", "unix://:***@/tmp/s?db=0"),
        ("redis://h?password=pw&db=1", "redis://h?password=***&db=1"),
        ("redis://h?db=1&PASSWORD=pw#x", "redis://h?db=1&PASSWORD=***#***"),
        ("no url at all", "no url at all"),
    ],
)
def test_passwords_are_masked(url: str, shown: str) -> None:
    assert mask_url(url) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("größe 价格", "größe 价格"),
        ("a\x1b[31mb\x00", "a\\x1b[31mb\\x00"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("\u202eevil\u200b", "\\u202eevil\\u200b"),
        ("\ud800", "\\ud800"),
    ],
)
def test_what_cannot_be_seen_is_escaped(text: str, shown: str) -> None:
    assert visible(text) == shown


@pytest.mark.parametrize(("most", "shown"), [(5, "abcde"), (4, "abc…"), (1, "…"), (0, "…")])
def test_long_things_are_cut(most: int, shown: str) -> None:
    assert shorten("abcde", most) == shown


def test_the_nearest_word() -> None:
    assert did_you_mean("retri", ["retry", "queue"]) == "; did you mean 'retry'?"
    assert did_you_mean("zzz", ["retry", "queue"]) == ""


def test_whole_figures_are_exact_however_large() -> None:
    assert figure(2**63 - 1) == "9,223,372,036,854,775,807"
    assert len(figure(10**400)) == 401 + 133
    assert (figure(None), figure(1234.4)) == ("–", "1,234")
