"""The life of a service: starting and stopping in every order, from many threads, and ticks that fail."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from henchman.kernel.threads import Service, Ticker


class Waiting(Service):
    name = "waiting"
    runs = 0

    def run(self) -> None:
        self.runs += 1
        self.stopping.wait(30)


class Ticking(Ticker):
    name = "ticking"
    after_error = 0.0

    def __init__(self, pauses: Iterator[float | Exception]) -> None:
        self.problems: list[tuple[str, BaseException]] = []
        super().__init__(lambda name, error: self.problems.append((name, error)))
        self._pauses = pauses
        self.ticks = 0
        self.ticked = threading.Semaphore(0)

    def tick(self) -> float:
        self.ticks += 1
        self.ticked.release()
        pause = next(self._pauses, 30.0)
        if isinstance(pause, Exception):
            raise pause
        return pause


def test_start_and_stop() -> None:
    service = Waiting()
    assert not service.alive
    service.start()
    assert service.alive
    assert service.stop()
    assert not service.alive
    assert service.runs == 1


def test_everything_twice_and_in_the_wrong_order_is_harmless() -> None:
    service = Waiting()
    assert service.stop()  # before start
    service.start()  # after stop: it stays down
    assert not service.alive
    assert service.runs == 0

    service = Waiting()
    service.start()
    service.start()
    service.quiet()
    assert service.stop()
    assert service.stop()
    service.start()
    assert (service.alive, service.runs) == (False, 1)


def test_from_many_threads_at_once() -> None:
    for _ in range(20):
        service = Waiting()
        gate = threading.Barrier(8)

        def fuss(stop: bool, service: Waiting = service, gate: threading.Barrier = gate) -> None:
            gate.wait()
            if stop:
                service.stop()
            else:
                service.start()

        threads = [threading.Thread(target=fuss, args=[number % 2 == 0]) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert service.stop()
        assert not service.alive
        assert service.runs <= 1


def test_a_service_may_stop_itself() -> None:
    class Brief(Service):
        answer: bool | None = None

        def run(self) -> None:
            self.answer = self.stop()

    service = Brief()
    service.start()
    assert service.stop()
    assert service.answer is True


@pytest.mark.parametrize("raised", [ValueError, SystemExit, GeneratorExit])
def test_nothing_that_a_tick_raises_ends_the_ticking(raised: type[BaseException]) -> None:
    told: list[BaseException] = []
    again = threading.Event()

    class Broken(Ticker):
        after_error = 0.01

        def tick(self) -> float:
            if told:
                again.set()
                return 60.0
            raise raised

    service = Broken(lambda part, error: told.append(error))
    service.start()
    assert again.wait(30)
    assert service.stop()
    assert [type(one) for one in told] == [raised]


def test_a_body_that_does_not_end_is_told() -> None:
    release = threading.Event()

    class Deaf(Service):
        def run(self) -> None:
            release.wait(30)

    service = Deaf()
    service.start()
    assert service.stop(timeout=0.01) is False
    release.set()
    assert service.stop() is True


def test_a_ticker_ticks_waits_and_stops_at_once() -> None:
    ticker = Ticking(iter([0.0, 0.001, 30.0]))
    ticker.start()
    for _ in range(3):
        assert ticker.ticked.acquire(timeout=20)
    assert ticker.stop(timeout=5)  # in the middle of the 30 seconds
    assert ticker.ticks == 3


def test_wake_ticks_now() -> None:
    ticker = Ticking(iter([]))
    ticker.start()
    for _ in range(5):
        assert ticker.ticked.acquire(timeout=20)
        ticker.wake()
    assert ticker.ticked.acquire(timeout=20)
    assert ticker.stop()


def test_wake_before_start_is_not_lost() -> None:
    ticker = Ticking(iter([]))
    ticker.wake()
    ticker.start()
    assert ticker.ticked.acquire(timeout=20)
    assert ticker.ticked.acquire(timeout=20)
    assert ticker.stop()


@pytest.mark.parametrize("error", [ValueError("oops"), OSError("gone")])
def test_a_tick_that_fails_is_told_and_done_again(error: Exception) -> None:
    ticker = Ticking(iter([error, 0.0, error]))
    ticker.start()
    for _ in range(4):
        assert ticker.ticked.acquire(timeout=20)
    assert ticker.stop()
    assert ticker.problems == [("ticking", error)] * 2


def test_a_negative_pause_is_none() -> None:
    ticker = Ticking(iter([-5.0]))
    ticker.start()
    assert ticker.ticked.acquire(timeout=20)
    assert ticker.ticked.acquire(timeout=20)
    assert ticker.stop()
