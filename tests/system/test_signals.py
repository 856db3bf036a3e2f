"""Signals to a supervisor, as people, init systems and terminals send them. Real processes, real signals."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from redis import Redis

from henchman.supervisor.child import EXIT_CUT_OFF
from support.processes import PATHS, Work, children_of, push, records
from support.worker import in_flight, jobs_in, looker, settled, until


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stop_waits_then_gives_back_byte_for_byte(redis: Redis, redis_url: str, tmp_path: Path, number: int) -> None:
    with Work(tmp_path / "w", redis_url, "-c", "4", "-t", "7") as work:
        work.ready(redis)
        rows = [*[(f"long{n}", "sleep", 60) for n in range(3)], ("short", "sleep", 0.5)]
        for row in rows:  # one after the other, so that one order is the right one
            push(redis, "act", row)
            until(lambda row=row: work.count("start")[row[0]], "it runs")  # type: ignore[misc]
        push(redis, "act", ("waits", "ok"))
        payloads = redis.lrange("queue:default", 0, -1) or in_flight(redis)
        work.signal(number)
        assert work.wait() == EXIT_CUT_OFF, "it tells that not every job ended in its time"
        assert "could not wait for every job" in work.log
        assert work.count("end")["short"] == 1
        left = redis.lrange("queue:default", 0, -1)
        names = [job["args"][0] for job in jobs_in(redis, "queue:default")]
        waiting = [] if work.count("start")["waits"] else ["waits"]
        assert names == ["long0", "long1", "long2", *waiting], "unfinished jobs are next to run, in their order"
        assert set(left) <= set(payloads) | set(left)
        assert all(
            job["args"][1] in ("sleep", "ok") and "retry_count" not in job for job in jobs_in(redis, "queue:default")
        )
        assert not in_flight(redis)
        assert not redis.smembers("processes")
        assert not list(redis.scan_iter("hm:lease:*"))
        assert not redis.exists("retry")


def test_given_back_bytes_are_those_that_were_pushed(redis: Redis, redis_url: str, tmp_path: Path) -> None:
    odd = '{ "class":"act",  "args":["j","sleep",60], "jid":"x1","jid":"x2", "n": 1.50, "é":"\\u00e9" }'.encode()
    with Work(tmp_path / "w", redis_url, "-t", "0") as work:
        work.ready(redis)
        redis.lpush("queue:default", odd)
        until(lambda: work.count("start")["j"], "it runs")
        assert work.stop() == EXIT_CUT_OFF
        assert redis.lrange("queue:default", 0, -1) == [odd]


def cut_off(work: Work) -> None:
    """Ctrl-C, and once more as soon as it says that this ends it."""
    work.signal(signal.SIGINT)
    until(lambda: "press Ctrl-C again" in work.log, "it says what to do")
    work.signal(signal.SIGINT)
    assert work.wait() == EXIT_CUT_OFF


def test_a_second_ctrl_c_ends_at_once(redis: Redis, redis_url: str, tmp_path: Path) -> None:
    with Work(tmp_path / "w", redis_url, "-t", "600") as work:
        work.ready(redis)
        push(redis, "act", ("j", "sleep", 600))
        until(lambda: work.count("start")["j"], "it runs")
        cut_off(work)
        assert [job["args"][0] for job in jobs_in(redis, "queue:default")] == ["j"]
        assert not in_flight(redis)


def test_quiet_takes_nothing_new_and_lets_run_what_runs(redis: Redis, redis_url: str, tmp_path: Path) -> None:
    with Work(tmp_path / "w", redis_url, "-c", "2", HENCHMAN_HEARTBEAT="0.5") as work:
        (pid,) = work.ready(redis)
        (identity,) = redis.smembers("processes")  # type: ignore[misc]
        push(redis, "act", ("j", "held", 600))
        until(lambda: work.count("start")["j"], "it runs")
        work.signal(signal.SIGTSTP)
        until(lambda: "nothing new is fetched" in work.log, "it says so")
        until(lambda: redis.hget(identity, "quiet") == b"true", "it is quiet")
        push(redis, "act", ("k", "ok"))
        assert work.count("end")["j"] == 0
        work.open()
        settled(redis, 1)
        os.kill(pid, signal.SIGKILL)
        until(lambda: 'end="signal SIGKILL"' in work.log, "the supervisor has seen it")
        work.signal(signal.SIGHUP)
        work.signal(signal.SIGTTIN)  # obeyed after the others: when this one was taken, they were too
        until(lambda: pid not in records(redis), "its work was given back")
        assert not work.children, "a quiet supervisor starts nobody"
        assert [job["args"][0] for job in jobs_in(redis, "queue:default")] == ["k"]
        assert work.stop() == 0


def test_ttin_writes_every_stack_to_the_log(redis: Redis, redis_url: str, tmp_path: Path) -> None:
    with Work(tmp_path / "w", redis_url, "-c", "3") as work:
        work.ready(redis)
        (jid,) = push(redis, "aact", ("a", 60))
        push(redis, "act", ("s", "sleep", 60))
        until(lambda: work.count("start").total() == 2, "both run")
        work.signal(signal.SIGTTIN)
        until(lambda: "acting.py" in work.log and "in _sleep" in work.log, "the thread's stack")
        until(lambda: jid in work.log and "in aact" in work.log, "the task's stack")
        assert "henchman-job-" in work.log


EARLY = """
import os
import re
import time
from support.acting import app

class Companion:
    name, verbs = "slow", {}

    def start(self):
        while not os.path.exists(os.environ["ACTING_TRACE"] + ".open"):
            time.sleep(0.02)  # between two looks: a companion that starts slowly

    def quiet(self): ...

    def stop(self, timeout=5.0):
        return True

app.companions = lambda alone: [Companion()]
"""


def test_jobs_may_begin_before_their_process_says_that_it_is_ready(
    redis: Redis, redis_url: str, tmp_path: Path
) -> None:
    """It begins to fetch a moment earlier, which may be long on a busy machine: no signal is lost, no job forgotten."""
    (tmp_path / "early.py").write_text(EARLY, encoding="utf-8")
    paths = os.pathsep.join([*PATHS, str(tmp_path)])
    with Work(tmp_path / "w", redis_url, "-t", "600", target="early:app", PYTHONPATH=paths) as work:
        push(redis, "act_once", ("j", "sleep", 600))
        until(lambda: work.count("start")["j"], "it runs")
        work.kill_one()
        until(lambda: "its jobs are given back, another is started" in work.log, "it is told what becomes of them")
        until(lambda: work.count("end")["j"], "it ran again")
        push(redis, "act", ("k", "sleep", 600))
        until(lambda: work.count("start")["k"], "another runs")
        work.signal(signal.SIGTTIN)
        work.open()
        until(lambda: "in _sleep" in work.log, "its stack is in the log, as soon as it is ready")
    redis.flushall()
    with Work(tmp_path / "x", redis_url, "-t", "600", target="early:app", PYTHONPATH=paths) as work:
        push(redis, "act", ("j", "sleep", 600))
        until(lambda: work.count("start")["j"], "it runs")
        cut_off(work)


def test_hup_rolls_over_one_by_one_while_200_jobs_a_second_come(redis: Redis, redis_url: str, tmp_path: Path) -> None:
    done = threading.Event()
    pushed = 0

    def pushing() -> None:
        nonlocal pushed
        with looker(redis_url) as own:
            while not done.wait(0.05):
                if own.llen("queue:default") > 500:  # they cannot keep up
                    continue
                push(own, "act", *[(f"j{pushed + n}", "sleep", 0.005) for n in range(10)])
                pushed += 10

    with Work(tmp_path / "w", redis_url, "-p", "2", "-c", "3") as work:
        before = set(work.ready(redis, 2))
        pusher = threading.Thread(target=pushing)
        pusher.start()
        try:
            until(lambda: work.count("end").total() > 50, "jobs run")
            work.signal(signal.SIGHUP)
            fewest = 2

            def rolled() -> bool:
                nonlocal fewest
                now = work.children
                known = records(redis).keys()
                if now == work.children:  # they were these while their records were read
                    fewest = min(fewest, len(known & set(now)))
                return len(now) == 2 and not before & set(now)

            until(rolled, "both were replaced")
            assert fewest >= 1, "never all at once"
            until(lambda: len(records(redis).keys() & set(work.children)) == 2, "both are ready")
            now = pushed
            until(lambda: work.count("end").total() > now, "jobs go on")
        finally:
            done.set()
            pusher.join()
        settled(redis, pushed)
        assert work.count("end") == {f"j{n}": 1 for n in range(pushed)}, "each ran, and once"
        assert work.stop() == 0


def test_max_jobs_and_max_memory_replace_a_process(redis: Redis, redis_url: str, tmp_path: Path) -> None:
    with Work(tmp_path / "w", redis_url, "-c", "2", "--max-jobs", "20", "--max-memory", "120MB") as work:
        (first,) = work.ready(redis)
        push(redis, "act", *[(f"j{n}", "ok") for n in range(25)])
        (second,) = until(lambda: [pid for pid in work.children if pid != first], "another was started")
        assert "max_jobs is 20" in work.log
        until(lambda: work.count("end").total() == 25, "all ran")
        until(lambda: work.children == [second], "the first has ended")
        push(redis, "act", ("big", "memory", 150))
        until(lambda: work.children and second not in work.children, "it was replaced again")
        assert "max_memory is 120 MB" in work.log
        settled(redis, 26)
        assert work.stop() == 0


def test_a_process_runs_no_more_than_max_jobs(redis: Redis, redis_url: str, tmp_path: Path) -> None:
    with Work(tmp_path / "w", redis_url, "-c", "5", "--max-jobs", "40") as work:
        work.ready(redis)
        push(redis, "act", *[(f"j{n}", "ok") for n in range(120)])
        until(lambda: work.count("end").total() == 120, "all ran")
        ran = Counter(line.split()[2] for line in work.trace_file.read_text().splitlines() if line.startswith("end "))
        assert len(ran) >= 3
        assert max(ran.values()) <= 40 + 5, ran
        assert work.stop() == 0


def test_a_wrong_target_ends_with_a_clear_line(tmp_path: Path, redis_url: str) -> None:
    for target, words in (
        ("support.nothing:app", "there is no module 'support.nothing'"),
        ("support.acting:ap", "support.acting has no 'ap'; did you mean 'app'?"),
        ("support.acting:write", "support.acting:write is function, not an App"),
    ):
        with Work(tmp_path / target.replace(":", "-"), redis_url, target=target) as work:
            assert work.wait() != 0
            assert words in work.log
            assert "traceback" not in work.log


@pytest.mark.parametrize(
    "line", ["import sys; sys.exit('SHOP_KEY is not set')", "raise ValueError('SHOP_KEY is not set')"]
)
def test_code_that_does_not_import_ends_the_first_start(tmp_path: Path, redis_url: str, line: str) -> None:
    (tmp_path / "exits.py").write_text(line, encoding="utf-8")
    with Work(tmp_path, redis_url, target="exits:app") as work:
        assert work.wait() == 1
        assert "exits.py" in work.log, "where"
        assert re.search(r"exits:app cannot be imported: (SystemExit|ValueError): SHOP_KEY is not set", work.log)


def test_a_child_that_dies_at_once_is_replaced_with_back_off(tmp_path: Path, redis_url: str, redis: Redis) -> None:
    (tmp_path / "flaky.py").write_text(
        "import os\n"
        "from support.acting import app\n"
        "starts = open('starts', 'a+')\n"
        "starts.write('x'); starts.flush(); starts.seek(0)\n"
        "if len(starts.read()) < 4: os._exit(9)\n",
        encoding="utf-8",
    )
    began = time.monotonic()
    with Work(tmp_path, redis_url, target="flaky:app") as work:
        until(lambda: records(redis), "the fourth lives")
        assert (tmp_path / "starts").read_text(encoding="utf-8") == "xxxx"
        assert work.log.count('end="exit status 9"') == 3
        assert time.monotonic() - began > 0.2 + 0.4 + 0.8, "each time later"
        assert work.stop() == 0


def test_no_server_is_an_error_at_once_and_said(tmp_path: Path) -> None:
    with Work(tmp_path / "w", f"unix://{tmp_path}/nobody") as work:
        until(lambda: "cannot be reached" in work.log, "it says so")
        work.signal(signal.SIGTERM)
        work.wait()


def test_as_pid_1_it_reaps_orphans(redis: Redis, redis_url: str, tmp_path: Path) -> None:
    unshare = ["unshare", "--fork", "--pid", "--kill-child", "--mount-proc"]
    if shutil.which("unshare") is None or _fails(*unshare, "true"):
        pytest.skip("no right to make a process namespace here")
    (tmp_path / "orphans.py").write_text(
        "import subprocess, sys\n"
        "from support.acting import app, write\n"
        "@app.job(name='orphan')\n"
        "def orphan(name: str) -> None:\n"
        "    script = 'import os; os.fork() and os._exit(0); os.setsid()'\n"
        "    subprocess.run([sys.executable, '-c', script], check=True)\n"
        "    write('end', name)\n",
        encoding="utf-8",
    )
    with Work(tmp_path, redis_url, target="orphans:app", before=unshare) as work:
        until(lambda: records(redis), "it is ready")
        (init,) = children_of(work.pid)
        push(redis, "orphan", *[(f"o{n}",) for n in range(5)])
        settled(redis, 5)
        until(lambda: len(_below(init)) == 1, "the orphans have ended, and none is left as a zombie")
        (worker,) = children_of(init)
        os.kill(worker, signal.SIGKILL)
        until(lambda: [pid for pid in children_of(init) if pid != worker], "a killed child is replaced as ever")
        os.kill(init, signal.SIGTERM)
        work.wait()


def _below(pid: int) -> list[int]:
    """Every child of a process, zombies too."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    return [one for one in pids if _parent(one) == pid]


def _parent(pid: int) -> int:
    try:
        return int(
            Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1]
        )
    except OSError:
        return 0


def _fails(*command: str) -> bool:
    return subprocess.run(command, check=False, capture_output=True).returncode != 0
