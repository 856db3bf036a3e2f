"""The shape of every JSON document that programs read, from the command line and from the web API; exit statuses."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
import pytest
from click.testing import CliRunner

from frozen.conftest import Frozen
from frozen.scene import Scene, filled
from henchman.cli.main import henchman
from henchman.web.api import api
from support.asgi import ask
from support.server import running_server

#: what is asked of the scene; BATCH and the names of its jobs stand for ids
ASKED: Final = (
    *("status", "queues", "processes", "retries", "retries list", "scheduled", "scheduled list", "dead", "dead list"),
    *("job FLAKY", "job BROKEN", "job WAITING", "job SCHEDULED", "job WORKING", "job 123"),
    *("batches --all", "batch show BATCH", "batch events BATCH", "cron", "cron list", "cron run nightly"),
    *("enqueue HardJob [1] -q ruby", "history find class:shop.create", "history status --rows", "history prune"),
    "history day 2020-01-01",
    *("db current", "doctor", "metrics", "metrics shop.create", "metrics mark v2", "errors", "server status"),
    *("ordered show", "ordered show products", "ordered show products --failed", "ordered show strict --dead"),
    *("ordered show products bad", "ordered show strict dead", "ordered show --lowkiq-stats"),
)
PAGES: Final = (
    *(
        "/batches/BATCH",
        "/batches/BATCH?since=0",
        "/batches/BATCH/events",
        "/jobs/RECORDED",
        "/jobs/unknown",
        "/nowhere",
    ),
)
NOT_HERE: Final = {
    "check": "tests/cli/test_deploy.py reads it",
    "demo": "tests/system/test_demo.py reads it",
    "find": "tests/console/test_search.py reads it",
    "bench": "tests/bench/test_command.py reads it",
    **dict.fromkeys(("keys", "unlock"), "tests/store/test_inspector_keys.py reads it"),
    **dict.fromkeys(("limits", "limits show"), "tests/store/test_inspector_limits.py reads it"),
    "pauses": "tests/console/test_pauses.py reads it",
    **dict.fromkeys(("blocked", "why"), "tests/store/test_inspector_blocked.py reads it"),
    **dict.fromkeys(
        [f"operations{one}" for one in ("", " show", " abort", " undo", " continue")],
        "tests/cli/test_operations.py reads it",
    ),
    "queues tenants": "tests/cli/test_fair.py reads it",
    "outbox": "tests/outbox/test_outbox_in_a_worker.py reads it",
}


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with running_server() as server, filled(server.url, tmp_path_factory.mktemp("scene")) as made:
        yield made


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "henchman.toml").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REDIS_URL", raising=False)


def test_command_line(scene: Scene, frozen: Frozen) -> None:
    config = scene.app.config
    env = {"HENCHMAN_REDIS_URL": config.redis_url, "HENCHMAN_DATABASE_URL": config.database_url}
    ids = {"BATCH": scene.batch, **{name.upper(): jid for name, jid in scene.jids.items()}}
    lines = []
    for asked in ASKED:
        words = [ids.get(word, word) for word in shlex.split(asked)]
        told = CliRunner().invoke(henchman, [*words, "--json"], env=env)
        assert told.stdout, f"{asked}: {told.output}"
        status = "" if asked == "doctor" else f" → {told.exit_code}"  # that depends on the server
        lines += [f"== henchman {asked} --json{status}", *shape(json.loads(told.stdout))]
    frozen("json of the command line", lines)


def test_every_command_that_has_json_is_asked() -> None:
    have = {" ".join(path) for path, one in leaves((), henchman) if any("--json" in each.opts for each in one.params)}
    asked = {name for name in have for one in ASKED if one == name or one.startswith(f"{name} ")}
    assert have - asked == set(NOT_HERE)


def test_web(scene: Scene, frozen: Frozen) -> None:
    made = api(scene.app)
    lines = []
    try:
        events = ask(made, f"/batches/{scene.batch}/events", token="t" * 20).json["events"]
        ids = {"BATCH": scene.batch, "RECORDED": events[1]["jid"]}
        for page in PAGES:
            path = page
            for name, id in ids.items():
                path = path.replace(name, id)
            told = ask(made, path, token="t" * 20)
            kind = told.headers["content-type"]
            lines += [f"== GET {page} → {told.status} {kind} ({names(told.headers)})", *shape(told.json)]
        sheet = ask(made, f"/batches/{scene.batch}/failures.csv", token="t" * 20)
        lines += [f"== GET /batches/BATCH/failures.csv → {sheet.status} {sheet.headers['content-type']}"]
        lines += [sheet.body.decode("utf-8-sig").splitlines()[0]]
        none = ask(made, f"/batches/{scene.batch}/results.csv", token="t" * 20)
        lines += [f"== GET /batches/BATCH/results.csv → {none.status}", *shape(none.json)]
        refused = ask(made, f"/batches/{scene.batch}", token=None)
        lines += [f"== without a token → {refused.status} ({names(refused.headers)})", *shape(refused.json)]
    finally:
        made.close()
    frozen("json of the web api", lines)


def names(headers: dict[str, str]) -> str:
    return ", ".join(sorted(headers.keys() - {"content-length", "content-type"}))


def shape(document: Any) -> list[str]:
    """``path type``, one line a field; the items of a list as one, with every type that was met."""
    found: dict[str, set[str]] = {}

    def walk(path: str, value: Any) -> None:
        match value:
            case dict():
                found.setdefault(path or "(all)", set()).add("object")
                for name, one in value.items():
                    named = "NAME" if path.endswith((".hosts", ".versions")) else name  # those of this machine
                    walk(f"{path}.{named}".removeprefix("."), one)
            case list():
                found.setdefault(path, set()).add("list")
                for one in value:
                    walk(f"{path}[]", one)
            case _:
                found.setdefault(path, set()).add(KINDS[type(value)])

    walk("", document)
    return [f"    {path} {'|'.join(sorted(kinds))}" for path, kinds in sorted(found.items())]


KINDS: Final[dict[type, str]] = {str: "text", bool: "true/false", int: "number", float: "number", type(None): "null"}


def leaves(path: tuple[str, ...], one: click.Command) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command, groups that do something by themselves too."""
    if not isinstance(one, click.Group) or (path and one.invoke_without_command):
        yield path, one
    if isinstance(one, click.Group):
        for name in one.list_commands(click.Context(one)):
            found = one.get_command(click.Context(one), name)
            assert found is not None
            yield from leaves((*path, name), found)


STARTS_SOMETHING: Final = {("init",), ("work",), ("demo",), ("bench",), ("web",), ("server", "start")}
SAMPLES: Final = {"id": "0" * 32, "jid": "1" * 24, "most": "1", "shell": "bash"}


def test_exit_statuses(redis_url: str, tmp_path: Path, frozen: Frozen) -> None:
    """Of every command: without any server, with one that cannot be reached, with an empty one, and wrongly used."""
    situations = {
        "no server": {"HENCHMAN_FOLDER": str(tmp_path / "none")},
        "away": {"HENCHMAN_REDIS_URL": f"unix://{tmp_path}/nobody"},
        "empty": {"HENCHMAN_REDIS_URL": redis_url},
    }
    lines = []
    for path, one in leaves((), henchman):
        if path in STARTS_SOMETHING:
            continue
        words = [*path, *(SAMPLES.get(str(each.name), "x") for each in one.params if needed(each))]
        words += ["--yes"] if any("--yes" in each.opts for each in one.params) else []
        told = [
            f"{name} {CliRunner().invoke(henchman, words, env=env).exit_code}"
            for name, env in situations.items()
            if (path, name) != (("doctor",), "empty")  # that depends on the server
        ]
        wrong = CliRunner().invoke(henchman, [*path, "--no-such-option"]).exit_code
        lines.append(f"henchman {' '.join(words)}: {', '.join(told)}, wrong option {wrong}")
    frozen("exit statuses", lines)


def needed(each: click.Parameter) -> bool:
    return isinstance(each, click.Argument) and (each.required or each.name in ("jid", "id", "identity"))
