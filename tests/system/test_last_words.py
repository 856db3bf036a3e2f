"""``app.on("last_words")``: a worker process that ends of an error which is no job's says so to the app first."""

from __future__ import annotations

from pathlib import Path

from support.processes import Work
from support.worker import until

APP = """
import os
from pathlib import Path
from henchman import App

app = App()

@app.job(name="nothing")
def nothing() -> None: ...

@app.on("last_words")
def broken(error):
    raise RuntimeError("the handler itself")

@app.on("last_words")
def told(error):
    with Path("told").open("a") as out:
        out.write(f"{type(error).__name__}: {error}\\n")

def defect(*_, **__):
    raise IndexError("a defect")

if os.environ.get("DEFECT"):
    app.companions = defect
"""


def told(folder: Path) -> str:
    file = folder / "told"
    return file.read_text() if file.exists() else ""


def test_it_is_told_why_the_process_ends(redis_url: str, tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "spoken.py").write_text(APP)
    env = {"PYTHONPATH": f"{tmp_path / 'w'}", "HENCHMAN_CONNECT_TIMEOUT": "0.5"}
    nobody = "redis://127.0.0.1:1/0"
    with Work(tmp_path / "w", nobody, target="spoken:app", **env):
        until(lambda: "ServerAway: " in told(tmp_path / "w"), "the server cannot be reached")
    (tmp_path / "w" / "told").unlink()
    with Work(tmp_path / "w", redis_url, target="spoken:app", DEFECT="1", **env) as work:
        until(lambda: "IndexError: " in told(tmp_path / "w"), "a defect, which is no error of Henchman's own")
        until(lambda: "the handler itself" in work.log, "who raises there stops nobody")


def test_an_end_that_was_asked_for_has_no_last_words(redis_url: str, tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "spoken.py").write_text(APP)
    with Work(tmp_path / "w", redis_url, target="spoken:app", PYTHONPATH=str(tmp_path / "w")) as work:
        until(lambda: "the worker process is ready" in work.log, "it works")
        assert work.stop() == 0
    assert told(tmp_path / "w") == ""


def test_a_startup_hook_that_raises_ends_the_worker_with_its_reason(redis_url: str, tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    lines = ("@app.on('startup')", "async def models():", "    raise OSError('no model')")
    (tmp_path / "w" / "refusing.py").write_text("\n".join((APP, *lines)))
    with Work(tmp_path / "w", redis_url, target="refusing:app", PYTHONPATH=str(tmp_path / "w")) as work:
        assert work.wait() == 1
        assert "the startup hook refusing.models raised OSError: no model" in work.log
    assert told(tmp_path / "w").startswith("ConfigError: ")
