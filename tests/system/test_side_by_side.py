"""A deploy: workers of the code before the house was rebuilt and of today's share one server, and lose nothing.

The old code comes out of the repository's own past; a clone without it (``--depth 1``) does not collect this file.
"""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import tarfile
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from redis import Redis

from support.before import COMMIT, ROOT
from support.processes import children_of, clean_environ, holds_on
from support.worker import in_flight, until

NAMES = [f"{code}-{kind}{number}" for code in ("old", "new") for kind in "pfm" for number in range(60)]


class Side:
    """One version of the code: its workers and its client."""

    def __init__(self, source: Path, folder: Path, url: str) -> None:
        self.folder = folder
        folder.mkdir()
        paths = os.pathsep.join([str(source), str(ROOT / "tests")])
        trace = str(folder.parent / "trace")
        self.env = clean_environ() | {"HENCHMAN_REDIS_URL": url, "PYTHONPATH": paths, "BESIDE_TRACE": trace}

    def work(self) -> Running:
        return Running(self)

    def push(self) -> None:
        command = [sys.executable, "-m", "support.beside"]
        subprocess.run(command, cwd=self.folder, env=self.env, check=True, timeout=120)


class Running:
    """A supervisor and its child; the end of the block kills what is left of them."""

    def __init__(self, side: Side) -> None:
        command = [sys.executable, "-m", "henchman", "work", "support.beside:app", "-q", "default", "-q", "sync"]
        with (side.folder / "log").open("ab") as out:
            self.process = subprocess.Popen(
                command, cwd=side.folder, env=side.env, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """The whole host is gone at once: nobody there gives anything back."""
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGSTOP)
            pids = children_of(self.process.pid)
            for pid in [self.process.pid, *pids]:
                os.kill(pid, signal.SIGKILL)
            self.process.wait(60)
            until(lambda: not any(map(holds_on, pids)), "its children are gone")

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(90)


@pytest.fixture
def sides(redis_url: str, tmp_path: Path) -> dict[str, Side]:
    (tmp_path / "trace").touch()
    packed = subprocess.run(["git", "archive", COMMIT, "src"], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        tar.extractall(tmp_path / "old-code", filter="data")
    old, new = tmp_path / "old-code" / "src", ROOT / "src"
    return {"old": Side(old, tmp_path / "old", redis_url), "new": Side(new, tmp_path / "new", redis_url)}


@pytest.fixture
def trace(tmp_path: Path) -> Callable[[], list[list[str]]]:
    return lambda: [line.split() for line in (tmp_path / "trace").read_text(encoding="utf-8").splitlines()]


def ended(trace: Callable[[], list[list[str]]]) -> Counter[str]:
    return Counter(line[1] for line in trace() if line[0] == "end")


def test_both_run_what_both_push(sides: dict[str, Side], redis: Redis, trace: Callable[[], list[list[str]]]) -> None:
    with sides["old"].work() as old, sides["new"].work() as new:
        until(lambda: redis.scard("processes") == 2, "both are ready")
        for side in sides.values():
            side.push()
        until(lambda: set(ended(trace)) >= set(NAMES), "every job has ended")
        until(lambda: len([one for one in trace() if one[0] == "completed"]) == 2, "both batches are complete")
        until(lambda: len({(one[1], one[2]) for one in trace() if one[0] == "did"}) == 240, "every payload is done")
        until(lambda: not in_flight(redis), "everything is settled")
        assert (old.stop(), new.stop()) == (0, 0)
    lines = trace()
    assert set(ended(trace).values()) == {1}
    assert Counter(one[1] for one in lines if one[0] == "raise") == Counter(one for one in NAMES if "-f" in one)
    assert {one[-3] for one in lines if one[0] in ("end", "did")} == {"old", "new"}, "one side did all of it"
    assert_in_order(lines)
    assert not [key for key in redis.keys("queue:*") + redis.keys("hm:o:*") if b"stat" not in key]
    assert not redis.exists("retry", "schedule", "dead", "hm:identities")


def assert_in_order(lines: list[list[str]]) -> None:
    """Each id in one hand at a time, its payloads once, oldest score first."""
    scores, holder = defaultdict(list), {}
    for event, entity, *rest in lines:
        if event == "begin":
            assert entity not in holder, f"{entity} was given to {rest} beside {holder[entity]}"
            holder[entity] = rest
        elif event == "did":
            scores[entity].append(int(rest[0]))
        elif event == "leave":
            del holder[entity]
    assert scores == {f"{code}-e{number}": list(range(10)) for code in ("old", "new") for number in range(12)}


@pytest.mark.parametrize(("dies", "lives"), [("old", "new"), ("new", "old")])
def test_one_gives_back_what_the_other_held_when_its_host_died(
    sides: dict[str, Side], redis: Redis, trace: Callable[[], list[list[str]]], dies: str, lives: str
) -> None:
    sides[lives].env["BESIDE_WATCH"] = "5"
    push = "from support.beside import plain; [plain.enqueue(f'slow{n}', 600.0) for n in range(3)]"
    with ExitStack() as stack:
        dead = stack.enter_context(sides[dies].work())
        subprocess.run(
            [sys.executable, "-c", push], cwd=sides[lives].folder, env=sides[lives].env, check=True, timeout=60
        )
        until(lambda: len([one for one in trace() if one[0] == "start"]) == 3, "three run")
        alive = stack.enter_context(sides[lives].work())
        dead.kill()
        until(lambda: len(ended(trace)) == 3, "they were given back and ran again")
        until(lambda: not in_flight(redis), "everything is settled")
        assert alive.stop() == 0
    assert [one[2] for one in trace() if one[0] == "start"] == [dies] * 3 + [lives] * 3
    assert not redis.exists("queue:default", "retry", "dead")
