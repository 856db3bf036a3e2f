"""What was measured: for people a page of Markdown, for programs a JSON document. Both have medians and spreads."""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from henchman.bench.server import Raw

__all__ = ["Figure", "Report", "percentile"]

_LIBRARIES = ("henchman", "redis", "hiredis", "msgspec")


def percentile(values: Sequence[float], share: float) -> float:
    """The least of the values that a ``share`` (0.99) of them, itself counted, do not exceed. Of fewer than 100 values
    the 0.99 is the largest."""
    ordered = sorted(values)
    return ordered[max(math.ceil(len(ordered) * share - 1e-9) - 1, 0)]


@dataclass
class Figure:
    """One figure: a value for each run. ``most`` and ``least``: the bar, 0 without one."""

    section: str
    what: str
    unit: str
    most: float
    least: float
    values: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The middle value."""
        return statistics.median(self.values)

    @property
    def met(self) -> bool:
        """Whether the median keeps to the bar."""
        return (not self.most or self.median <= self.most) and (not self.least or self.median >= self.least)

    @property
    def bar(self) -> str:
        """The bar in words."""
        return f"≤ {self.most:g}" if self.most else f"≥ {self.least:,g}" if self.least else ""

    def as_document(self) -> dict[str, Any]:
        """The figure for programs."""
        found = {"section": self.section, "what": self.what, "unit": self.unit, "median": round(self.median, 6)}
        spread = {"low": round(min(self.values), 6), "high": round(max(self.values), 6)}
        bar = {"bar": self.bar, "met": self.met} if self.bar else {}
        return {**found, **spread, "values": [round(one, 6) for one in self.values], **bar}


class Report:
    """Figures in the order in which they came. ``add`` may be called for each of several runs."""

    def __init__(self, name: str, raw: Raw, server: str = "", *, live: bool = True) -> None:
        self.name, self.machine, self.live = name, machine(raw, server), live
        self.figures: dict[str, Figure] = {}
        self.notes: dict[str, Any] = {}
        self.section = ""
        if live:
            print(", ".join(f"{key} {value}" for key, value in self.machine.items()), flush=True)

    def add(self, key: str, what: str, value: float, unit: str = "", *, most: float = 0.0, least: float = 0.0) -> None:
        """One value of one figure, with the bar that it must not pass (``most``) or must reach (``least``)."""
        figure = self.figures.setdefault(key, Figure(self.section, what, unit, most, least))
        figure.values.append(value)
        if self.live:
            verdict = "" if not figure.bar else "ok" if figure.met else "MISSED"
            print(f"  {what:<58} {number(value):>12} {unit:<7} {figure.bar:<10} {verdict}".rstrip(), flush=True)

    def note(self, key: str, value: Any) -> None:
        """A fact that belongs to the result and is no figure: settings, counts by name."""
        self.notes[key] = value

    def missed(self) -> list[str]:
        """The figures whose median misses its bar."""
        return [key for key, figure in self.figures.items() if not figure.met]

    def document(self) -> dict[str, Any]:
        """Everything, for programs."""
        figures = {key: figure.as_document() for key, figure in self.figures.items()}
        notes = {"notes": self.notes} if self.notes else {}
        return {"bench": self.name, "machine": self.machine, "figures": figures, "missed": self.missed(), **notes}

    def markdown(self, *, bars: bool = False) -> str:
        """Everything, for people. ``bars``: with what the figure should be."""
        lines = [f"# {self.name}", "", *(f"- {key}: {value}" for key, value in self.machine.items())]
        for section in dict.fromkeys(figure.section for figure in self.figures.values()):
            lines += ["", *([f"## {section}", ""] if section else [])]
            lines += self._table([one for one in self.figures.values() if one.section == section], bars)
        for key, value in self.notes.items():
            lines += ["", f"**{key}**", "", *_said(value)]
        return "\n".join(lines) + "\n"

    def _table(self, figures: list[Figure], bars: bool) -> Iterator[str]:
        titles = ["", "median", "lowest to highest", "unit", *(["bar", ""] if bars else [])]
        yield f"| {' | '.join(titles)} |"
        yield f"|---|---:|---:|---|{'---|---|' if bars else ''}"
        for one in figures:
            values = one.values
            spread = f"{number(min(values))} to {number(max(values))}" if len(values) > 1 else "one run"
            verdict = [one.bar, "" if not one.bar else "ok" if one.met else "missed"] if bars else []
            yield f"| {' | '.join([one.what, number(one.median), spread, one.unit, *verdict])} |"

    def finish(self, *, as_json: bool, check: bool) -> int:
        """Print the JSON line when it is asked for; the exit status: 1 with ``check`` when a bar was missed."""
        if as_json:
            print(json.dumps(self.document()))
        return 1 if check and self.missed() else 0


def _said(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [f"- {key}: {one}" for key, one in value.items()]
    return [str(value)]


def number(value: float) -> str:
    """A figure with as many digits as say something."""
    size = abs(value)
    digits = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 10 else 3
    return f"{value:,.{digits}f}"


def machine(raw: Raw, server: str) -> dict[str, Any]:
    """What the figures depend on: processor, load, versions, server."""
    facts = raw.info("server")
    name = "Valkey" if "valkey_version" in facts else "Redis"
    return {
        "processor": f"{os.cpu_count()} × {_processor()}",
        "load": f"{os.getloadavg()[0]:.2f} (average of the last minute, at the start)",
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "server": f"{name} {facts.get('valkey_version') or facts['redis_version']}" + (f", {server}" if server else ""),
        "libraries": ", ".join(f"{one} {version(one)}" for one in _LIBRARIES),
    }


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text(errors="replace").splitlines() if sys.platform == "linux" and path.exists() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()
