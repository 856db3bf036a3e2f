"""The commands that read: garbage in every place, both forms of output, and nothing there at all."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rich.cells import cell_len

from cli.conftest import INVISIBLE
from henchman.cli.main import henchman
from henchman.cli.queues import SHOWN
from support.garbage import GARBAGE, HOSTILE, READABLE, fill, payload
from support.store import Store

LISTS = ["queues", "processes", "retries", "retries list", "scheduled list", "dead list", "blocked -n 500", "status"]
LISTS += ["doctor"]
EVERY = len(GARBAGE) + len(READABLE) + 2


@pytest.fixture(autouse=True)
def _narrow(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As wide as a terminal of old."""
    monkeypatch.setenv("COLUMNS", "80")


def run(command: str, store: Store | None = None, *more: str) -> Result:
    server = ["--redis", store.connections.url] if store else []
    return CliRunner().invoke(henchman, [*server, *command.split(), *more])


@pytest.mark.parametrize("command", LISTS)
def test_garbage_makes_no_mess(store: Store, command: str) -> None:
    fill(store, time.time())
    shown = run(command, store)
    assert shown.exit_code in {0, 1, 4}, shown.output
    assert not INVISIBLE.search(shown.output)
    assert shown.stderr == ""
    wide = [line for line in shown.stdout.splitlines() if cell_len(line) > 80]
    assert not wide or command == "doctor", "a line that is too long would wrap"
    if command not in {"doctor"}:
        assert "[bold]x[/bold]\\u202e" in shown.output, "text is shown as text"


@pytest.mark.parametrize("command", LISTS)
def test_json_is_one_document_with_nothing_invisible(store: Store, command: str) -> None:
    fill(store, time.time())
    shown = run(command, store, "--json")
    assert isinstance(json.loads(shown.stdout), dict)
    assert not INVISIBLE.search(shown.output)


def test_a_hundred_thousand_queues_are_shown_in_pages(store: Store) -> None:
    names = [f"q{number:06}" for number in range(100_000)]
    for start in range(0, len(names), 10_000):
        store.ask("SADD", store.keys.queues, *names[start : start + 10_000])
    store.push("q099999", payload())
    page = run("queues", store).stdout.splitlines()
    assert page[2].split()[0] == names[0]
    assert len(page) == 2 + SHOWN + 1, "a title, its line, the page, what is left"
    assert page[-1] == "… and 99,900 more: henchman queues --first 100"
    last = run("queues --first 99997 -n 2", store).stdout.splitlines()
    assert [line.split()[0] for line in last[2:4]] == names[-3:-1]
    assert last[4] == "… and 1 more: henchman queues --first 99999"
    assert run("queues --match zzz", store).stdout == "No queue has 'zzz' in its name.\n"
    assert run("queues --first 100000", store).stdout == "No more: 100,000 queues in all.\n"
    found = json.loads(run("queues --json --match q00000", store).stdout)["queues"]
    assert [one["name"] for one in found] == names[:10]
    status = run("status", store).stdout
    assert "1 enqueued" in status
    assert "q099999" in status, "the longest are chosen"
    assert "… and 99,950 shorter ones: henchman queues" in status


def test_the_names_in_json_are_stable(store: Store) -> None:
    fill(store, time.time())
    retries = json.loads(run("retries list --json -n 1000", store).stdout)
    assert set(retries) == {"set", "total", "jobs"}
    assert (retries["total"], len(retries["jobs"])) == (EVERY, EVERY)
    readable = [one for one in retries["jobs"] if "payload" not in one]
    assert {frozenset(one) for one in readable} == {
        frozenset(
            {"jid", "class", "queue", "args", "kwargs", "tags", "attempts", "error_class", "error_message", "at"}
            | {"cause", "created_at", "enqueued_at", "failed_at", "retried_at", "problem"}
        )
    }
    assert HOSTILE in {one["class"] for one in readable}
    queues = json.loads(run("queues --json", store).stdout)["queues"]
    names = {"name", "size", "latency", "paused", "pause", "problem", "fair", "objective"}
    assert {frozenset(one) for one in queues} == {frozenset(names)}
    status = json.loads(run("status --json", store).stdout)
    wanted = {"slots_desired", "queue_slots_desired"}
    assert set(status) == {"at", "stats", "rates", "queues", "ordered", "processes", "work", *wanted}
    assert status["slots_desired"] >= 1, "jobs wait"
    served = {one["name"] for one in [*status["queues"], *status["ordered"]] if not one["paused"]}
    assert set(status["queue_slots_desired"]) == served
    assert status["stats"]["retries"] == EVERY


def test_lists_are_cut_and_say_so(store: Store) -> None:
    store.ask("ZADD", store.keys.dead, *[x for n in range(120) for x in (n, payload(f"{n:024}"))])
    shown = run("dead list", store).stdout
    assert shown.endswith("50 of 120 dead jobs; more with --most\n")
    assert shown.index(f"{119:024}") < shown.index(f"{100:024}")
    assert len(run("dead list -n 120", store).stdout.splitlines()) == 122
    assert f"{77:024}" in run("dead list --match", store, f"{77:024}").stdout
    assert "No dead jobs fit that; there are 120." in run("dead list --match *", store).stdout


@pytest.mark.parametrize(
    ("command", "status", "text"),
    [
        ("queues", 0, "No queues. A queue appears with the first job"),
        ("processes", 0, "No worker processes. Start one: henchman work pkg.mod:app"),
        ("retries", 0, "No retries. A job that fails"),
        ("scheduled list", 0, "No scheduled jobs."),
        ("dead list", 0, "No dead jobs."),
        ("status", 3, "No worker processes."),
        ("job abc", 1, "finished, was deleted, or never existed"),
    ],
)
def test_empty(store: Store, command: str, status: int, text: str) -> None:
    shown = run(command, store)
    assert (shown.exit_code, shown.stderr) == (status, "")
    assert text in shown.stdout.replace("\n", " ")
    assert store.all_keys() == set(), "who reads writes nothing"


def test_a_job_in_full(store: Store) -> None:
    store.ask("ZADD", store.keys.retry, time.time() + 100, payload(error_class="E[red]", error_message="a\nb\x1b"))
    shown = run("job " + "1" * 24, store)
    assert shown.exit_code == 0
    assert "E[red]: a\\nb\\x1b" in shown.stdout
    assert 'arguments  42, "de"' in shown.stdout
    facts = json.loads(run("job --json " + "1" * 24, store).stdout)
    assert (facts["state"], facts["error_class"], facts["args"]) == ("retrying", "E[red]", [42, "de"])


@pytest.mark.parametrize("command", [*LISTS, "job abc", "enqueue x", "cancel abc", "queues pause x", "retries clear"])
def test_no_server_at_all(project: Path, command: str) -> None:
    shown = run(command)
    assert shown.exit_code == 3
    assert "no server is configured" in shown.output
    assert "henchman server start" in shown.output
    assert [one.name for one in project.iterdir()] == ["pyproject.toml"], "a command that reads starts nothing"


@pytest.mark.parametrize("command", LISTS)
def test_a_server_that_is_away(command: str) -> None:
    shown = run(f"{command} --redis redis://me:secret@127.0.0.1:1/0")
    assert shown.exit_code == 1
    assert "redis://me:***@127.0.0.1:1/0 cannot be reached" in shown.output
    assert "secret" not in shown.output
    assert "Traceback" not in shown.output


def test_errors_are_one_line(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.ask("SET", store.keys.retry, "no set")
    for command in ("retries", "status", "retries retry x"):
        shown = run(command, store)
        assert (shown.exit_code, shown.stdout) == (1, "")
        assert re.fullmatch(r"Error: .*WRONGTYPE[^\n]*\n", shown.stderr)
    monkeypatch.setenv("HENCHMAN_DEBUG", "1")
    assert "WRONGTYPE" in str(run("retries", store).exception)
    assert "Error:" not in run("retries", store).stderr


def test_wrong_usage() -> None:
    assert [run(one).exit_code for one in ("frob", "retries retry", "retries retry x --all", "dead kill x")] == [2] * 4
    assert [run(one).exit_code for one in ("enqueue x {}", "enqueue x [", "status --every x")] == [2] * 3


def test_an_app_that_cannot_be_loaded(store: Store, project: Path) -> None:
    (project / "broken_app_1.py").write_text("raise ValueError('two\\nlines')")
    (project / "broken_app_2.py").write_text("import sys; sys.exit('SHOP_KEY is not set')")
    (project / "no_app_1.py").write_text("app = 5")
    for target, text in (
        ("broken_app_1", "broken_app_1 cannot be imported: ValueError: two\\nlines"),
        ("broken_app_2", "broken_app_2 cannot be imported: SystemExit: SHOP_KEY is not set"),
        ("no_app_1", "not an App"),
        ("nothing.here", "there is no module"),
        ("no_app_1.py", "did you mean no_app_1:app?"),
        ("./no_app_1.py:app", "did you mean no_app_1:app?"),
        ("no_app_1.app", "did you mean no_app_1:app?"),
    ):
        for command in ("enqueue x", "cron run x"):
            shown = run(f"-A {target} {command}", store)
            assert (shown.exit_code, shown.stdout) == (1, ""), "what the job is to be is not known"
            assert shown.stderr.startswith("Error: ")
            assert text in shown.stderr
            assert shown.stderr.count("\n") == 1
    assert store.all_keys() == set()


SHOWS = ["status", "dead", "dead list --json", "retries list", "scheduled", "queues", "processes", "ordered", "batches"]
SHOWS += ["job abc", "job abc --json", "cron", "metrics", "doctor", "doctor --json", "cancel abc", "dead retry abc"]


@pytest.mark.parametrize("command", SHOWS)
def test_an_app_that_cannot_be_loaded_stops_no_command_that_looks(store: Store, project: Path, command: str) -> None:
    (project / "henchman.toml").write_text('app = "broken_app_3:app"')
    (project / "pyproject.toml").unlink()
    (project / "broken_app_3.py").write_text("import sys; sys.exit(1)")
    for jid, name in (("abc", "shop.pay"), ("other", ["no", "name"])):  # a class that no mask knows
        stored = payload(jid, **{"class": name}, args=[5, "4111-1111"], kwargs={"card": "4111-1111"})
        store.ask("ZADD", store.keys.dead, 9e9, stored)
    shown = run(command, store)
    assert shown.exit_code in {0, int(command.startswith("doctor")), 3 * int(command == "status")}, shown.output
    why = "Warning: broken_app_3:app cannot be imported: SystemExit: 1; every argument is hidden"
    assert shown.stderr.startswith(why)
    assert shown.stderr.count("\n") == 1
    assert "4111-1111" not in shown.output
    if command in ("dead", "dead list --json", "job abc"):
        assert "***" in shown.stdout
    if command.startswith("doctor"):
        assert "workers cannot start like this" in shown.stdout


def test_help_and_version() -> None:
    shown = run("--help")
    assert shown.exit_code == 0
    for name in ("work", "demo", "status", "queues", "processes", "retries", "job", "doctor", "server"):
        assert f"  {name} " in shown.stdout
    assert run("--version").stdout.startswith("henchman, version ")
    assert run("retries kill --help").exit_code == 0


@pytest.mark.parametrize(
    ("command", "meant"),
    [
        ("doctr", "doctor"),
        ("server strat", "start"),
        ("cron puase", "pause"),
        ("dead retyr", "retry"),
        ("db upgarde", "upgrade"),
    ],
)
def test_a_command_that_is_written_wrong_names_the_near_one(command: str, meant: str) -> None:
    done = run(command)
    assert done.exit_code == 2
    assert f"No such command {command.split()[-1]!r}; did you mean {meant!r}?" in done.output
