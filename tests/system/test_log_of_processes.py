"""What the processes of ``henchman work`` write: the supervisor's lines are lines of the log like any other."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

from redis import Redis

import henchman
from henchman.supervisor.child import EXIT_CUT_OFF
from support.processes import Work, holds_on, push
from support.worker import in_flight, until


def lines_of(work: Work) -> list[dict[str, Any]]:
    """The log; every line of it is a JSON object with a time and a level."""
    lines = [json.loads(line) for line in work.log.splitlines()]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", one["ts"]) and one["level"] for one in lines)
    return lines


def found(work: Work, words: str) -> list[dict[str, Any]]:
    """Its lines with this message, once there is one."""
    return until(lambda: [one for one in lines_of(work) if one["msg"] == words], f"the log has {words!r}")


def test_every_line_of_a_run_a_crash_and_a_stop_has_the_chosen_format(
    redis: Redis, redis_url: str, tmp_path: Path
) -> None:
    args = ("--log-format", "json", "-t", "1", "-c", "2")
    with Work(tmp_path / "w", redis_url, *args) as work:
        work.ready(redis)
        (ready,) = found(work, "Henchman is ready")
        assert ready["process"] == "supervisor"
        assert ready["level"] == "info"
        known = {name: ready[name] for name in ("version", "app", "processes", "slots", "queues", "server")}
        assert known == {
            "version": henchman.__version__,
            "app": "support.acting:app",
            "processes": 1,
            "slots": 2,
            "queues": known["queues"],
            "server": redis_url,
        }
        assert "default" in known["queues"]
        assert ready["jobs"] >= 1
        assert str(work.pid) in ready["stop"]
        (jid,) = push(redis, "act", ("one", "ok"))
        (done,) = found(work, "done")
        assert (done["jid"], done["level"]) == (jid, "info")
        assert done["elapsed"] >= 0
        of_job = [one for one in lines_of(work) if one.get("jid") == jid]
        assert of_job == [done], "one line a job"
        work.kill_one()
        (ended,) = found(work, "a worker process ended")
        assert (ended["level"], ended["end"], ended["process"]) == ("error", "signal SIGKILL", "supervisor")
        push(redis, "act", ("long", "sleep", 600))
        until(lambda: work.count("start")["long"], "it runs")
        assert work.stop() == EXIT_CUT_OFF
        (cut_off,) = found(work, "the stop cut off jobs that had not ended; they are given back")
        assert (cut_off["count"], cut_off["jobs"].split()[0]) == (1, "act")
        messages = {one["msg"] for one in lines_of(work)}
        assert "stopping: running jobs may finish; press Ctrl-C again to end at once" in messages
        assert not [one for one in messages if re.search(r"\d", one)], "facts stand in fields"


CRASHES = """
import ctypes, faulthandler, os
from henchman import App
app = App(log_format="json")
@app.job(name="crash", retry=0)
def crash() -> None:
    ctypes.string_at(0)  # this very line
@app.job(name="fork_and_crash")
def fork_and_crash() -> None:
    pid = os.fork()
    if not pid:
        ctypes.string_at(0)
    os.waitpid(pid, 0)
"""


def test_after_a_crash_it_is_told_which_line_it_was(redis: Redis, redis_url: str, tmp_path: Path) -> None:
    (tmp_path / "crashes.py").write_text(CRASHES)
    with Work(tmp_path, redis_url, "-c", "1", "--log-format", "json", target="crashes:app") as work:
        work.ready(redis)
        push(redis, "fork_and_crash", ())
        until(lambda: "Segmentation fault" in work.log, "a child of a job crashed, and is none of ours")
        assert '"a worker process ended"' not in work.log
        push(redis, "crash", ())
        (ended, *_) = until(
            lambda: [json.loads(one) for one in work.log.splitlines() if '"a worker process ended"' in one], "it ended"
        )
    assert ended["end"] == "signal SIGSEGV"
    assert "Segmentation fault" in ended["traceback"]
    assert (
        f'{tmp_path}/crashes.py", line {CRASHES.splitlines().index("    ctypes.string_at(0)  # this very line") + 1}'
        in (ended["traceback"])
    )
    assert ended["traceback"].count("Fatal Python error") == 1, "nothing of the child of the job"


ORPHAN = """
import ctypes, pathlib, time
from henchman import App, current_job
app = App(log_format="json")
@app.job(name="crash_late", retry=0)
def crash_late(file: str) -> None:
    while not pathlib.Path(file).exists():
        time.sleep(0.02)
    ctypes.string_at(0)  # this very line
"""


def test_an_orphan_that_crashes_says_so_where_its_log_goes(redis: Redis, redis_url: str, tmp_path: Path) -> None:
    """The file that its supervisor would have read is read by nobody."""
    (tmp_path / "orphan.py").write_text(ORPHAN)
    go = tmp_path / "go"
    with Work(tmp_path, redis_url, "-c", "1", "--log-format", "json", target="orphan:app") as work:
        (pid,) = work.ready(redis)
        push(redis, "crash_late", (str(go),))
        until(lambda: in_flight(redis), "it runs")
        work.signal(signal.SIGKILL)
        work.wait()
        until(lambda: "quiet: nothing new" in work.log, "the orphan knows")
        go.touch()
        until(lambda: not holds_on(pid), "the orphan crashed")
        assert work.log.count("Fatal Python error: Segmentation fault") == 1
        assert 'orphan.py", line 9 in crash_late' in work.log
    assert in_flight(redis), "and whoever rescues it gives its job back"


def test_level_and_format_of_the_app_count_for_its_supervisor(redis: Redis, redis_url: str, tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text("from henchman import App\napp = App(log_format='json', log_level='warning')\n")
    with Work(tmp_path, redis_url, target="loud:app") as work:
        work.ready(redis)
        work.kill_one()
        (ended,) = found(work, "a worker process ended")
        assert ended["level"] == "error"
        work.ready(redis)
        assert work.stop() == 0
        assert {one["level"] for one in lines_of(work)} <= {"warning", "error"}


def test_code_that_does_not_import_is_one_line_with_its_traceback(redis_url: str, tmp_path: Path) -> None:
    (tmp_path / "gone.py").write_text("import nothing_of_this_name\n")
    with Work(tmp_path, redis_url, "--log-format", "json", target="gone:app") as work:
        assert work.wait() == 1
        (line,) = lines_of(work)
    assert "No module named 'nothing_of_this_name'" in line["error"]
    assert "gone.py" in line["traceback"]
    assert line["level"] == "critical"


OWN = """
import logging
logging.basicConfig(format="MINE %(levelname)s %(message)s", level=logging.{level})
from henchman import App
app = App(configure_logging=False)
@app.job(name="speak")
def speak() -> None:
    logging.getLogger("shop").warning("spoken")
"""


def test_a_log_that_is_the_users_own_says_why_a_process_ends(redis_url: str, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN.replace("{level}", "INFO"))
    with Work(tmp_path, redis_url, target="own:nothing", HENCHMAN_CONFIGURE_LOGGING="false") as work:
        assert work.wait() == 1
        assert "MINE CRITICAL the worker process ends: own has no 'nothing'" in work.log


def test_a_log_that_is_the_users_own_stays_as_it_is(redis: Redis, redis_url: str, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN.replace("{level}", "INFO"))
    with Work(tmp_path, redis_url, target="own:app") as work:
        work.ready(redis)
        push(redis, "speak", ())
        until(lambda: "MINE INFO done" in work.log, "its own format")
        assert "MINE WARNING spoken" in work.log
        assert not re.search("^ts=.*(done|spoken)", work.log, re.MULTILINE), "no second handler"
        work.signal(signal.SIGTERM)
        assert work.wait() == 0
