"""``henchman bench``: on a server of its own, and on one that has the data of others."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from click.testing import CliRunner, Result

from henchman.bench.server import server
from henchman.cli.main import henchman

FEW = ("--runs", "1", "--scale", "0.01")


def bench(*words: str, **env: str) -> Result:
    return CliRunner().invoke(henchman, ["bench", *words], env={"HENCHMAN_REDIS_URL": "", "REDIS_URL": ""} | env)


def document(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_it_measures_on_a_server_of_its_own() -> None:
    found = document(bench("--own", "--json", *FEW))
    assert "a server of its own" in found["machine"]["server"]
    assert {"drain_ratio", "drain_rows_ratio", "push_ratio", "bulk", "idle_p50", "due_p50"} <= found["figures"].keys()
    assert {"import", "command_ready", "memory"} <= found["figures"].keys()
    assert {"drain_roomy_ratio", "drain_tight_ratio"} <= found["figures"].keys()
    assert found["figures"]["due_first"]["median"] >= 0, "nothing starts before it is due"


def test_the_page_says_machine_server_and_spread() -> None:
    result = bench("--own", "--only", "push", "--runs", "2", "--scale", "0.01")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("# Henchman on this machine\n")
    assert "| enqueue, one by one | " in result.stdout
    assert " to " in result.stdout.split("| enqueue_many |")[1]
    assert "run 2 of 2: Pushing" in result.stderr


def test_a_configured_server_keeps_what_others_have_there() -> None:
    with server() as made:
        raw = made.connect()
        raw.ask("LPUSH", "queue:bench_load", "somebody else's")
        raw.ask("SADD", "queues", "bench_load")
        found = document(bench("--redis", made.url, "--yes", "--only", "drain", "--only", "limited", "--json", *FEW))
        assert {"drain", "drain_tight"} <= found["figures"].keys()
        assert not {"drain_server", "drain_tight_server"} & found["figures"].keys(), "others use that server, too"
        assert sorted(raw.ask("KEYS", "*")) == [b"queue:bench_load", b"queues"]
        assert raw.ask("LRANGE", "queue:bench_load", 0, -1) == [b"somebody else's"]


def test_a_configured_server_is_loaded_only_after_a_yes() -> None:
    result = bench("--redis", "redis://localhost:1/0", *FEW)
    assert result.exit_code == 2
    assert "redis://localhost:1/0, and loads it. Go on? There is nobody to ask here: say --yes." in result.output


def test_a_server_that_is_not_there_is_one_line() -> None:
    result = bench("--redis", "redis://:secret-word@localhost:1/0", "--yes", *FEW)
    assert result.exit_code == 1
    assert "localhost:1" in result.output
    assert "secret-word" not in result.output
    assert not {"HENCHMAN_NAMESPACE", "BENCH_STAMPS"} & os.environ.keys()


def test_the_environment_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HENCHMAN_CONCURRENCY", "3")
    before = {name: value for name, value in os.environ.items() if name.startswith(("HENCHMAN_", "BENCH_"))}
    with server():
        assert "HENCHMAN_CONCURRENCY" not in os.environ, "a worker that is measured has no settings of this folder"
    assert {name: value for name, value in os.environ.items() if name.startswith(("HENCHMAN_", "BENCH_"))} == before
