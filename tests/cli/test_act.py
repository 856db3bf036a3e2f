"""The commands that act: what they say, and what is in the server afterwards."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from henchman import __version__
from henchman.cli import session as cli_session
from henchman.cli.main import henchman
from support.garbage import GARBAGE, READABLE, fill, payload
from support.locks import KEY, OTHER, OURS, SCOPE, holder, job, lock
from support.processes import Work
from support.store import Store
from support.worker import until

APP = """
from henchman import App
app = App()
@app.job(queue="cards", secret=("card",))
def pay(amount: int, card: str = "") -> None: ...
"""


def run(store: Store, *words: str, answer: str | None = None) -> Result:
    return CliRunner().invoke(henchman, [*words, "--redis", store.connections.url], input=answer)


def jids(store: Store, key: str) -> list[str]:
    return [json.loads(one)["jid"] for one in store.members(key)]


@pytest.fixture
def three(store: Store) -> list[str]:
    """Three retries."""
    names = [letter * 24 for letter in "abc"]
    for index, name in enumerate(names):
        store.ask("ZADD", store.keys.retry, 9e9 + index, payload(name, args=[index]))
    return names


def test_retry_by_id(store: Store, three: list[str]) -> None:
    done = run(store, "retries", "retry", three[0], three[2])
    assert (done.exit_code, done.stdout) == (0, "2 retries put into the queue\n")
    assert jids(store, store.keys.retry) == [three[1]]
    assert [json.loads(one)["jid"] for one in store.queue("mail")] == [three[0], three[2]]
    again = run(store, "retries", "retry", three[0], three[1])
    assert again.exit_code == 1
    assert again.stdout == "1 retry put into the queue\n"
    assert f"no retry has the id {three[0]}" in again.stderr


def test_kill_and_bring_back(store: Store, three: list[str]) -> None:
    assert run(store, "retries", "kill", "--all").stdout == "3 retries moved to the dead set\n"
    assert sorted(jids(store, store.keys.dead)) == three
    assert run(store, "dead", "retry", "--match", f'"jid":"{three[1]}"').stdout == "1 dead job put into the queue\n"
    assert sorted(jids(store, store.keys.dead)) == [three[0], three[2]]


def test_deleting_many_asks_first(store: Store, three: list[str]) -> None:
    for words in (("clear",), ("delete", "--all"), ("delete", "--match", "mail")):
        refused = run(store, "retries", *words)
        assert refused.exit_code == 2
        assert "say --yes" in refused.stderr
    assert len(store.members(store.keys.retry)) == 3
    assert run(store, "retries", "delete", three[0]).stdout == "1 retry deleted\n"
    assert run(store, "retries", "delete", "--match", three[1], "-y").stdout == "1 retry deleted\n"
    assert run(store, "retries", "clear", "--yes").stdout == "1 retry deleted\n"
    assert run(store, "retries", "clear").stdout == "No retries: nothing to delete.\n"
    assert store.all_keys() == set()


def test_on_a_terminal_the_answer_counts(store: Store, three: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_session, "at_terminal", lambda: True)
    assert run(store, "retries", "clear", answer="n\n").exit_code == 1
    assert len(store.members(store.keys.retry)) == 3
    asked = run(store, "retries", "clear", answer="y\n")
    assert "Delete 3 retries, for good? [y/N]" in asked.output
    assert store.members(store.keys.retry) == []


def test_what_cannot_be_retried_is_told(store: Store) -> None:
    fill(store, time.time())
    done = run(store, "retries", "retry", "--all")
    assert done.exit_code == 1
    assert done.stdout == f"{len(READABLE)} retries put into the queue\n"
    assert f"{len(GARBAGE) + 2} retries stayed where they were:" in done.stderr
    assert "no worker can run it" in done.stderr
    assert "\x1b" not in done.output
    assert run(store, "retries", "kill", "--all").stdout == f"{len(GARBAGE) + 2} retries moved to the dead set\n"


def test_a_pause_tells_its_reason_wherever_queues_are_shown(store: Store) -> None:
    store.push("mail", payload("a" * 24))
    assert "mail is paused" in run(store, "queues", "pause", "mail", "--reason", "provider [red]outage").stdout
    shown = run(store, "queues").stdout
    assert re.search(r"mail +1 .* paused by \S+@\S+, \d+ m?s ago: provider \[red\]", shown), shown
    pause = json.loads(run(store, "queues", "--json").stdout)["queues"][0]["pause"]
    assert (pause["reason"], pause["since"][:2]) == ("provider [red]outage", "20")
    why = run(store, "why", "a" * 24).stdout
    assert re.search(
        r"queue mail is paused \(by .*: provider \[red\]outage\), and it waits there, number 1\n.*queues unpause mail",
        why,
    ), why
    refused = run(store, "queues", "pause", "mail", "--reason", "x" * 201)
    assert (refused.exit_code, "say it in 200" in refused.stderr) == (1, True)


def test_queues(store: Store) -> None:
    store.push("mail", payload("a" * 24), payload("b" * 24))
    assert "mail is paused" in run(store, "queues", "pause", "mail").stdout
    assert store.ask("SMEMBERS", store.keys.paused) == [b"mail"]
    assert "nothing was pushed to it yet; did you mean 'mail'?" in run(store, "queues", "pause", "mial").stdout
    assert run(store, "queues", "unpause", "mail").stdout == "mail goes on\n"
    assert "was not paused" in run(store, "queues", "unpause", "mail").stdout
    unknown = run(store, "queues", "clear", "maill", "-y")
    assert (unknown.exit_code, unknown.stderr) == (1, "Error: there is no queue 'maill'; did you mean 'mail'?\n")
    assert run(store, "queues", "clear", "mail").exit_code == 2
    assert run(store, "queues", "clear", "mail", "-y").stdout == "mail is gone, with 2 jobs\n"
    assert store.ask("SMEMBERS", store.keys.queues) == []


def test_enqueue_by_name(store: Store) -> None:
    pushed = run(store, "enqueue", "HardJob", '["bob", 12345678901234567890123, null]', "-q", "ruby")
    assert pushed.exit_code == 0
    (stored,) = store.queue("ruby")
    job = json.loads(stored)
    assert (job["jid"], job["class"], job["args"]) == (
        pushed.stdout.strip(),
        "HardJob",
        ["bob", 12345678901234567890123, None],
    )
    later = json.loads(run(store, "enqueue", "HardJob", "--delay", "60", "--json").stdout)
    assert later["admission"] == "created"
    assert jids(store, store.keys.schedule) == [later["jid"]]
    for words in (["[NaN]"], ["[]", "-q", "bad name"]):
        refused = run(store, "enqueue", "x", *words)
        assert refused.exit_code == 1
        assert refused.stderr.count("\n") == 1


def test_enqueue_with_an_app(store: Store, project: Path) -> None:
    (project / "cli_act_app.py").write_text(APP)
    app = ("-A", "cli_act_app:app")
    wrong = run(store, *app, "enqueue", "cli_act_app.pay", "[]")
    assert wrong.exit_code == 1
    assert "amount" in wrong.stderr
    jid = run(store, *app, "enqueue", "cli_act_app.pay", '[5, "4111-1111"]').stdout.strip()
    assert len(store.queue("cards")) == 1, "the queue of its definition"
    assert '5, "***"' in run(store, *app, "job", jid).stdout, "what is secret is masked"
    assert "4111-1111" not in run(store, *app, "job", jid, "--json").stdout
    near = run(store, *app, "enqueue", "cli_act_app.pya", "[5]")
    assert near.exit_code == 0
    assert "did you mean 'cli_act_app.pay'?" in near.stderr


SENDS = """
from henchman import App
app = App()
@app.job(name="send", queue="mail")
def send(user: int, lang: str = "en", *, retry: bool = True) -> None: ...
"""


def test_enqueue_with_keyword_arguments_and_at(store: Store, project: Path) -> None:
    (project / "cli_sends.py").write_text(SENDS)
    app = ("-A", "cli_sends:app")
    assert run(store, *app, "enqueue", "send", "[7]", "--kwargs", '{"lang": "de", "retry": false}').exit_code == 0
    job = json.loads(store.queue("mail")[0])
    assert (job["args"], job["kwargs"], job["retry"]) == ([7, "de"], {"retry": False}, True)
    wrong = run(store, *app, "enqueue", "send", "[7]", "--kwargs", '{"lnag": "de"}')
    assert wrong.exit_code == 1
    assert "lnag" in wrong.stderr
    assert run(store, "enqueue", "Unknown", "--kwargs", '{"a": 1}', "-q", "other").exit_code == 0
    assert json.loads(store.queue("other")[0])["kwargs"] == {"a": 1}
    assert run(store, "enqueue", "Later", "--at", "2099-11-22T09:00:00+01:00").exit_code == 0
    (later,) = store.members(store.keys.schedule)
    assert float(store.ask("ZSCORE", store.keys.schedule, later)) == datetime(2099, 11, 22, 8, tzinfo=UTC).timestamp()
    for words in (["--at", "tomorrow"], ["--at", "2099-11-22T09:00:00"], ["--kwargs", "[]"], ["--kwargs", "{"]):
        assert run(store, "enqueue", "x", *words).exit_code == 2
    both = run(store, "enqueue", "x", "--at", "2099-11-22T09:00:00Z", "--delay", "5")
    assert (both.exit_code, "not both" in both.stderr) == (2, True)
    assert len(store.members(store.keys.schedule)) == 1


def test_the_beginning_of_an_id_is_enough(store: Store) -> None:
    """Where no other begins so; one that is known as it stands is meant itself."""
    near, far, waits, exact = "abcd1" + "0" * 19, "abcd2" + "0" * 19, "ffff" + "1" * 20, "abcd"
    for index, name in enumerate((near, far)):
        store.ask("ZADD", store.keys.retry, 9e9 + index, payload(name))
    store.push("mail", payload(waits))
    assert json.loads(run(store, "job", "abcd1", "--json").stdout)["jid"] == near
    assert json.loads(run(store, "job", "ffff", "--json").stdout)["jid"] == waits
    for command in (["job", "abcd"], ["cancel", "abcd"], ["retries", "delete", "abcd"]):
        several = run(store, *command)
        assert several.exit_code == 1
        assert f"several: {near}, {far}" in several.stderr
    assert run(store, "retries", "kill", "abcd1").stdout == "1 retry moved to the dead set\n"
    assert jids(store, store.keys.dead) == [near]
    assert run(store, "retries", "kill", "abc").exit_code == 1, "too short to mean one"
    store.ask("ZADD", store.keys.retry, 9.1e9, payload(exact))
    assert run(store, "retries", "delete", "abcd").stdout == "1 retry deleted\n"
    assert jids(store, store.keys.retry) == [far]
    assert waits in run(store, "cancel", "ffff").stdout


def test_cancel(store: Store, three: list[str]) -> None:
    assert "cancelled, it will not start" in run(store, "cancel", three[0]).stdout
    assert store.members(store.keys.cancelled) == [three[0].encode()]
    assert "nothing holds it now" in run(store, "cancel", "nobody").stdout
    assert run(store, "cancel", "\udcff").exit_code == 2


def test_status_as_a_probe(store: Store) -> None:
    assert run(store, "status").exit_code == 3
    store.ask("SADD", store.keys.processes, "host:1:abc")
    store.ask("HSET", store.keys.process("host:1:abc"), "info", "{}", "beat", time.time(), "busy", 0)
    assert run(store, "status").exit_code == 0
    store.ask("ZADD", store.keys.schedule, time.time() - 30, payload())
    assert run(store, "status").exit_code == 0, "half a minute is not overdue yet"
    store.ask("ZADD", store.keys.retry, time.time() - 90, payload())
    overdue = run(store, "status")
    assert overdue.exit_code == 4
    assert "1 job overdue" in overdue.stdout


def test_a_real_worker_seen_and_told(store: Store, redis_url: str, tmp_path: Path) -> None:
    with Work(tmp_path / "w", redis_url, "-c", "2", HENCHMAN_HEARTBEAT="0.5") as work:
        facts = until(lambda: json.loads(run(store, "processes", "--json").stdout)["processes"], "it shows itself")
        (process,) = facts
        assert (process["concurrency"], process["quiet"]) == (2, False)
        assert process["version"] == f"henchman {__version__}"
        assert run(store, "status").exit_code == 0
        jid = run(store, "enqueue", "act", '["x", "sleep", 300]').stdout.strip()
        until(lambda: work.count("start").total() == 1, "it runs")
        assert run(store, "job", jid).stdout.startswith("working")
        until(lambda: jid in run(store, "status").stdout, "the heartbeat tells")
        assert "takes no new jobs" in run(store, "processes", "quiet", process["identity"][:-4]).stdout
        until(lambda: json.loads(run(store, "processes", "--json").stdout)["processes"][0]["quiet"], "it is quiet")
        assert "msg=stack" not in work.log
        run(store, "processes", "dump", "--all")
        until(lambda: "msg=stack" in work.log, "its stacks are in its log")
        wrong = run(store, "processes", "stop", "nobody")
        assert (wrong.exit_code, "there is no process 'nobody'" in wrong.stderr) == (1, True)


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_watch_ends_with_ctrl_c_and_survives_a_closed_pipe(store: Store, form: list[str]) -> None:
    command = [sys.executable, "-m", "henchman", "status", "--watch", "--every", "0.2", *form]
    env = os.environ | {"HENCHMAN_REDIS_URL": store.connections.url}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, text=True) as watch:
        assert watch.stdout is not None
        lines = [watch.stdout.readline() for _ in range(3)]
        watch.send_signal(2)
        assert watch.wait(30) == 0
        assert watch.stderr is not None
        assert watch.stderr.read() == ""
    if form:
        assert json.loads(lines[1])["rates"] == {"processed": 0.0, "failed": 0.0}
    else:
        assert "0.0 jobs/s, 0 enqueued" in lines[1]


class TestForget:
    """``doctor --forget``: keys whose jobs are nowhere."""

    def test_doctor_names_them_and_the_command_frees_them(self, store: Store) -> None:
        lock(store, "o")
        lock(store, "u", OTHER, key="held")
        store.push("a", job(OTHER, "u", key="held"))
        (check,) = (one for one in json.loads(run(store, "doctor", "--json").stdout)["checks"] if "keys" in one["name"])
        assert check["verdict"] == "warn"
        assert check["text"].startswith("1 key: held by jobs that are nowhere; ")
        assert OURS in check["text"]
        assert check["advice"].endswith("henchman doctor --forget")
        asked = run(store, "doctor", "--forget")
        assert asked.exit_code == 2
        assert "say --yes" in asked.stderr
        assert holder(store, "o") == OURS, "nobody said yes"
        done = run(store, "doctor", "--forget", "--yes")
        assert (done.exit_code, done.stdout) == (0, "1 key freed\n")
        assert holder(store, "o") is None
        assert holder(store, "u", key="held") == OTHER
        assert run(store, "doctor", "--forget").stdout == "no key is held by a job that is nowhere\n"

    def test_for_programs(self, store: Store) -> None:
        lock(store, "u")
        told = json.loads(run(store, "doctor", "--forget", "--yes", "--json").stdout)
        freed = [{"phase": "until_success", "scope": SCOPE, "key": KEY, "jid": OURS}]
        assert told == {"freed": freed, "looked": 1, "more": False}
