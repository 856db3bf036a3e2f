"""The API: what each address answers, page by page, since a position, as a sheet; through servers and in other apps."""

from __future__ import annotations

import csv
import io
import json
import re
from typing import Any

import pytest

from henchman.store.call import command
from henchman.web.api import Api
from support.asgi import ask
from support.web import HOSTILE, Import


def batch(imported: Import, rest: str = "") -> str:
    return f"/batches/{imported.batch}{rest}"


def test_a_batch_says_how_it_stands(web: Api, imported: Import) -> None:
    answer = ask(web, batch(imported))
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    told = answer.json
    assert (told["id"], told["description"], told["tags"]) == (imported.batch, "Import products.csv", ["shop"])
    assert (told["state"], told["why"], told["source"]) == ("complete", "", "server")
    assert (told["total"], told["done"], told["percent"], told["eta"]) == (30, 30, 100.0, None)
    counts = {name: many for name, many in told["counts"].items() if many}
    assert counts == {"finished": 19, "failed": 10, "error": 1}
    assert told["rate"] > 0
    assert {one["status"]: one["count"] for one in told["reasons"]} == {"failed": 1, "error": 1}
    assert len(told["reasons"]) == 11
    assert "events" not in told
    assert "position" not in told


def test_nothing_new_is_304(web: Api, imported: Import) -> None:
    first = ask(web, batch(imported))
    tag = first.headers["etag"]
    assert re.fullmatch(r'W/"[0-9a-f]{24}"', tag)
    assert (first.headers["cache-control"], first.headers["vary"]) == ("private, no-cache", "Authorization")
    for given in (tag, tag.removeprefix("W/"), f'"other", {tag}', "*"):
        again = ask(web, batch(imported), if_none_match=given)
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag)
    assert ask(web, batch(imported), if_none_match='"other"').status == 200
    assert ask(web, batch(imported, "?since=0"), if_none_match=tag).status == 200


def test_what_changed_since(web: Api, imported: Import) -> None:
    everything = ask(web, batch(imported, "?since=0")).json
    assert (len(everything["events"]), everything["more"]) == (30, False)
    changed = [one["changed"] for one in everything["events"]]
    assert changed == sorted(changed, key=int)
    assert all(isinstance(one["seq"], str) for one in everything["events"])  # JavaScript would round the number
    assert everything["position"] == changed[-1]
    assert ask(web, batch(imported, "?since=latest")).json["position"] == changed[-1]
    some = ask(web, batch(imported, "?since=0&limit=7")).json
    assert (len(some["events"]), some["more"], some["position"]) == (7, True, changed[6])
    rest = ask(web, batch(imported, f"?since={some['position']}")).json
    assert [one["jid"] for one in (*some["events"], *rest["events"])] == [one["jid"] for one in everything["events"]]
    last = ask(web, batch(imported, f"?since={changed[-1]}"))
    assert (last.json["events"], last.json["position"]) == ([], changed[-1])
    again = ask(web, batch(imported, f"?since={changed[-1]}"), if_none_match=last.headers["etag"])
    assert again.status == 304


def test_events_page_by_page(web: Api, imported: Import) -> None:
    seen: list[dict[str, Any]] = []
    after, pages = "0", 0
    while after is not None:
        told = ask(web, batch(imported, f"/events?limit=4&status=failed,error&after={after}")).json
        assert told["batch"] == imported.batch
        seen, after, pages = [*seen, *told["events"]], told["next"], pages + 1
    assert pages == 3
    assert [one["args"][0] for one in seen] == sorted([1, *range(0, 30, 3)])
    row = seen[1]
    assert (row["class"], row["status"], row["error_class"]) == ("shop.create", "error", "ValueError")
    assert (row["args"], row["attempts"]) == ([1, "sku-1"], 1)
    assert row["traceback"]
    assert ask(web, batch(imported, "/events?status=expired")).json == {
        "batch": imported.batch,
        "events": [],
        "next": None,
    }
    assert len(ask(web, batch(imported, "/events")).json["events"]) == 30


def test_a_page_is_bounded_by_its_bytes_too(web: Api, imported: Import, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("henchman.web.views.BYTES", 1500)
    monkeypatch.setattr("henchman.web.views._STEP", 5)
    seen: list[str] = []
    after, pages = "0", 0
    while after is not None:
        told = ask(web, batch(imported, f"/events?limit=1000&after={after}")).json
        assert told["events"]
        seen, after, pages = [*seen, *(one["jid"] for one in told["events"])], told["next"], pages + 1
    assert (len(seen), len(set(seen))) == (30, 30)
    assert pages >= 10
    told = ask(web, batch(imported, "?since=0")).json
    assert 1 <= len(told["events"]) < 30
    assert told["more"]


def test_failures_as_a_sheet(web: Api, imported: Import) -> None:
    answer = ask(web, batch(imported, "/failures.csv"))
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/csv; charset=utf-8; header=present"
    assert answer.headers["content-disposition"] == f'attachment; filename="failures-{imported.batch}.csv"'
    assert answer.headers["cache-control"] == "no-store"
    assert answer.body.startswith(b"\xef\xbb\xbfjob id,class,")
    rows = list(csv.DictReader(io.StringIO(answer.body.decode("utf-8-sig"), newline="")))
    assert len(rows) == 11
    assert rows[0]["message"] == "'" + HOSTILE.replace("\0", "\u2400")  # as history keeps it
    assert (rows[1]["message"], rows[1]["error class"], rows[1]["status"]) == (
        "price is missing",
        "ValueError",
        "error",
    )
    assert rows[2]["arguments"] == '[3, "sku-3"]'
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}", rows[2]["ended (UTC)"])


def test_results_as_a_sheet_and_as_json_lines(web: Api, imported: Import) -> None:
    sheet, lines = (ask(web, batch(imported, f"/results.{ending}")) for ending in ("csv", "jsonl"))
    assert (sheet.status, lines.status) == (200, 200)
    assert sheet.headers["content-type"] == "text/csv; charset=utf-8; header=present"
    assert lines.headers["content-type"] == "application/jsonl; charset=utf-8"
    for answer, ending in ((sheet, "csv"), (lines, "jsonl")):
        assert answer.headers["content-disposition"] == f'attachment; filename="results-{imported.batch}.{ending}"'
        assert answer.headers["cache-control"] == "no-store"
    rows = list(csv.DictReader(io.StringIO(sheet.body.decode("utf-8-sig"), newline="")))
    documents = [json.loads(line) for line in lines.body.splitlines()]
    assert [int(one["row"]) for one in rows] == [one["row"] for one in documents] == list(range(30))
    assert [one["status"] for one in rows] == [one["status"] for one in documents]
    assert (rows[2]["result"], documents[2]["result"]) == ("2", 2)
    assert rows[0]["message"].startswith("'=cmd")
    assert (documents[1]["status"], documents[1]["message"]) == ("error", "price is missing")
    head = ask(web, batch(imported, "/results.csv"), "HEAD")
    assert (head.status, head.body, head.headers["content-type"]) == (200, b"", sheet.headers["content-type"])


def test_results_that_there_are_not(web: Api, imported: Import) -> None:
    with imported.app.batch("without") as without:
        pass
    for ending in ("csv", "jsonl"):
        none = ask(web, f"/batches/{without.id}/results.{ending}")
        assert (none.status, none.json["detail"].startswith(f"batch {without.id} keeps no results")) == (404, True)
        assert ask(web, f"/batches/{'f' * 32}/results.{ending}").json["detail"] == "nothing is known under this address"
        assert ask(web, batch(imported, f"/results.{ending}?x=1")).status == 400


def test_a_job_with_its_life(web: Api, imported: Import) -> None:
    events = ask(web, batch(imported, "/events?status=error")).json["events"]
    told = ask(web, f"/jobs/{events[0]['jid']}").json
    assert told["event"] == events[0]
    assert all(isinstance(one["position"], str) for one in (*told["changes"], *told["messages"]))
    assert [one["status"] for one in told["changes"]][-1] == "error"
    assert told["changes"][0]["status"] == "enqueued"
    assert [one["text"] for one in told["messages"]] == ["looked at sku-1"]
    assert len(told["runs"]) == 1
    assert told["complete"] is True


def test_a_batch_that_the_server_has_forgotten_is_told_from_history(web: Api, imported: Import) -> None:
    app, held = imported.app, imported.app.keys.batch(imported.batch)
    kept = app.connections.run(command("DUMP", held))
    app.connections.run(command("DEL", held))
    try:
        told = ask(web, batch(imported)).json
        assert (told["source"], told["state"], told["total"], told["done"]) == ("history", "complete", 30, 30)
        assert {name: many for name, many in told["counts"].items() if many} == {
            "finished": 19,
            "failed": 10,
            "error": 1,
        }
        assert ask(web, batch(imported, "/events?status=expired")).json["events"] == []
    finally:
        app.connections.run(command("RESTORE", held, 0, kept))
    now = ask(web, batch(imported)).json
    assert set(now) == set(told)


@pytest.mark.parametrize("path", ["", "/events", "/failures.csv", "?since=0"])
def test_head_is_get_without_its_body(web: Api, imported: Import, path: str) -> None:
    got, head = ask(web, batch(imported, path)), ask(web, batch(imported, path), "HEAD")
    assert (head.status, head.body) == (200, b"")
    told = {name: value for name, value in got.headers.items() if name not in ("content-length", "etag")}
    assert {name: value for name, value in head.headers.items() if name not in ("content-length", "etag")} == told
