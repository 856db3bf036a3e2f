"""A look that many share: fresh for few, one for many, never old."""

from __future__ import annotations

import threading
import time

import pytest

from henchman.console import snapshot
from henchman.console.snapshot import Snapshot
from support.worker import until


class Clock:
    """A time that the test sets; a look takes so many seconds of it."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.reads = 0
        self.takes = 0.01

    def monotonic(self) -> float:
        return self.now

    def read(self) -> int:
        self.now += self.takes
        self.reads += 1
        return self.reads


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(snapshot, "time", made)
    return made


def test_few_who_look_see_what_is(clock: Clock) -> None:
    look = Snapshot(clock.read)
    for number in range(1, 200):
        clock.now += 1.0
        assert look.get() == number


def test_looks_for_many_take_a_twentieth_of_the_time_and_none_is_old(clock: Clock) -> None:
    look, oldest, last = Snapshot(clock.read), 0.0, (0, 0.0)
    for _ in range(10_000):  # a hundred a second
        clock.now += 0.01
        if (seen := look.get()) != last[0]:
            last = seen, clock.now
        oldest = max(oldest, clock.now - last[1])
    assert clock.reads * clock.takes < 0.06 * 100 + 1
    assert clock.reads > 400
    assert oldest < 2.0


def test_a_look_that_takes_long_is_two_seconds_old_at_most(clock: Clock) -> None:
    clock.takes = 0.5
    look, seen = Snapshot(clock.read), set[int]()
    for _ in range(1000):
        clock.now += 0.01
        seen.add(look.get())
    assert 5 <= clock.reads <= 9
    assert len(seen) == clock.reads


def test_who_comes_while_it_is_read_waits_for_that() -> None:
    reads, go, answers = list[float](), threading.Event(), list[int]()

    def read() -> int:
        reads.append(time.monotonic())
        go.wait(10)
        return len(reads)

    look = Snapshot(read)
    threads = [threading.Thread(target=lambda: answers.append(look.get())) for _ in range(100)]
    for one in threads:
        one.start()
    until(lambda: reads, "one reads")
    time.sleep(0.05)  # the others have asked by then; those that have not read once more
    go.set()
    for one in threads:
        one.join(10)
    assert len(answers) == 100
    assert len(reads) <= 3


def test_what_was_done_is_seen_at_once_and_an_error_is_not_kept(clock: Clock) -> None:
    clock.takes = 5.0
    look = Snapshot(clock.read)
    assert look.get() == 1
    assert look.get() == 1
    look.forget()
    assert look.get() == 2

    def failing() -> int:
        clock.now += 5.0
        clock.reads += 1
        if clock.reads == 3:
            raise OSError("away")
        return clock.reads

    other = Snapshot(failing)
    with pytest.raises(OSError, match="away"):
        other.get()
    assert other.get() == 4
