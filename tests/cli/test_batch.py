"""``henchman batch`` and ``batches``: what they show, what they do, how they end, what is in the server afterwards."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cli.conftest import INVISIBLE
from henchman import App, Failure, ServerAway, UnknownBatch, current_job
from henchman.batch.listing import workflow_steps
from henchman.cli.main import henchman
from henchman.store.batches import make
from henchman.store.call import command, run
from support.web import HOSTILE
from support.worker import until, working


class Shop:
    """An app with one job whose arguments say how it ends, and the command line on the same server."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.database = url, f"sqlite:///{folder}/history.sqlite"
        self.app = App(redis_url=url, database_url=self.database)
        self.gate = threading.Event()
        self.gate.set()

        @self.app.job(name="shop.create", retry=0)
        def create(row: int, ending: str = "done") -> Any:
            assert self.gate.wait(200)
            current_job().log(f"row {row}: {ending}")
            if ending == "refuse":
                raise Failure(HOSTILE)
            if ending == "break":
                raise ValueError("price is missing")
            if ending == "object":
                return {"sku": f"=sku-{row}", "price": -1.5, "sizes": [1, 2], "in stock": True, "status": None}
            return row

        self.create = create
        with working(self.app):  # the first worker turns history on
            until(lambda: self.app.connections.run(command("EXISTS", self.app.keys.history_on)), "history is on")

    def batch(self, *endings: str, description: str = "Import", results: bool = False) -> str:
        with self.app.batch(description, tags=["shop"], results=results) as made:
            self.create.enqueue_many([(row, one) for row, one in enumerate(endings)])
        return made.id

    def settled(self, batch: str) -> None:
        """Run what waits until the batch is complete, in the server and in SQL."""
        with working(self.app):
            until(lambda: self.app.batch_status(batch).state == "complete", "the batch is complete")
            until(lambda: self.recorded(batch), "its end is recorded")

    def recorded(self, batch: str) -> bool:
        page = self.run("batch", "events", batch, "--json")
        if page.exit_code:
            return False
        events = json.loads(page.stdout)["events"]
        total = self.app.batch_status(batch).total
        return len(events) == total and all(one["ended_at"] for one in events)

    def run(self, *words: str, answer: str | None = None) -> Result:
        env = {"HENCHMAN_REDIS_URL": self.url, "HENCHMAN_DATABASE_URL": self.database}
        return CliRunner().invoke(henchman, words, input=answer, env=env)

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json").stdout)


@pytest.fixture
def shop(redis_url: str, project: Path) -> Iterator[Shop]:
    made = Shop(redis_url, project)
    yield made
    made.gate.set()
    made.app.close()


def test_the_exit_status_tells_how_it_stands(shop: Shop) -> None:
    unknown = shop.run("batch", "f" * 32)
    assert (unknown.exit_code, unknown.stdout) == (1, "")
    assert unknown.stderr.startswith("Error: there is no batch ")
    good, bad = shop.batch("done", "done"), shop.batch("done", "refuse", "break")
    waiting = shop.run("batch", good)
    assert waiting.exit_code == 5
    assert "─" * 80 in waiting.stdout.splitlines()
    assert "0 % · 0 of 2" in waiting.stdout.splitlines()
    shop.settled(good)
    shop.settled(bad)
    assert shop.run("batch", good).exit_code == 0
    shown = shop.run("batch", bad)
    assert shown.exit_code == 4
    assert "━" * 80 in shown.stdout.splitlines()
    for text in ("Import", bad, "complete", "100 % · 3 of 3", "1 finished · 1 failed · 1 error", "price is missing"):
        assert text in shown.stdout
    assert not INVISIBLE.search(shown.stdout)
    with shop.app.batch("parent") as parent:
        shop.batch("refuse")
    shop.settled(parent.id)
    spoilt = shop.run("batch", parent.id)
    assert spoilt.exit_code == 4, "what is part of it did not end well"
    assert "1, 1 of them did not end well" in spoilt.stdout
    told = shop.json("batch", bad)
    assert (told["state"], told["total"], told["done"], len(told["reasons"])) == ("complete", 3, 3, 2)
    away = CliRunner().invoke(henchman, ["batch", bad, "--redis", "redis://127.0.0.1:1"])
    assert away.exit_code == 1
    assert shop.run("batch").exit_code == shop.run("batch", "show").exit_code == 2
    assert shop.run("batch", "é").exit_code == 2


def test_watching_ends_when_the_batch_does(shop: Shop) -> None:
    batch = shop.batch(*["done"] * 5, "refuse")
    shop.gate.clear()
    seen: list[Result] = []
    watcher = threading.Thread(target=lambda: seen.append(shop.run("batch", batch, "--watch", "--every", "0.2")))
    with working(shop.app):
        watcher.start()
        until(lambda: shop.app.batch_status(batch).counts["working"] > 0, "jobs run")
        shop.gate.set()
        watcher.join(90)
    assert not watcher.is_alive()
    lines = seen[0].stdout.splitlines()
    assert seen[0].exit_code == 4
    assert all(line.startswith(batch) for line in lines)
    assert "complete: 100 % · 6 of 6" in lines[-1]
    assert "5 finished, 1 failed" in lines[-1]
    documents = [json.loads(line) for line in shop.run("batch", batch, "--watch", "--json").stdout.splitlines()]
    assert [one["state"] for one in documents] == ["complete"]


def test_events_and_failures_come_from_history(shop: Shop) -> None:
    batch = shop.batch("done", "refuse", "done", "break")
    shop.settled(batch)
    listed = shop.run("batch", "events", batch)
    assert listed.exit_code == 0
    assert listed.stdout.count("shop.create") == 4
    assert not INVISIBLE.search(listed.stdout)
    failed = shop.json("batch", "events", batch, "--status", "failed", "--status", "error")
    assert [one["args"] for one in failed["events"]] == [[1, "refuse"], [3, "break"]]
    some = shop.run("batch", "events", batch, "--limit", "1")
    after = re.search(r"--after (\d+)", some.stdout)
    assert after is not None
    rest = shop.json("batch", "events", batch, "--after", after[1])
    assert [one["args"][0] for one in rest["events"]] == [1, 2, 3]
    assert "Nothing that fits" in shop.run("batch", "events", batch, "--status", "expired").stdout
    assert shop.run("batch", "events", batch, "--status", "fialed").exit_code == 2

    rows = list(csv.DictReader(io.StringIO(shop.run("batch", "failures", batch).stdout_bytes.decode("utf-8-sig"))))
    assert [one["arguments"] for one in rows] == ['[1, "refuse"]', '[3, "break"]']
    assert rows[0]["message"].startswith("'=cmd")
    for what in ("failures", "events"):
        unknown = shop.run("batch", what, "f" * 32)
        assert (unknown.exit_code, unknown.stdout) == (1, "")


def test_onto_a_terminal_failures_are_harmless(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = shop.batch("refuse")
    shop.settled(batch)
    monkeypatch.setattr("henchman.cli.batch._at_terminal", lambda: True)
    shown = shop.run("batch", "failures", batch).stdout
    assert "=cmd" in shown
    assert not INVISIBLE.search(shown)


def test_results_as_a_file(shop: Shop, tmp_path: Path) -> None:
    batch = shop.batch("object", "refuse", "done", "break", "object", results=True)
    shop.settled(batch)
    sheet, lines = tmp_path / "results.csv", tmp_path / "results.jsonl"
    sheet.write_text("of before")
    sheet.chmod(0o640)
    written = shop.run("batch", "results", batch, "--csv", str(sheet))
    assert written.exit_code == 4, "not all finished"
    assert written.stdout.startswith(f"{sheet}: {batch} complete: 100 % · 5 of 5")
    assert sheet.stat().st_mode & 0o777 == 0o640
    assert shop.run("batch", "results", batch, "--jsonl", str(lines)).exit_code == 4
    assert sorted(one.name for one in tmp_path.iterdir() if one.name.startswith("results")) == [sheet.name, lines.name]

    assert sheet.read_bytes().startswith(b"\xef\xbb\xbfrow,job id,job,status,message,error class,sku,price,")
    rows = list(csv.DictReader(io.StringIO(sheet.read_bytes().decode("utf-8-sig"), newline="")))
    assert [one["row"] for one in rows] == ["0", "1", "2", "3", "4"]
    assert [one["status"] for one in rows] == ["finished", "failed", "finished", "error", "finished"]
    told = {name: rows[0][name] for name in ("sku", "price", "sizes", "in stock", "result status", "result")}
    assert told == {
        "sku": "'=sku-0",
        "price": "-1.5",
        "sizes": "[1,2]",
        "in stock": "true",
        "result status": "",
        "result": "",
    }
    assert (rows[2]["sku"], rows[2]["result"]) == ("", "2")
    assert rows[1]["message"].startswith("'=cmd")
    assert (rows[3]["message"], rows[3]["error class"]) == ("price is missing", "ValueError")

    documents = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [one["row"] for one in documents] == [0, 1, 2, 3, 4]
    assert documents[2] == {"row": 2, "jid": rows[2]["job id"], "job": "shop.create", "status": "finished", "result": 2}
    assert documents[3]["message"] == "price is missing"
    for form, file in (("--csv", sheet), ("--jsonl", lines)):
        onto = shop.run("batch", "results", batch, form, "-")
        assert (onto.exit_code, onto.stdout_bytes) == (4, file.read_bytes())


def test_results_say_how_they_ended(shop: Shop, tmp_path: Path) -> None:
    file = tmp_path / "r.csv"
    done, waiting, none = shop.batch("done", results=True), shop.batch("done", results=True), shop.batch("done")
    with working(shop.app):
        until(lambda: shop.app.batch_status(done).state == "complete", "it has run")
        until(lambda: shop.app.batch_status(none).state == "complete", "it has run")
        until(lambda: shop.app.batch_status(waiting).state == "complete", "it has run")
    late = shop.batch("done", results=True)
    assert shop.run("batch", "results", done, "--csv", str(file)).exit_code == 0
    assert file.read_text("utf-8-sig").splitlines()[0].endswith(",result")
    not_yet = shop.run("batch", "results", late, "--jsonl", "-")
    assert (not_yet.exit_code, json.loads(not_yet.stdout)["status"]) == (5, "enqueued")
    before = file.read_bytes()
    for id, words in ((none, "keeps no results"), ("f" * 32, "there is no batch")):
        refused = shop.run("batch", "results", id, "--csv", str(file))
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert words in refused.stderr
    assert file.read_bytes() == before, "a file that could not be written whole is the one of before"
    assert [one for one in tmp_path.iterdir() if one.name.endswith(".part")] == []
    nowhere = shop.run("batch", "results", done, "--csv", str(tmp_path / "no folder" / "r.csv"))
    assert nowhere.exit_code == 1
    assert "no folder" in nowhere.stderr
    for words in ((), ("--csv", "-", "--jsonl", "-")):
        assert shop.run("batch", "results", done, *words).exit_code == 2
    away = CliRunner().invoke(henchman, ["batch", "results", done, "--csv", "-", "--redis", "redis://127.0.0.1:1"])
    assert away.exit_code == 1


def test_no_file_is_left_when_the_server_goes_away(shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = shop.batch("done", "done", results=True)
    file = tmp_path / "r.jsonl"

    def away(*words: Any) -> Any:
        raise ServerAway("it is gone", executed=False)

    monkeypatch.setattr("henchman.cli.batch.iterate", away)
    broken = shop.run("batch", "results", batch, "--jsonl", str(file))
    assert broken.exit_code == 1
    assert "it is gone" in broken.stderr
    assert [one for one in tmp_path.iterdir() if one.name.startswith("r.")] == []


def test_onto_a_terminal_results_are_harmless(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = shop.batch("refuse", results=True)
    shop.settled(batch)
    monkeypatch.setattr("henchman.cli.batch._at_terminal", lambda: True)
    for form in ("--csv", "--jsonl"):
        shown = shop.run("batch", "results", batch, form, "-").stdout
        assert "=cmd" in shown
        assert not INVISIBLE.search(shown)


def test_a_job_shows_its_life(shop: Shop) -> None:
    batch = shop.batch("refuse")
    shop.settled(batch)
    [event] = shop.json("batch", "events", batch)["events"]
    shown = shop.run("job", event["jid"])
    assert shown.exit_code == 0
    for text in ("failed  in history", batch, "enqueued", "said: row 0: refuse", '[0, "refuse"]'):
        assert text in shown.stdout
    assert not INVISIBLE.search(shown.stdout)
    told = shop.json("job", event["jid"])
    assert (told["state"], told["history"]["event"]["status"]) == ("failed", "failed")
    nobody = shop.run("job", "nobody")
    assert nobody.exit_code == 1
    assert shop.json("job", "nobody")["history"] is None


def test_close_cancel_retry(shop: Shop) -> None:
    broken = shop.batch("break", "done")
    shop.settled(broken)
    assert shop.run("batch", "retry", broken).stdout == "1 job pushed again\n"
    status = shop.app.batch_status(broken)
    assert (status.state, status.generation, status.counts["enqueued"]) == ("closed", 2, 1)
    assert "nothing to push again" in shop.run("batch", "retry", broken).stdout
    [one] = shop.json("operations")["operations"]
    assert (one["act"], one["place"], one["name"], one["done"], one["status"]) == (
        "retry",
        "batches",
        broken,
        1,
        "done",
    )

    unsure = shop.run("batch", "cancel", broken)
    assert unsure.exit_code == 2
    assert "say --yes" in unsure.stderr
    assert shop.app.batch_status(broken).why == ""
    assert "cancelled" in shop.run("batch", "cancel", broken, "--yes").stdout
    assert shop.app.batch_status(broken).why == "cancelled"
    shop.settled(broken)
    assert shop.app.batch_status(broken).counts["cancelled"] == 1
    assert "nothing left to cancel" in shop.run("batch", "cancel", broken).stdout
    assert shop.run("batch", broken).exit_code == 4

    opened = shop.app.batch("Open").open()
    assert "open" in shop.run("batch", opened.id).stdout
    assert "complete" in shop.run("batch", "close", opened.id).stdout
    assert shop.app.batch_status(opened.id).state == "complete"
    for verb in ("close", "cancel", "retry"):
        gone = shop.run("batch", verb, "f" * 32)
        assert (gone.exit_code, gone.stdout) == (1, "")
        assert "there is no batch" in gone.stderr


def test_batches_lists_those_under_way(shop: Shop) -> None:
    assert "No batch is under way" in shop.run("batches").stdout
    done, first, second = shop.batch(), shop.batch("done"), shop.batch("done", "done", description="\u202e[bold]odd")
    assert [one["id"] for one in shop.json("batches")["batches"]] == [second, first]
    assert [one["id"] for one in shop.json("batches", "--all")["batches"]] == [second, first, done]
    some = shop.json("batches", "--most", "1")
    assert ([one["id"] for one in some["batches"]], some["more"]) == ([second], True)
    shown = shop.run("batches")
    assert (first in shown.stdout, "0 of 2" in shown.stdout, "[bold]odd" in shown.stdout) == (True, True, True)
    assert not INVISIBLE.search(shown.stdout)


def test_a_batch_whose_producer_is_gone_shows_as_abandoned(shop: Shop) -> None:
    shop.app.connections.run(make(shop.app.keys, "a" * 32, {"description": "lost", "keep": "60"}, b"{}"))
    assert shop.app.connections.run(command("DEL", shop.app.keys.producer("a" * 32))) == 1
    shown = shop.run("batch", "a" * 32)
    assert "abandoned" in shown.stdout
    assert "henchman batch close" in shown.stdout


def test_what_the_server_has_forgotten_is_told_from_history(shop: Shop) -> None:
    batch = shop.batch("done", "refuse")
    shop.settled(batch)
    shop.app.connections.run(command("DEL", shop.app.keys.batch(batch)))
    shown = shop.run("batch", batch)
    assert shown.exit_code == 4
    assert "2 of 2" in shown.stdout


class TestSteps:
    """What ``henchman batch ID`` tells of the steps of a workflow."""

    def test_each_says_how_it_stands_and_what_it_waits_for(self, shop: Shop) -> None:
        with shop.app.workflow("Order") as flow:
            pay = flow.add(shop.create.call(1, "object"), name="pay")
            label = flow.add(shop.create.call(2, "break"), name="label")
            flow.add(shop.create.call(3, "refuse"), name="mail")
            flow.add(shop.create.call(4), name="ship", after=[pay, label])
        waiting = shop.json("batch", flow.id)
        assert [(one["name"], one["status"], one["waits_for"]) for one in waiting["steps"]] == [
            ("pay", "enqueued", []),
            ("label", "enqueued", []),
            ("mail", "enqueued", []),
            ("ship", "blocked", ["label", "pay"]),
        ]
        with working(shop.app):
            until(lambda: flow.status().done == 3, "all but the last have ended")
            until(lambda: shop.json("batch", flow.id)["steps"][3]["waits_for"] == ["label"], "pay is met")
        shown = shop.json("batch", flow.id)
        told = [(one["name"], one["status"], one["result"], one["message"]) for one in shown["steps"]]
        assert [one[:3] for one in told] == [
            ("pay", "finished", True),
            ("label", "error", False),
            ("mail", "failed", False),
            ("ship", "blocked", False),
        ]
        assert told[1][3] == "price is missing"
        assert (shown["more_steps"], {one["job"] for one in shown["steps"]}) == (False, {"shop.create"})
        text = shop.run("batch", flow.id).stdout
        assert not INVISIBLE.search(text)
        assert re.search(r"ship +blocked +– +label", text), text
        assert re.search(r"label +error +– +price is missing", text), text
        assert "There are more steps: --steps" in shop.run("batch", "show", flow.id, "--steps", "2").stdout
        of_console = run(shop.app.connections, workflow_steps(shop.app.keys, flow.id, 50))
        assert {one.name: one.status for one in of_console} == {one[0]: one[1] for one in told}
        assert [(one.name, one.status, one.result, one.message) for one in flow.steps()] == told
        assert flow.status().counts["error"] == 1  # the word of the batch itself
        short = shop.json("batch", "show", flow.id, "--steps", "2")
        assert ([one["name"] for one in short["steps"]], short["more_steps"]) == (["pay", "label"], True)

    def test_a_batch_without_steps_has_none(self, shop: Shop) -> None:
        id = shop.batch("done")
        assert (shop.json("batch", id)["steps"], shop.json("batch", id)["more_steps"]) == ([], False)
        assert "waits for" not in shop.run("batch", id).stdout
        assert shop.app.get_batch(id).steps() == []
        with pytest.raises(UnknownBatch, match="nowhere"):
            shop.app.get_batch("nowhere").steps()
        with pytest.raises(UnknownBatch, match="nowhere"):
            asyncio.run(shop.app.get_batch("nowhere").asteps())

    def test_a_large_result_is_a_result(self, shop: Shop) -> None:
        @shop.app.job(name="shop.large")
        def large() -> str:
            return "x" * 20_000

        with shop.app.workflow("Large") as flow:
            flow.add(large.call())
        shop.settled(flow.id)
        assert [(one["status"], one["result"]) for one in shop.json("batch", flow.id)["steps"]] == [("finished", True)]
