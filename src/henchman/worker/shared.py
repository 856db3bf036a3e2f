"""What all capsules of one process share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from henchman.kernel.scoreboard import Scoreboard
from henchman.work.source import Source
from henchman.worker.acker import Acker
from henchman.worker.control import Cancels, Isolation
from henchman.worker.host import Host
from henchman.worker.processor import Intake
from henchman.worker.session import LeaseSession

__all__ = ["Shared"]


class Shared(NamedTuple):
    """One app, one name on the server, one way in and one way out; the slots alone are each capsule's own."""

    host: Host
    flights: LeaseSession
    acker: Acker
    intake: Intake
    cancels: Cancels
    isolation: Isolation
    sources: Mapping[str, Source]  # of the queues that are no plain lists
    board: Scoreboard
