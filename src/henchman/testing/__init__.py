"""Helpers for users' tests: jobs run inline, collected, or by a real worker on a private server.

Imported by name (``from henchman import testing``), never by Henchman itself.
"""

from henchman.testing.calls import NotFaked
from henchman.testing.fake import FakeJobs, Inline, fake, inline
from henchman.testing.install import Clock, NoFixture
from henchman.testing.perform import Drained, Ran
from henchman.testing.pushed import Collected, CollectedPush
from henchman.testing.real import Worker, worker

__all__ = [
    "Clock",
    "Collected",
    "CollectedPush",
    "Drained",
    "FakeJobs",
    "Inline",
    "NoFixture",
    "NotFaked",
    "Ran",
    "Worker",
    "fake",
    "inline",
    "worker",
]
