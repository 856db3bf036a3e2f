"""``henchman replay``: a job runs here and now, and its record stays as it is."""

from __future__ import annotations

import importlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from click.testing import CliRunner, Result
from cryptography.fernet import Fernet

from henchman import App
from henchman.cli.main import henchman
from support.garbage import payload
from support.store import Store
from support.worker import until, working

JID = "1" * 24
JOBS = """
    from typing import Any

    from henchman import App, Failure, current_job

    app = App(%s)
    said = []

    @app.server_middleware.add
    def around(run, call):
        said.append(f"before {run.name}")
        return call()

    @app.on("startup")
    def start():
        said.append("startup")

    @app.on("shutdown")
    def shut():
        said.append("shutdown")

    app.error_handlers.append(lambda error, facts: said.append("error handler"))

    @app.job(name="mail.send", key="user", unique="running", secret=("lang",))
    def send(user: int, lang: str = "en") -> str:
        job = current_job()
        job.log(f"attempt {job.attempt} of {job.jid}")
        job.progress(1, 2)
        job.checkpoint({"at": 1})
        said.append((user, lang, job.batch))
        if user < 0:
            raise ValueError(f"nobody speaks {lang}")
        if user == 0:
            raise Failure("not eligible")
        return f"sent to {user}"

    @app.job(name="noted", track=True)
    def noted(user: int) -> None:
        said.append(user)

    @app.job(name="asynchronous")
    async def asynchronous(user: int) -> None:
        said.append(await app.queues["default"].asize())

    @app.ordered(queue="products", name="sync")
    def sync(claim: dict[str, list[Any]]) -> None: ...

    def rows(path: str, *, cursor):
        return iter(())

    @app.iterable(over=rows, name="rows")
    def row(one: Any, path: str) -> None: ...

    @app.job(name="pay", track=True, secret=("card",))
    def pay(order: int, card: str) -> None:
        said.append((order, card))
"""
SEALED = """
    @app.job(name="sealed", encrypt=("card",))
    def sealed(card: str) -> None:
        said.append(card)
"""


class Scene:
    """A module with jobs, and a server."""

    def __init__(self, store: Store, module: Any) -> None:
        self.store = store
        self.module = module

    @property
    def said(self) -> list[Any]:
        """What the jobs and their surroundings have said since the last look."""
        found = list(self.module.said)
        self.module.said.clear()
        return found

    def dead(self, **fields: Any) -> None:
        self.store.ask("ZADD", self.store.keys.dead, time.time() - 60, payload(JID, **fields))

    def replay(self, *args: str, jid: str = JID) -> Result:
        """The command; what lies on the server is as before."""
        before = self._stored()
        command = ["replay", jid, "-A", f"{self.module.__name__}:app", "--redis", self.store.connections.url, *args]
        done = CliRunner().invoke(henchman, command)
        assert self._stored() == before
        return done

    def _stored(self) -> dict[str, Any]:
        return {name: self.store.ask("DUMP", name) for name in self.store.all_keys()}


Make = Callable[..., Scene]


@pytest.fixture
def make(store: Store, project: Path) -> Iterator[Make]:
    names: list[str] = []

    def one(settings: str = "", more: str = "") -> Scene:
        names.append(f"replayed_{len(names)}")
        (project / f"{names[-1]}.py").write_text(dedent(JOBS % settings + more))
        return Scene(store, importlib.import_module(names[-1]))

    yield one
    for name in names:
        sys.modules.pop(name).app.close()


def test_a_dead_job_runs_here_and_stays_dead(make: Make) -> None:
    scene = make()
    scene.dead(args=[42, "de"], retry_count=3, hm={"batch": "b" * 12, "timeout": 1})
    done = scene.replay()
    assert (done.exit_code, done.stderr) == (0, "")
    assert scene.said == ["startup", "before mail.send", (42, "de", None), "shutdown"]
    first, *lines, last = done.stdout.splitlines()
    assert first.startswith(f'{JID}: mail.send(42, "***"), dead since 20')
    assert lines == [
        f"[log] attempt 5 of {JID}",
        "[log] progress: 1 of 2",
        "[log] checkpoint (not kept): {'at': 1}",
    ]
    assert last.startswith("returned after 0.")
    assert last.endswith("on a worker: it ends well. Nothing of this run was recorded")


def test_an_error_shows_where_and_no_handler_is_called(make: Make) -> None:
    scene = make()
    scene.dead(args=[-1, "klingon"])
    done = scene.replay()
    assert done.exit_code == 1
    assert "in send" in done.stderr
    assert "ValueError: nobody speaks ***" in done.stderr
    assert "klingon" not in done.output
    assert "raised ValueError after 0." in done.stdout
    assert "on a worker: an error: it is retried, as its options say" in done.stdout
    assert scene.said[-1] == "shutdown"
    assert "error handler" not in scene.said
    scene.store.ask("DEL", scene.store.keys.dead)
    scene.dead(args=[0])
    failed = scene.replay()
    assert (failed.exit_code, "a business failure: it is not tried again" in failed.stdout) == (1, True)


def test_the_debugger_opens_where_it_raises(make: Make) -> None:
    scene = make()
    scene.dead(args=[-7])
    command = [sys.executable, "-m", "henchman", "replay", JID, "--pdb", "-A", f"{scene.module.__name__}:app"]
    command += ["--redis", scene.store.connections.url]
    done = subprocess.run(command, input="p user * 6\nq\n", capture_output=True, text=True, check=False)
    assert "(Pdb) -42" in done.stdout
    assert "raised ValueError" in done.stdout
    assert done.returncode == 1


def test_an_async_job_talks_to_the_server(make: Make) -> None:
    scene = make()
    scene.dead(**{"class": "asynchronous", "args": [1]})
    scene.store.push("default", payload("2" * 24))
    assert scene.replay().exit_code == 0
    assert scene.said == ["startup", "before asynchronous", 1, "shutdown"]


def test_a_job_that_history_knows(make: Make, project: Path, store: Store) -> None:
    scene = make(f"database_url='sqlite:///{project}/history.sqlite', redis_url='{store.connections.url}'")
    app: App = scene.module.app
    with working(app):
        first, second = scene.module.noted.enqueue(5), scene.module.pay.enqueue(17, "4111")
        until(lambda: app.job_status(first.jid).state == "finished", "history has it")
        until(lambda: app.job_status(second.jid).state == "finished", "and the other one")
    scene.said  # noqa: B018 - forget it
    done = scene.replay(jid=first.jid)
    assert done.exit_code == 0, done.output
    assert f"{first.jid}: noted(5), from history" in done.stdout
    assert scene.said == ["startup", "before noted", 5, "shutdown"]
    masked = scene.replay(jid=second.jid)
    assert (masked.exit_code, scene.said) == (1, [])
    assert "history has card of pay only masked, for it is secret" in masked.stderr


def test_what_cannot_be_replayed_says_why(make: Make) -> None:
    scene = make(more=SEALED)

    def refusal(**fields: Any) -> str:
        scene.store.ask("DEL", scene.store.keys.dead)
        scene.dead(**fields)
        done = scene.replay()
        assert (done.exit_code, scene.said) == (1, [])
        return done.stderr

    assert "no job is registered as 'mail.sent'; did you mean 'mail.send'?" in refusal(**{"class": "mail.sent"})
    assert "takes 1 to 2" in refusal(args=[1, "a", "b"])
    assert "sync has an ordered queue: what runs there is a claim" in refusal(**{"class": "sync", "args": [{}]})
    assert "rows is iterable" in refusal(**{"class": "rows", "args": ["x"]})
    keyed = App(redis_url="redis://localhost:1", encryption_keys={"old": Fernet.generate_key().decode()})

    @keyed.job(name="sealed", encrypt=("card",))
    def sealed(card: str) -> None: ...

    text, _ = sealed.signature.encode(("4111",), {})
    cipher = text.decode()[2:-2]
    assert "card is encrypted with the key 'old', which this process does not have" in refusal(
        **{"class": "sealed", "args": [cipher]}
    )
    nobody = scene.replay(jid="9" * 24)
    assert (nobody.exit_code, "no payload is kept on the server" in nobody.stderr) == (1, True)


def test_a_job_that_waits_is_replayed_on_demand_only(make: Make) -> None:
    scene = make()
    scene.store.push("mail", payload(JID, args=[1]))
    done = scene.replay()
    assert (done.exit_code, scene.said) == (1, [])
    assert f"{JID} is waiting in queue mail, number 1: beside a replay it may run twice (--anyway)" in done.stderr
    assert scene.replay("--anyway").exit_code == 0
