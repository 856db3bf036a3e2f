"""``henchman check``: old jobs, new code."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import sqlalchemy
from click.testing import CliRunner, Result
from cryptography.fernet import Fernet

from cli.conftest import INVISIBLE
from henchman import App
from henchman.cli.main import henchman
from henchman.deploy import check as deploy_check
from henchman.outbox import status
from henchman.store import leases
from support.garbage import GARBAGE, HOSTILE, fill, payload
from support.outbox import made_anew
from support.server import running_server
from support.store import Store

HEAD = "from henchman import App\napp = App()\n"
OLD = """
    @app.job(name="send", queue="mail")
    def send(user: int, text: str) -> None: ...
    @app.job(name="charge", key="order", once=True)
    def charge(order: str, card: str) -> None: ...
    @app.job(name="resize", queue="images")
    def resize(path: str, *, quality: int = 9) -> None: ...
    @app.job(name="report")
    def report(day: str) -> None: ...
    @app.job(name="fine")
    def fine(count: int = 0, names: list[str] | None = None) -> None: ...
"""
NEW = """
    @app.job(name="deliver", queue="mail")
    def deliver(user: int, text: str) -> None: ...
    @app.job(name="charge", key="order", once=True)
    def charge(order: str) -> None: ...
    @app.job(name="resize", queue="images")
    def resize(path: str, width: int, *, quality: int = 9) -> None: ...
    @app.job(name="report")
    def report(day: int) -> None: ...
    @app.job(name="fine")
    def fine(count: int = 0, names: list[str] | None = None, more: str = "") -> None: ...
"""
#: the command, then the most memory that it took, in KB
RUN = """
from henchman.cli.main import henchman
try:
    henchman(prog_name="henchman")
finally:
    print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""
Write = Callable[[str], str]


@pytest.fixture
def code(project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes a module with an app; its name, as commands take it."""
    names: list[str] = []

    def write(text: str, head: str = HEAD) -> str:
        names.append(f"deployed_{len(names)}")
        (project / f"{names[-1]}.py").write_text(head + dedent(text))
        return f"{names[-1]}:app"

    yield write
    for name in names:
        sys.modules.pop(name, None)


def _held(store: Store) -> str:
    (name,) = (one.decode() for one in store.ask("ZRANGE", store.keys.batches, 0, -1) if one != b"old")
    return name


def check(store: Store, *args: str) -> Result:
    return CliRunner().invoke(henchman, ["check", "--redis", store.connections.url, *args])


def told(store: Store, *args: str) -> dict[str, Any]:
    answer = check(store, "--json", *args)
    assert answer.stdout, answer.output
    found: dict[str, Any] = json.loads(answer.stdout)
    assert answer.exit_code == (0 if found["clean"] else 1)
    return found


def _wait_everywhere(store: Store, old: str) -> None:
    """A job of each class in each place where jobs wait."""
    module = importlib.import_module(old.partition(":")[0])
    app: App = module.app
    app.configure(redis_url=store.connections.url)
    calls = {"send": (1, "hi"), "charge": ("17", "4111"), "resize": ("a.png",), "report": ("2026-11-25",)}
    batch = app.batch("not released", atomic=True).open()
    for name, args in calls.items():
        job = getattr(module, name)
        batch.add(job, [args])
        stored = payload(name, **{"class": name, "args": list(args), "queue": job.options.queue})
        store.push(job.options.queue, stored)
        store.ask("ZADD", store.keys.schedule, time.time() + 60, stored)
        store.ask("ZADD", store.keys.retry, time.time() + 60, stored)
        store.ask("ZADD", store.keys.dead, time.time() - 60, stored)
        store.ask("ZADD", store.keys.batch("old") + ":dead", time.time() - 60, stored)
    store.ask("ZADD", store.keys.batches, time.time() - 60, "old")
    app.crons.add("nightly", module.report, every=3600, args=("2026-11-25",))
    first = module.charge.using(delay=600).enqueue("18", "4111")
    module.resize.using(after=first).enqueue("b.png")
    module.fine.enqueue(3, ["x"])
    app.close()


def _stored(store: Store) -> dict[str, Any]:
    return {name: store.ask("DUMP", name) for name in store.all_keys()}


def test_four_changes_of_the_code_are_four_findings_and_the_old_code_is_clean(store: Store, code: Write) -> None:
    old, new = code(OLD), code(NEW)
    _wait_everywhere(store, old)
    before = _stored(store)
    clean = told(store, old)
    assert (clean["clean"], clean["findings"], clean["looked"]) == (True, [], 4 * 6 + 4)
    found = {one["class"]: one for one in told(store, new)["findings"]}
    assert _stored(store) == before, "who checks changes nothing"
    texts = {name: (one["fault"], one["text"], one["count"]) for name, one in found.items()}
    assert texts == {
        "send": ("class", "no job of this code has the name", 6),
        "charge": ("arguments", "2 arguments given, takes 1", 7),
        "resize": ("arguments", "missing argument 'width'", 7),
        "report": ("type", "day is a str where int is due", 7),
    }
    assert found["report"]["places"] == dict.fromkeys(
        ("queue default", "scheduled", "retries", "dead", "dead of batch old", "batch " + _held(store), "cron nightly"),
        1,
    )
    assert found["resize"]["places"]["blocked"] == 1
    assert found["send"]["example"]["call"] == 'send(1, "hi")'
    assert found["send"]["advice"].startswith('@app.job(aliases=["send"])')


def test_what_it_says(store: Store, code: Write) -> None:
    old, new = code(OLD), code(NEW)
    _wait_everywhere(store, old)
    shown = check(store, new)
    assert (shown.exit_code, shown.stderr) == (1, "")
    text = " ".join(shown.stdout.split())
    assert "28 jobs looked at in " in text
    assert "27 of them would not run as pushed" in text
    assert 'aliases=["send"]' in text
    clean = check(store, old)
    assert (clean.exit_code, clean.stderr) == (0, "")
    assert clean.stdout.strip().endswith("all fit this code")


def test_a_plain_value_of_another_type_is_passed_on_and_left_out_on_demand(store: Store, code: Write) -> None:
    new = code("@app.job(name='mail.send')\ndef send(user: str, lang: str = 'de') -> None: ...")
    store.push("default", payload(), payload("2" * 24, args=["42", "en"]))
    (one,) = told(store, new)["findings"]
    assert (one["fault"], one["text"], one["count"]) == ("type", "user is an int where str is due", 1)
    assert told(store, "--refused-only", new)["findings"] == []


def test_jobs_of_other_applications_are_named_apart(store: Store, code: Write) -> None:
    mine = code("@app.job(name='mine', queue='mail')\ndef mine() -> None: ...")
    process = "shop-1:7:abc"
    info = {"hostname": "shop-1", "pid": 7, "queues": ["orders"], "tag": "shop", "version": "henchman 1"}
    store.ask("SADD", store.keys.processes, process)
    store.ask("HSET", store.keys.process(process), "info", json.dumps(info), "beat", time.time(), "busy", 0)
    store.push("orders", payload(**{"class": "shop.order"}), payload(**{"class": "shop.pay"}))
    store.push("nobody", payload(**{"class": "Ruby::Job"}))
    store.ask("ZADD", store.keys.retry, time.time(), payload(**{"class": "shop.order", "queue": "orders"}))
    found = told(store, mine)
    assert found["clean"]
    assert found["elsewhere"] == [
        {"queue": "nobody", "count": 1, "classes": {"Ruby::Job": 1}, "served_by": []},
        {
            "queue": "orders",
            "count": 3,
            "classes": {"shop.order": 2, "shop.pay": 1},
            "served_by": ["shop-1:7:abc (tag shop)"],
        },
    ]
    text = check(store, mine).stdout
    assert "Not this app's, queue orders: 3 jobs (shop.order 2, shop.pay 1); served by shop-1:7:abc (tag shop)" in text
    assert "Not this app's, queue nobody: 1 job (Ruby::Job 1); no living worker serves it" in text
    served = told(store, mine, "-q", "mail", "-q", "nobody")
    assert [one["class"] for one in served["findings"]] == ["Ruby::Job"], "a queue that this code will serve"


def test_a_queue_that_this_deployment_serves_now_is_its_own(store: Store, code: Write, project: Path) -> None:
    """The last job of a queue was taken out of the code: the queue is not named any more, and old workers serve it."""
    new = code("@app.job(name='mine')\ndef mine() -> None: ...")
    info = {"hostname": "h", "pid": 7, "queues": ["default", "reports"], "tag": project.name, "version": "henchman 1"}
    store.ask("SADD", store.keys.processes, "h:7:abc")
    store.ask("HSET", store.keys.process("h:7:abc"), "info", json.dumps(info), "beat", time.time(), "busy", 0)
    store.push("reports", payload(**{"class": "report"}), payload(**{"class": "mine", "args": []}))
    found = told(store, new)
    assert [(one["class"], one["places"]) for one in found["findings"]] == [("report", {"queue reports": 1})]
    assert found["queues_not_named"] == {"reports": 1}


def test_encrypted_arguments(store: Store, code: Write) -> None:
    """Without a key it says so; a key that is no longer set is a finding; what can be read is judged."""
    jobs = "@app.job(name='pay', encrypt=('card',))\ndef pay(order: int, card: str) -> None: ..."
    keyed = "from henchman import App\napp = App(encryption_keys={'%s': '%s'})\n"
    secret = Fernet.generate_key().decode()
    old = code(jobs, keyed % ("old", secret))
    module = importlib.import_module(old.partition(":")[0])
    module.app.configure(redis_url=store.connections.url)
    module.pay.enqueue(1, "4111")
    module.app.close()
    assert told(store, old)["clean"]
    keyless = told(store, code(jobs))
    assert (keyless["clean"], keyless["encrypted_without_key"]) == (True, {"pay": 1})
    assert "encrypted arguments of 1 job of pay; no encryption_keys are set here" in check(store, code(jobs)).stdout
    (other,) = told(store, code(jobs, keyed % ("new", secret)))["findings"]
    assert (other["fault"], "encrypted with the key 'old'" in other["text"]) == ("encrypted", True)
    (number,) = told(store, code(jobs.replace("card: str", "card: int"), keyed % ("old", secret)))["findings"]
    assert number["text"] == "card is a str where int is due"
    assert "4111" not in json.dumps(number)
    (open_now,) = told(store, code(jobs.replace(", encrypt=('card',)", "")))["findings"]
    assert open_now["text"].startswith("card is encrypted, and the job does not say so any more")


def test_since_and_sample(store: Store, code: Write) -> None:
    new = code("@app.job(name='other')\ndef other() -> None: ...")
    now = time.time()
    many = [
        payload(f"{n:024}", **{"class": "gone", "created_at": now - n * 3600, "queue": "default"}) for n in range(2000)
    ]
    store.push("default", *many)
    store.ask("ZADD", store.keys.dead, *(part for at, one in enumerate(many) for part in (at, one)))
    assert told(store, new)["findings"][0]["places"] == {"queue default": 2000, "dead": 2000}
    young = told(store, new, "--since", "10h")
    assert (young["findings"][0]["count"], young["older"]) == (20, 3980)
    some = told(store, new, "--sample", "900")
    assert (some["looked"], some["total"]) == (1800, 4000)
    assert some["findings"][0]["places"] == {"queue default": 900, "dead": 900}
    assert "1,800 of 4,000 jobs looked at" in check(store, new, "--sample", "900").stdout
    wrong = check(store, new, "--since", "tomorrow")
    assert (wrong.exit_code, "give 90min, 12h or 7d" in wrong.output) == (2, True)


def test_an_alias_runs_them_and_is_said(store: Store, code: Write) -> None:
    new = code(
        "@app.job(name='deliver', queue='mail', aliases=['mail.send'])\ndef d(user: int, lang: str) -> None: ..."
    )
    store.push("mail", payload(), payload("2" * 24, args=[1]))
    found = told(store, new)
    assert found["by_alias"] == [{"name": "mail.send", "runs_as": "deliver", "count": 2}]
    assert [(one["class"], one["text"]) for one in found["findings"]] == [("deliver", "missing argument 'lang'")]
    assert "By an alias: 2 jobs of mail.send will run as deliver" in check(store, new).stdout
    doctor = ["doctor", "--json", "-A", new, "--redis", store.connections.url]

    def waiting(document: dict[str, Any]) -> tuple[str, str]:
        (one,) = (each for each in document["checks"] if each["name"] == "waiting jobs")
        return one["verdict"], one["text"]

    text = "1 job of 2 that were looked at would not run as pushed; deliver: missing argument 'lang'"
    assert waiting(json.loads(CliRunner().invoke(henchman, doctor).stdout)) == ("warn", text)
    doctor[3] = code("@app.job(name='deliver', queue='mail', aliases=['mail.send'])\ndef d(*args: int) -> None: ...")
    text = "2 jobs looked at, all fit this code; 2 bear an old name: mail.send runs as deliver"
    assert waiting(json.loads(CliRunner().invoke(henchman, doctor).stdout)) == ("ok", text)
    job = ["job", "1" * 24, "-A", new, "--redis", store.connections.url]
    assert "class      mail.send, runs as deliver\n" in CliRunner().invoke(henchman, job).stdout


def test_what_is_in_flight_is_read_in_pages(store: Store, code: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a process that lives and of one that is lost; held hashes of ordered queues are no jobs."""
    monkeypatch.setattr(deploy_check, "_PAGE", 3)
    monkeypatch.setattr(deploy_check, "_TOGETHER", 1)
    for identity in ("here:1:aaaaaaaaaaaa", "there:2:bbbbbbbbbbbb"):
        flight, held = store.keys.in_flight(identity, 1, "mail"), store.keys.held(identity, 1, "goods")
        store.run(leases.join(store.keys, identity, [flight, held], 60_000))
        store.ask("RPUSH", flight, *[payload(f"{number:024}") for number in range(7)])
        store.ask("HSET", held, "id", "1")
    before = _stored(store)
    found = told(store, code("@app.job(name='mail.send', queue='mail')\ndef d(user: int) -> None: ..."))
    assert [(one["class"], one["places"]) for one in found["findings"]] == [("mail.send", {"in flight": 14})]
    assert (found["looked"], _stored(store)) == (14, before)
    assert told(store, code("@app.job(name='mail.send')\ndef d(*args: object) -> None: ..."))["clean"]


def test_rows_of_the_outbox_are_read_in_pages_and_one_that_is_away_is_named(
    store: Store, code: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/shop.sqlite"
    made_anew(url)
    monkeypatch.setattr(status, "_PAGE", 3)
    app = App(redis_url=store.connections.url, outbox=url)
    send = app.job(name="send", queue="mail")(lambda user: None)
    engine = sqlalchemy.create_engine(url)
    with engine.begin() as connection:
        app.outbox.write_many(connection, send, [(number,) for number in range(7)])
    engine.dispose()
    app.close()
    monkeypatch.setenv("HENCHMAN_OUTBOX", url)
    new = code("@app.job(name='send', queue='mail')\ndef send(user: int, lang: str) -> None: ...")
    found = told(store, new)
    assert [(one["text"], one["places"]) for one in found["findings"]] == [("missing argument 'lang'", {"outbox": 7})]
    assert (found["looked"], found["outbox_unread"]) == (7, None)
    assert told(store, new, "--sample", "2")["looked"] == 2
    monkeypatch.setenv("HENCHMAN_OUTBOX", "postgresql://nobody@127.0.0.1:1/none")
    new = code("@app.job(name='send', queue='mail')\ndef send(user: int, lang: str) -> None: ...")
    away = told(store, new)
    assert (away["looked"], away["clean"]) == (0, True)
    assert "127.0.0.1:1" in away["outbox_unread"]
    assert "Not looked into: rows of the outbox: " in check(store, new).stdout


def test_garbage_is_counted_and_fails_nobody(store: Store, code: Write) -> None:
    fill(store, time.time())
    app = code("@app.job(name='mail.send')\ndef send(*args, **more) -> None: ...")
    shown = check(store, app)
    assert not INVISIBLE.search(shown.output)
    found = told(store, app)
    assert found["unreadable"] >= len(GARBAGE)
    assert HOSTILE in {one["class"] for one in found["findings"]}


def test_an_app_that_does_not_import_and_none_at_all(store: Store, code: Write) -> None:
    broken = check(store, code("import nothing_here"))
    assert (broken.exit_code, "nothing_here" in broken.stderr) == (1, True)
    none = check(store)
    assert (none.exit_code, "which app?" in none.stderr) == (1, True)


@pytest.mark.parametrize(
    "many",
    [20_000, pytest.param(1_000_000, marks=pytest.mark.scale("a million waiting jobs, within a minute and 100 MB"))],
)
def test_many_are_read_in_pages(code: Write, many: int) -> None:
    """Half of a million in a queue, half in the schedule; in a process of its own, whose memory is its own."""
    with running_server() as server:
        store = Store(server.url)
        app = code("@app.job(name='mail.send')\ndef send(user: int, lang: str, more: int) -> None: ...")
        for first in range(0, many // 2, 10_000):
            some = [payload(f"{number:024}") for number in range(first, first + min(10_000, many // 2))]
            store.push("mail", *some)
            store.ask("ZADD", store.keys.schedule, *(part for at, one in enumerate(some) for part in (9e9 + at, one)))
        command = [sys.executable, "-c", RUN, "check", app, "--redis", server.url, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        store.connections.close()
    *answer, memory = done.stdout.splitlines()
    found = json.loads("\n".join(answer))
    (one,) = found["findings"]
    print(f"{many:,} jobs: {found['seconds']} s, {int(memory) / 1024:.0f} MB")
    assert (done.returncode, one["count"], one["text"]) == (1, many, "missing argument 'more'")
    assert found["seconds"] < 60
    assert int(memory) < 100 * 1024
