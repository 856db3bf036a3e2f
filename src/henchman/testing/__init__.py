"""Helpers for users' tests: jobs run inline, collected, or by a real worker on a private server.

Imported by name (``from henchman import testing``), never by Henchman itself.
"""

from henchman.testing.clock import Clock
from henchman.testing.collected import Collected
from henchman.testing.fake import FakeJobs, fake
from henchman.testing.inline import Inline, inline
from henchman.testing.ordered_looks import CollectedPush
from henchman.testing.perform import Drained, Ran
from henchman.testing.pushes import NotFaked
from henchman.testing.real import Worker, worker

__all__ = [
    "Clock",
    "Collected",
    "CollectedPush",
    "Drained",
    "FakeJobs",
    "Inline",
    "NotFaked",
    "Ran",
    "Worker",
    "fake",
    "inline",
    "worker",
]
