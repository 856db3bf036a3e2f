"""``log_level=``: how loud one job may be."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from henchman import App
from henchman.log import handler as log
from support.worker import looker, push_raw, until, working


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    stream = io.StringIO()
    log.setup("logfmt", "info", stream)
    yield stream
    root.setLevel(level)
    root.handlers[:] = handlers


def test_a_job_that_wants_quiet_is_written_of_only_when_it_fails(redis_url: str, lines: io.StringIO) -> None:
    app = App(redis_url=redis_url)
    log.subscribe(app.events, "info")
    ran: list[str] = []

    @app.job(name="quiet", log_level="error", retry=0)
    def quiet(fail: bool) -> None:
        logging.getLogger("mine").warning("a warning of the quiet job")
        ran.append("quiet")
        if fail:
            raise ValueError("loud enough")

    @app.job(name="usual")
    def usual() -> None:
        logging.getLogger("mine").info("a line of the usual job")
        ran.append("usual")

    with working(app):
        quiet.enqueue(False)
        usual.enqueue()
        until(lambda: len(ran) == 2, "both ran")
        quiet.enqueue(True)
        until(lambda: "loud enough" in lines.getvalue(), "the failure is written of")
        until(lambda: "class=usual" in lines.getvalue() and "msg=done" in lines.getvalue(), "the usual job is, too")
    text = lines.getvalue()
    assert "a line of the usual job" in text
    assert "a warning of the quiet job" not in text
    assert not [line for line in text.splitlines() if "class=quiet" in line and "level=info" in line]


def test_a_level_that_is_none_counts_as_not_said(redis_url: str, lines: io.StringIO) -> None:
    app = App(redis_url=redis_url)
    log.subscribe(app.events, "info")

    @app.job(name="usual")
    def usual() -> None: ...

    with working(app), looker(redis_url) as redis:
        for number, name in enumerate(("usual", "nobody.knows")):
            push_raw(redis, json.dumps({"class": name, "args": [], "jid": f"j{number}", "retry": 0, "log_level": [1]}))
        until(
            lambda: "class=usual" in lines.getvalue() and "class=nobody.knows" in lines.getvalue(), "both are told of"
        )
    assert "a handler raised" not in lines.getvalue()
