"""Every public name, with what it takes and gives back."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator

import pytest

from frozen.conftest import Frozen
from frozen.signatures import lines_of

#: what people import
IMPORTED = (
    "henchman",
    "henchman.errors",
    "henchman.iterators",
    "henchman.testing",
    "henchman.web.api",
    "henchman.web.wsgi",
)
#: what they are given, never importing it; where it stands may change
GIVEN = {
    "henchman.client.push": ("Handle", "Pushed"),
    "henchman.client.job": ("Job", "AsyncJob", "Using", "BoundCall"),
    "henchman.client.options": ("JobOptions", "PushOptions"),
    "henchman.config": ("Setting",),
    "henchman.history.reading": ("History",),
    "henchman.history.records": ("Search",),
    "henchman.inspector.base": ("Entry",),
    "henchman.inspector.blocked": ("BlockedJob", "BlockedJobs", "Blocker"),
    "henchman.inspector.jobs": ("JobStatus",),
    "henchman.inspector.metrics": ("Deploy", "Metrics", "ClassMetrics", "Point", "Stats"),
    "henchman.inspector.ordered": ("OrderedQueue", "OrderedQueues"),
    "henchman.inspector.ordered_id": ("Holder", "OrderedId", "OrderedPayload", "OrderedStats"),
    "henchman.inspector.processes": ("ProcessState", "Processes", "Running", "Work"),
    "henchman.inspector.queues": ("Queue", "QueueState", "Queues"),
    "henchman.inspector.sets": ("Acted", "JobSet"),
    "henchman.kernel.middleware": ("Chain",),
    "henchman.ordered.claim": ("Claim",),
    "henchman.ordered.definition": ("OrderedJob", "OrderedOptions", "DerivingJob"),
    "henchman.ordered.push": ("OrderedPushed",),
    "henchman.testing.plugin": ("Bench",),
    "henchman.worker.launcher": ("Embedded",),
    "henchman.batch.auditor": ("Audited",),
    "henchman.batch.batch": ("Batch", "BatchStatus", "Reason"),
    "henchman.contrib.sqlalchemy": ("bind",),
    "henchman.batch.results": ("BatchResult",),
    "henchman.batch.workflow": ("Workflow", "JobChain", "JobGroup"),
    "henchman.work.steps": ("Step", "StepResults"),
    "henchman.cron.registry": ("CronRegistry", "CronState", "Past"),
}
#: what an app has for our own parts: it must not begin with an underscore, and nobody else calls it
INNER = re.compile(
    r"\bApp\.(batch_of|client|clock|companions|deferred_status|notice|open_history|placement|registry|sources|stamp|stand_ins)\b"
)


@pytest.mark.parametrize("module", IMPORTED)
def test_names_that_people_import(module: str, frozen: Frozen) -> None:
    frozen(f"signatures {module}", public(module, tuple(sorted(importlib.import_module(module).__all__))))


def test_what_people_are_given(frozen: Frozen) -> None:
    lines = [line for module, names in GIVEN.items() for line in public(module, names, made=False)]
    frozen("signatures of what is given", lines)


def public(module: str, names: tuple[str, ...], *, made: bool = True) -> Iterator[str]:
    home = importlib.import_module(module)
    for name in names:
        yield from (line for line in lines_of(name, getattr(home, name), made=made) if not INNER.search(line))
