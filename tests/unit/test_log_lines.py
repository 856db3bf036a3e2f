"""Log lines: three formats, the job on every line, nothing that forges a line, shows a secret or raises."""

from __future__ import annotations

import io
import json
import logging
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from henchman.errors import ConfigError
from henchman.log import handler as log
from henchman.work.current import running
from support.runs import make_run


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield
    root.handlers[:], level = before
    root.setLevel(level)


def written(format: str, level: str = "info", **more: Any) -> io.StringIO:
    stream = io.StringIO()
    logging.getLogger().handlers[:] = []  # pytest's own would object to what is done here on purpose
    log.setup(format, level, stream, **more)
    return stream


def test_logfmt() -> None:
    stream = written("logfmt", process_tag="w1")
    logging.getLogger("shop").info("bought %d", 3, extra={"order": 7, "by": "Ann Lee", "msg_": "a=b", "none": None})
    pairs = dict(pair.split("=", 1) for pair in shlex.split(stream.getvalue()))
    assert pairs.pop("ts").endswith("Z")
    assert pairs.pop("pid").isdigit()
    assert pairs == {
        "level": "info",
        "process": "w1",
        "logger": "shop",
        "msg": "bought 3",
        "order": "7",
        "by": "Ann Lee",
        "msg_": "a=b",
        "none": "null",
    }


def test_what_alembic_does_is_no_news() -> None:
    """A worker with an outbox began with eight lines of its plugins."""
    stream = written("logfmt")
    logging.getLogger("alembic.runtime.plugins").info("setup plugin alembic.autogenerate.tables")
    logging.getLogger("alembic.runtime.migration").warning("a warning")
    assert stream.getvalue().count("\n") == 1


def test_json_carries_the_traceback_and_cannot_be_overwritten() -> None:
    stream = written("json")
    try:
        raise ValueError("zwölf\n\u202e")
    except ValueError:
        logging.getLogger("shop").exception("broke", extra={"level": "fine", "price": float("nan")})
    text = stream.getvalue()
    assert text.count("\n") == 1
    assert "zwölf" in text
    assert "\u202e" not in text
    line = json.loads(text)
    assert line["level"] == "error"
    assert (line["extra_level"], line["price"]) == ("fine", "nan")
    assert line["traceback"].startswith("Traceback (most recent call last):\n")
    assert line["traceback"].endswith("ValueError: zwölf\n\u202e")


def test_pretty_has_the_traceback_below_indented() -> None:
    stream = written("pretty")
    try:
        raise ValueError("boom\n12:00:00.000 INFO  forged")
    except ValueError:
        logging.getLogger("shop").exception("broke")
    first, *rest = stream.getvalue().splitlines()
    assert first[12:] == " ERROR shop broke"
    assert rest[0] == "    Traceback (most recent call last):"
    assert rest[-1] == "    12:00:00.000 INFO  forged"
    assert all(line.startswith("    ") for line in rest)


@pytest.mark.parametrize("format", ["pretty", "json", "logfmt"])
def test_one_event_is_one_line_whatever_it_says(format: str) -> None:
    stream = written(format)
    for odd in ("a\nlevel=error", "a\r\x1b[31m", "\x85\u2028\u2029\u202e\x7f\x00", "\ud800", "x" * 200_000):
        logging.getLogger("shop").info(odd, extra={"field": odd, odd: 1})
    lines = stream.getvalue().splitlines()
    assert len(lines) == 5
    assert all(line.isprintable() and len(line) < 20_000 for line in lines)
    if format == "json":
        assert json.loads(lines[0])["msg"] == "a\nlevel=error"


@pytest.mark.parametrize("format", ["pretty", "json", "logfmt"])
def test_passwords_in_urls_are_masked(format: str) -> None:
    stream = written(format)
    logging.getLogger("shop").info("at redis://me:hunter2@host/0", extra={"url": "redis://:hunter2@host"})
    assert "hunter2" not in stream.getvalue()
    assert "me:***@host" in stream.getvalue()


@pytest.mark.parametrize("format", ["pretty", "json", "logfmt"])
def test_a_line_of_users_code_names_its_job(format: str) -> None:
    stream = written(format)
    run = make_run([1], jid="aa11")
    token = running.set(run)
    logging.getLogger("shop").info("inside")
    running.reset(token)
    logging.getLogger("shop").info("outside")
    inside, outside = stream.getvalue().splitlines()
    assert "aa11" in inside
    assert run.name in inside
    assert "jid" not in outside


def test_jid_and_class_for_a_handler_of_the_users_own() -> None:
    stream = io.StringIO()
    written("logfmt")
    own = logging.StreamHandler(stream)
    own.addFilter(log.JobFilter())
    own.setFormatter(logging.Formatter("%(message)s %(class)s/%(jid)s"))
    logging.getLogger().addHandler(own)
    token = running.set(make_run([1], jid="aa11"))
    logging.getLogger("shop").info("inside")
    running.reset(token)
    logging.getLogger("shop").info("outside")
    assert stream.getvalue() == "inside shop.pay/aa11\noutside /\n"


@pytest.mark.parametrize("format", ["pretty", "json", "logfmt"])
def test_secrets_of_the_job_are_shown_nowhere(format: str) -> None:
    stream = written(format)
    card = {"number": "4111-1111", "codes": [987654]}
    token = running.set(make_run([1, card], {"pin": "it's\tpin"}, secret=("card", "pin")))
    try:
        raise KeyError(card["number"])
    except KeyError as error:
        logging.getLogger("shop").exception("no %s (%r): %s", card, "it's\tpin", error, extra={"code": 987654})
    running.reset(token)
    text = stream.getvalue()
    assert "***" in text
    assert not [secret for secret in ("4111", "987654", "pin") if secret in text.replace("pin'", "")]


class Unspeakable:
    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


class Full(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("format", ["pretty", "json", "logfmt"])
def test_a_line_that_cannot_be_made_is_made_all_the_same(format: str) -> None:
    stream = written(format)
    logger = logging.getLogger("shop")
    logger.info(*("%d of %d", "one"))
    logger.info("%s", Unspeakable(), extra={"thing": Unspeakable()})
    first, second = stream.getvalue().splitlines()
    assert "%d of %d" in first
    assert "cannot be shown" in second


def test_a_log_that_cannot_be_written_stops_nobody() -> None:
    log.setup("json", "info", Full())
    logging.getLogger("shop").info("hello")
    closed = io.StringIO()
    closed.close()
    log.setup("auto", "info", closed)
    logging.getLogger("shop").info("hello")


def test_a_stream_that_knows_only_ascii() -> None:
    raw = io.BytesIO()
    log.setup("pretty", "info", io.TextIOWrapper(raw, encoding="ascii"))
    logging.getLogger("shop").info("zwölf")
    assert b"zw\\xf6lf" in raw.getvalue()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_auto_is_pretty_on_a_terminal_in_colour_unless_that_is_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    log.setup("auto", "info", colour := Terminal())
    logging.getLogger("shop").warning("hello")
    assert "\033[33mWARN \033[0m" in colour.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    log.setup("auto", "info", plain := Terminal())
    logging.getLogger("shop").warning("hello")
    assert "\033" not in plain.getvalue()
    assert colour.getvalue().count("hello") == 1


def test_level_and_setup_twice() -> None:
    first = written("logfmt")
    doubled = logging.StreamHandler(second := io.StringIO())
    other = logging.StreamHandler(io.StringIO())
    logging.getLogger().handlers += [doubled, other]
    log.setup("logfmt", "warning", second)
    logging.getLogger("shop").info("quiet")
    logging.getLogger("shop").warning("loud")
    assert first.getvalue() == ""
    assert second.getvalue().count("\n") == 1
    assert doubled not in logging.getLogger().handlers
    assert other in logging.getLogger().handlers


def test_words_that_are_no_format_or_level() -> None:
    with pytest.raises(ConfigError, match=r"'xml'.*auto, pretty, json or logfmt"):
        log.setup("xml", "info")
    with pytest.raises(ConfigError, match=r"'loud'.*debug, info, warning or error"):
        log.setup("json", "loud")
