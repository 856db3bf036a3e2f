"""``henchman server``: what it prints, and its exit statuses."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from henchman.cli.main import henchman
from henchman.embedded import process as embedded_process
from henchman.embedded.server import EmbeddedServer
from support.embedded_user import UserProcess
from support.server import server_binary


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(embedded_process, "find_binaries", lambda: [server_binary()])
    base = Path(tempfile.mkdtemp(prefix="hm-", dir="/tmp"))
    (base / "pyproject.toml").touch()
    monkeypatch.chdir(base)
    yield base / ".henchman"
    EmbeddedServer(base / ".henchman").stop(force=True)
    monkeypatch.undo()
    shutil.rmtree(base)


def run(*words: str) -> Result:
    return CliRunner().invoke(henchman, ["server", *words])


def test_start_url_status_stop(folder: Path) -> None:
    started = run("start")
    assert (started.exit_code, started.output) == (0, f"running at unix://{folder}/sock?db=0\n")
    assert run("url").output == f"unix://{folder}/sock?db=0\n"
    status = run("status")
    assert status.exit_code == 0
    assert "running (stays up without users)" in status.output
    facts = json.loads(run("status", "--json").output)
    assert facts["running"]
    assert facts["kept"]
    assert facts["users"] in {0, None}
    assert facts["pid"] > 0
    stopped = run("stop")
    assert (stopped.exit_code, stopped.output) == (0, "stopped; its data stay\n")
    assert run("stop").output == "it was not running\n"


def test_reading_never_starts_one(folder: Path) -> None:
    assert run("status").exit_code == 3
    status = run("status", "--json")
    assert (status.exit_code, json.loads(status.output)["state"]) == (3, "stopped")
    url = run("url")
    assert (url.exit_code, url.stdout) == (3, "")
    assert "henchman server start" in url.stderr
    assert run("stop").exit_code == 0
    assert not folder.exists()


def test_stop_is_refused_while_it_is_used(folder: Path) -> None:
    user = UserProcess(folder)
    try:
        user.do("acquire")
        refused = run("stop")
        assert refused.exit_code == 1
        assert "in use by 1 process" in refused.output
        assert "--force" in refused.output
        assert run("stop", "--force").output == "stopped; its data stay\n"
    finally:
        user.kill()


def test_another_folder(folder: Path) -> None:
    elsewhere = folder.parent / "elsewhere"
    assert run("--folder", str(elsewhere), "start").exit_code == 0
    assert run("status").exit_code == 3
    assert run("--folder", str(elsewhere), "stop").exit_code == 0


def test_a_server_that_cannot_start_is_an_error_with_its_reason(folder: Path) -> None:
    folder.touch()
    failed = run("start")
    assert failed.exit_code == 1
    assert "it is a file, not a folder" in failed.stderr
    folder.unlink()


def test_the_folder_that_is_configured(folder: Path) -> None:
    (folder.parent / "pyproject.toml").write_text('[tool.henchman]\nfolder = "elsewhere"')
    assert run("start").output == f"running at unix://{folder.parent}/elsewhere/sock?db=0\n"
    assert run("stop").exit_code == 0


def test_one_rule_for_the_folder_whoever_says_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def where(*words: str) -> str:
        return str(json.loads(CliRunner().invoke(henchman, [*words, "--json"]).stdout)["folder"])

    base = folder.parent
    (base / "server_cli_app.py").write_text("from henchman import App\napp = App(folder='of-app')\n")
    monkeypatch.syspath_prepend(str(base))
    assert where("server", "status") == str(folder)
    assert where("-A", "server_cli_app:app", "server", "status") == f"{base}/of-app"
    monkeypatch.setenv("HENCHMAN_FOLDER", "of-env")
    assert where("server", "status") == f"{base}/of-env"
    for words in (("--folder", "x", "server", "status"), ("server", "--folder", "x", "status")):
        assert where(*words) == f"{base}/x"
    assert where("server", "status", "--folder", "x", "-A", "server_cli_app:app") == f"{base}/x"


def test_a_folder_that_is_not_to_be_trusted(folder: Path) -> None:
    folder.symlink_to(folder.parent)
    for verb in ("start", "stop", "status", "url"):
        refused = run(verb)
        assert refused.exit_code == 1
        assert "is a symbolic link" in refused.stderr
    folder.unlink()
