"""What the core announces, with which facts; and how each becomes a line of the log, in every format."""

from __future__ import annotations

import ast
import logging
import re
from pathlib import Path
from typing import Any, Final

import pytest

import henchman
from frozen.conftest import Frozen
from henchman.errors import Failure
from henchman.log.events import ENDINGS, PLAIN, Announcer
from henchman.log.handler import FORMATS
from henchman.work.outcome import Outcome
from henchman.work.unit import Unit
from support.events import StrictEvents
from support.runs import make_run

SOURCES: Final = Path(henchman.__file__).parent


def announced() -> dict[str, set[str]]:
    """By event, the facts that any ``emit("event", fact=…)`` in the sources hands over."""
    found: dict[str, set[str]] = {}
    for file in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Name("emit") | ast.Attribute(attr="emit"), args=[ast.Constant(str(name)), *_]):
                    found.setdefault(name, set()).update(each.arg or "**" for each in node.keywords)
    return found


def test_events(frozen: Frozen) -> None:
    facts = announced()
    names = sorted({*facts, *PLAIN})
    frozen("events", [f"{name}  {', '.join(sorted(facts.get(name, ()))) or '(none told here)'}" for name in names])


def test_levels_and_words(frozen: Frozen) -> None:
    lines = [f"event {name}  {level(number)}  {words}" for name, (number, words) in sorted(PLAIN.items())]
    lines += [f"ending {name}  {level(number)}  {words}" for name, (number, words) in sorted(ENDINGS.items())]
    frozen("words of the log", lines)


def level(number: int) -> str:
    return logging.getLevelName(number).lower()


def value(name: str) -> Any:
    """Something of the kind that the fact ``name`` has."""
    run = make_run([1, "two"], {"pin": 3}, jid="a" * 24, retry_count=0)
    known: dict[str, Any] = {
        "run": run,
        "outcome": Outcome("retry", reason="ValueError: boom", delay=30.0, error=ValueError("boom")),
        "error": ValueError("boom"),
        "unit": run.unit.payload,
        "handler": len,
        "part": "heart",
        "message": "looked at it",
        "facts": {"context": "job raised", "job": {"jid": "a" * 24, "class": "shop.pay"}, "queue": "mail"},
        "threads": {"MainThread": ["frame one"]},
        "tasks": {"Task-1": ["frame two"]},
        "file": "stacks.txt",
        "downtime": 3.0,
    }
    return known.get(name, f"<{name}>")


def refused() -> Unit:
    """A unit whose job was read, and could not be run."""
    unit: Unit = value("run").unit
    unit.job = {"jid": "a" * 24, "class": "shop.pay"}
    return unit


def told(caplog: pytest.LogCaptureFixture, name: str, facts: dict[str, Any]) -> list[logging.LogRecord]:
    """The records of one event, heard by an announcer that has heard nothing before."""
    events = StrictEvents()
    announcer = Announcer(monotonic=lambda: 0.0)
    for each, listener in announcer.listeners(logging.DEBUG):
        events.on(each, listener)
    if name == "server_back":  # it says nothing unless the server was away
        events.emit("server_away", part="heart", error=ValueError("boom"), failures=1)
    caplog.clear()
    events.emit(name, **facts)
    return list(caplog.records)


def test_lines(frozen: Frozen, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    lines = []
    for name, facts in sorted(announced().items()):
        given = {each: value(each) for each in sorted(facts - {"**", "secrets"})}
        if name == "job_refused":
            given["unit"] = refused()
        lines += [f"== {name}", *(line for record in told(caplog, name, given) for line in formatted(record))]
    run = value("run")
    for ending in sorted(ENDINGS):
        outcome = Outcome(ending, reason="so", error=Failure("so") if ending == "failed" else None)
        records = told(caplog, "job_end", {"run": run, "outcome": outcome})
        lines += [f"== job_end: {ending}", *(line for record in records for line in formatted(record))]
    frozen("lines of the log", lines)


def formatted(record: logging.LogRecord) -> list[str]:
    """In every format, with placeholders for the time, the process and how long it took; a traceback as one word."""
    texts = [f"{name}: {FORMATS[name]('worker 1').format(record)}" for name in sorted(FORMATS)]
    return ["    " + steady(text) for text in texts]


def steady(text: str) -> str:
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)
    text = re.sub(r"\b\d\d:\d\d:\d\d\.\d{3}\b", "TIME", text)
    text = re.sub(r'(pid"?[=:])\d+', r"\1PID", text)
    text = re.sub(r'(traceback[=:]|"traceback":)".*?(?<!\\)"(?=[ ,}]|$)', r'\1"TRACEBACK"', text)
    return re.sub(r'(elapsed"?[=:])[\d.]+', r"\1SECONDS", text.replace("\n", " / "))
