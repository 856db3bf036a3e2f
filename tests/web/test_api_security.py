"""The API's rules: who comes in, what may be asked, what is never told; each at every address."""

from __future__ import annotations

import asyncio
import csv
import hmac
import io
import json
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import Response

from henchman import App
from henchman.errors import ConfigError, HistoryAway
from henchman.kernel import spreadsheet
from henchman.store.call import command
from henchman.web import views
from henchman.web.api import Api, Guard, api
from support.asgi import TOKEN, Answer, ask, scope_of
from support.web import SECRET, Import

UNKNOWN = "f" * 32
PATHS = [f"/batches/{UNKNOWN}", f"/batches/{UNKNOWN}/events", f"/batches/{UNKNOWN}/failures.csv", "/jobs/unknown", "/x"]
SECURE = {
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
}
NOWHERE = "redis://127.0.0.1:1/0"  # nobody listens there


def closed(**settings: Any) -> App:
    """An app whose server is never asked."""
    return App(redis_url=NOWHERE, history="off", **settings)


def problem_of(answer: Answer, status: int) -> str:
    assert (answer.status, answer.headers["content-type"]) == (status, "application/problem+json"), answer
    assert answer.headers["cache-control"] == "no-store"
    assert answer.json["status"] == status
    detail: str = answer.json["detail"]
    return detail


class TestToken:
    def test_it_must_be_said_explicitly_that_none_is_wanted(self) -> None:
        with pytest.raises(ConfigError, match="no token: set api_token"):
            api(closed())
        with pytest.raises(ConfigError, match="no token"):
            api(closed(api_token=TOKEN), token=())
        for path in PATHS[3:]:
            assert ask(api(closed(), token=None), path, token=None).status in (404, 501)

    @pytest.mark.parametrize("wrong", [5, 5.0, True, b"x" * 20, {TOKEN: 1}, [5], [b"x" * 20], [TOKEN, None]])
    def test_what_is_no_text_is_refused(self, wrong: Any) -> None:
        with pytest.raises(ConfigError, match=r"token= (is|holds) a value of type \w+: give a text") as raised:
            api(closed(), token=wrong)
        assert TOKEN not in str(raised.value)
        with pytest.raises(ConfigError, match="origins= "):
            api(closed(), token=TOKEN, origins=wrong)

    @pytest.mark.parametrize("wrong", ["short", "with blank 0123456789", "é" * 20, "x" * 201])
    def test_a_token_is_long_enough_and_not_repeated_in_the_error(self, wrong: str) -> None:
        with pytest.raises(ConfigError, match="16 to 200") as caught:
            api(closed(), token=wrong)
        assert wrong not in str(caught.value)

    @pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "OPTIONS", "DELETE"])
    @pytest.mark.parametrize("path", [*PATHS, "/" + "x" * 5000, "/jobs/x?" + "q" * 5000, "/batches/x?nonsense=1"])
    def test_without_it_every_address_says_the_same(self, path: str, method: str) -> None:
        answer = ask(api(closed(), token=TOKEN), path, method, token=None)
        assert answer.status == 401
        assert answer.headers["www-authenticate"] == 'Bearer realm="henchman"'
        if method != "HEAD":
            assert problem_of(answer, 401) == "send the token: Authorization: Bearer …"

    @pytest.mark.parametrize(
        "value",
        [
            f"Bearer {TOKEN}x",
            f"Bearer {TOKEN[:-1]}",
            f"Bearer {TOKEN.upper()}",
            f"Basic {TOKEN}",
            TOKEN,
            "Bearer",
            "Bearer ",
            "",
            "Bearer é",
            f"Bearer {TOKEN}, Bearer {TOKEN}",
            "Bearer " + "x" * 100_000,
        ],
    )
    def test_a_wrong_one_opens_nothing(self, value: str) -> None:
        answer = ask(api(closed(), token=TOKEN), "/x", token=None, authorization=value)
        assert problem_of(answer, 401) == "this token opens nothing here"
        assert answer.headers["www-authenticate"] == 'Bearer realm="henchman", error="invalid_token"'

    def test_two_headers_open_nothing(self) -> None:
        scope = scope_of("/x")
        scope["headers"] = [(b"authorization", f"Bearer {TOKEN}".encode()), (b"Authorization", b"Bearer x")]
        assert Guard(Response(), (TOKEN,))._refused(scope) is not None
        del scope["headers"][1]
        assert Guard(Response(), (TOKEN,))._refused(scope) is None

    def test_a_token_in_the_address_is_no_token(self) -> None:
        for name in ("token", "access_token", "api_token"):
            assert ask(api(closed(), token=TOKEN), f"/x?{name}={TOKEN}", token=None).status == 401

    def test_each_of_several_opens_and_all_are_compared_in_constant_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        compared: list[tuple[bytes, bytes]] = []

        def watched(one: bytes, other: bytes) -> bool:
            compared.append((one, other))
            return hmac.compare_digest(one, other)

        monkeypatch.setattr("henchman.web.api.hmac", type("Watched", (), {"compare_digest": staticmethod(watched)}))
        second = TOKEN + "-2"
        for made in (api(closed(), token=[TOKEN, second]), api(closed(api_token=[TOKEN, second]))):
            for token, status in ((TOKEN, 404), (second, 404), ("bearer-of-nothing-0123", 401)):
                compared.clear()
                assert ask(made, "/x", token=token).status == status
                assert len(compared) == 2
                assert all(len(one) == len(other) == 32 for one, other in compared)

    def test_the_scheme_may_be_written_in_any_case(self) -> None:
        assert ask(api(closed(), token=TOKEN), "/x", token=None, authorization=f"bEARER {TOKEN}").status == 404


class TestAsked:
    @pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "NONSENSE"])
    @pytest.mark.parametrize("path", PATHS)
    def test_it_can_only_be_read(self, path: str, method: str) -> None:
        answer = ask(api(closed(), token=TOKEN), path, method)
        problem_of(answer, 405)
        assert answer.headers["allow"] == "GET, HEAD"

    def test_what_is_unknown_is_not_told_apart(self, web: Api, imported: Import) -> None:
        odd = [
            "/batches/x",
            "/batches/" + "F" * 32,
            "/batches/" + "a" * 33,
            "/",
            "",
            "//",
            f"/batches/{UNKNOWN}/",
            "/é",
        ]
        odd += ["/jobs/" + "x" * 101, "/jobs/a%00b", "/jobs/\udcff", "/jobs/a/b", f"/batches/{imported.batch}/events/"]
        told = {ask(web, path).body for path in (*PATHS, *odd)}
        assert len(told) == 1
        assert problem_of(ask(web, PATHS[0]), 404) == "nothing is known under this address"

    @pytest.mark.parametrize(
        ("path", "named"),
        [
            ("?since=-1", "since='-1'"),
            ("?since=1.5", "since='1.5'"),
            ("?since=", "since=''"),
            ("?since=Latest", "since='Latest'"),
            ("?since=%D9%A1", "since='١'"),
            ("?since=9223372036854775808", "since='9223372036854775808'"),
            ("?since=" + "9" * 900, "since='999"),
            ("?limit=5", "limit goes with since"),
            ("?since=0&limit=1001", "limit='1001'"),
            ("?sinse=0", "there is no parameter 'sinse'; did you mean 'since'?"),
            ("?since=0&since=1", "since stands there twice"),
            ("/events?status=fialed", "there is no status 'fialed'"),
            ("/events?status=", "there is no status ''"),
            ("/events?status=failed,%3Cb%3E", "there is no status '<b>'"),
            ("/events?limit=0", "limit='0'"),
            ("/events?limit=1001", "limit='1001': a whole number from 1 to 1,000"),
            ("/events?after=x%0d%0aSet-Cookie:%20y", "after="),
            ("/events?after=%E2%80%AE", r"after='\\u202e'"),
            ("/failures.csv?status=failed", "there is no parameter 'status'; there are none here"),
        ],
    )
    def test_a_wrong_value_is_named(self, web: Api, imported: Import, path: str, named: str) -> None:
        detail = problem_of(ask(web, f"/batches/{imported.batch}{path}"), 400)
        assert named in detail
        assert len(detail) < 400

    def test_sizes_are_limited(self, web: Api, imported: Import) -> None:
        assert "512 bytes" in problem_of(ask(web, "/jobs/" + "x" * 600), 414)
        assert "1,024 bytes" in problem_of(ask(web, f"/batches/{imported.batch}?since=" + "1" * 1100), 414)
        assert (
            ask(web, f"/batches/{imported.batch}", root="/a" * 400).status == 200
        )  # where it is mounted is not theirs

    def test_what_is_no_http_is_sent_away(self) -> None:
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "websocket.connect"}

        async def send(message: Any) -> None:
            sent.append(message)

        asyncio.run(api(closed(), token=TOKEN)({"type": "websocket", "path": "/", "headers": []}, receive, send))
        assert sent == [{"type": "websocket.close", "code": 1008}]


class TestAnswers:
    def test_every_answer_has_the_headers(self, web: Api, imported: Import) -> None:
        here = f"/batches/{imported.batch}"
        tag = ask(web, here).headers["etag"]
        seen = [
            ask(web, here),
            ask(web, here, if_none_match=tag),
            ask(web, here, "HEAD"),
            ask(web, here, token=None),
            ask(web, here, "POST"),
            ask(web, here + "/events"),
            ask(web, here + "/failures.csv"),
            ask(web, here + "?x=1"),
            ask(web, "/jobs/nobody"),
            ask(web, "/" + "x" * 600),
        ]
        assert [one.status for one in seen] == [200, 304, 200, 401, 405, 200, 200, 400, 404, 414]
        for one in seen:
            assert {name: one.headers.get(name) for name in SECURE} == SECURE
            assert one.headers["cache-control"] in ("no-store", "private, no-cache")
            assert not [name for name in one.headers if name.startswith("access-control-")]
            assert "set-cookie" not in one.headers

    def test_no_other_site_may_ask_unless_it_was_named(self, imported: Import) -> None:
        here, site = f"/batches/{imported.batch}", "https://shop.example"
        plain = ask(api(imported.app), here, origin=site)
        assert not [name for name in plain.headers if name.startswith("access-control-")]
        asked = api(imported.app, origins=[site])
        got = ask(asked, here, origin=site)
        assert (got.status, got.headers["access-control-allow-origin"]) == (200, site)
        assert "access-control-allow-credentials" not in got.headers
        other = ask(asked, here, origin="https://evil.example")
        assert "access-control-allow-origin" not in other.headers
        wants = {"access_control_request_method": "GET", "access_control_request_headers": "authorization"}
        flight = ask(asked, here, "OPTIONS", token=None, origin=site, **wants)
        assert (flight.status, flight.headers["access-control-allow-origin"]) == (200, site)
        assert "POST" not in flight.headers["access-control-allow-methods"]
        imported.app.close()

    def test_secret_arguments_are_nowhere(self, web: Api, imported: Import) -> None:
        here = f"/batches/{imported.batch}"
        events = ask(web, here + "/events")
        job = ask(web, f"/jobs/{events.json['events'][0]['jid']}")
        for one in (events, job, ask(web, here + "?since=0"), ask(web, here + "/failures.csv")):
            assert one.status == 200
            assert SECRET.encode() not in one.body
            assert b"***" in one.body

    def test_json_is_ascii_and_json_whatever_it_holds(self) -> None:
        odd = {"nan": [float("nan"), float("inf"), 1.5], "half": "\ud800", "big": 10**30, "html": "</script>\u2028"}
        text = views.as_json(odd)
        assert text.isascii()
        assert json.loads(text, parse_constant=pytest.fail) == odd | {"nan": [None, None, 1.5]}


class TestAway:
    def test_the_server(self, tmp_path: Path) -> None:
        made = api(App(redis_url=NOWHERE, database_url=f"sqlite:///{tmp_path}/secret-name.sqlite"), token=TOKEN)
        answer = ask(made, PATHS[0])
        assert problem_of(answer, 503) == "the server that holds the jobs cannot be asked just now"
        assert answer.headers["retry-after"] == "5"
        assert {name: answer.headers.get(name) for name in SECURE} == SECURE
        made.close()

    @pytest.mark.parametrize("path", [*PATHS[1:4], PATHS[0] + "?since=0"])
    def test_the_database(self, redis_url: str, tmp_path: Path, path: str) -> None:
        app = App(redis_url=redis_url, database_url=f"sqlite:///{tmp_path}/secret-name.sqlite")
        made = api(app, token=TOKEN)
        answer = ask(made, path)
        assert problem_of(answer, 503) == "the database of history cannot be asked just now"
        assert answer.headers["retry-after"] == "5"
        assert b"secret" not in answer.body
        made.close()
        app.close()

    @pytest.mark.parametrize("path", PATHS[1:4])
    def test_history_that_is_off_is_said(self, redis_url: str, path: str) -> None:
        made = api(App(redis_url=redis_url, history="off"), token=TOKEN)
        problem_of(ask(made, path), 501)

    def test_a_server_that_refuses_is_not_quoted(self, redis_url: str, tmp_path: Path) -> None:
        app = App(redis_url=redis_url, history="off")
        app.connections.run(command("SET", app.keys.batch(UNKNOWN), "text"))
        detail = problem_of(ask(api(app, token=TOKEN), PATHS[0]), 503)
        assert "WRONGTYPE" not in detail
        app.close()

    def test_what_nobody_foresaw_is_not_told(self, web: Api, monkeypatch: pytest.MonkeyPatch, imported: Import) -> None:
        def broken(*told: Any) -> None:
            raise RuntimeError("a secret")

        monkeypatch.setattr("henchman.web.views.status_of", broken)
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = scope_of(f"/batches/{imported.batch}", headers={"authorization": f"Bearer {TOKEN}"})
        with pytest.raises(RuntimeError):  # the web server logs it
            asyncio.run(web(scope, receive, send))
        assert sent[0]["status"] == 500
        assert (b"x-content-type-options", b"nosniff") in sent[0]["headers"]
        assert b"secret" not in sent[1]["body"]

    def test_a_sheet_that_cannot_go_on_breaks_off_and_does_not_end(
        self, web: Api, imported: Import, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(views, "_CSV_STEP", 4)
        real, asked = views.failures, []

        async def once(record: Any, batch: str, after: int) -> Any:
            asked.append(after)
            if len(asked) > 2:
                raise HistoryAway("gone")
            return await real(record, batch, after)

        monkeypatch.setattr(views, "failures", once)
        sent: list[Any] = []

        async def receive() -> Any:
            await asyncio.sleep(60)

        async def send(message: Any) -> None:
            sent.append(message)

        scope = scope_of(f"/batches/{imported.batch}/failures.csv", headers={"authorization": f"Bearer {TOKEN}"})
        with pytest.raises(RuntimeError, match="breaks off: gone"):  # the web server logs it and cuts the connection
            asyncio.run(web(scope, receive, send))
        assert sent[0]["status"] == 200
        assert all(one.get("more_body") for one in sent[1:])  # so the client sees that something is missing


class TestSheet:
    @pytest.mark.parametrize("first", [*"=+-@\t\r\n\v\f", *"\uff1d\uff0b\uff0d\uff20\ufe63\u2212", "\u2028", "\u0085"])
    @pytest.mark.parametrize(
        "blanks",
        [
            "",
            " ",
            "  \u00a0",
            "\u3000",
            *"\ufeff\u200b\u200e\u202e\u2066\u2060\u00ad\x01\x1f\x7f\ufe0f\u034f\u3164\u2800\U000e0001",
        ],
    )
    def test_formulas_become_text(self, first: str, blanks: str) -> None:
        text = f"{blanks}{first}cmd|' /C calc'!A0"
        assert spreadsheet.safe(text) == f"'{text}"

    @pytest.mark.parametrize(
        "text", ["", "plain", "a=b", "5 - 3", "'=1", "[-1]", "é", " x", "a\n=b", "\ufeffx=1", "\u200b"]
    )
    def test_everything_else_stays(self, text: str) -> None:
        assert spreadsheet.safe(text) == text

    def test_cells_are_not_endless(self) -> None:
        cut = spreadsheet.safe("x" * 100_000)
        assert cut.endswith("… (100,000 characters)")
        assert len(cut) < 32_767

    def test_half_a_character_does_not_break_it(self) -> None:
        text = spreadsheet.written([["\ud800", "a\0b"]])
        assert next(csv.reader(io.StringIO(text.decode()))) == ["\\ud800", "a\0b"]
