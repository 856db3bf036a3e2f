"""The election: which process has a duty that one process at a time has.

A duty is a key with a short life that holds the identity of its leader. One script takes, prolongs and gives up a duty
(``lead.lua``). Three scripts that a leader runs anyway do the same in passing (``due``, ``watch`` and ``cron_look``, by
``lib/lead.lua``): their callers note in ``leads`` what the answer says.
"""

from __future__ import annotations

from henchman.errors import ServerError
from henchman.kernel.events import Events
from henchman.kernel.ids import new_identity
from henchman.store.call import Call, Runner, command, load, script
from henchman.store.keys import Keys

_LEAD = load("lead")

# How long each duty stays with a process that does not prolong it.
STAGING_MS = 2_000  # move due jobs into their queues
LIFELINE_MS = 3_000  # look after the dead; at least: a look that takes long keeps its turn for longer
CRON_MS = 2_000  # enqueue the ticks of crons
AUDITOR_MS = 120_000  # settle what left our hands in batches
RECORDER_MS = 10_000  # write history into SQL, and prune it
PRUNING_S = 60  # take dead processes off Sidekiq's list: no duty, but a turn that nobody prolongs


class Leader:
    """One process's candidacy for one ``duty`` (a key). ``leads``: whether it had the duty when it asked last."""

    def __init__(self, duty: str, lease_ms: int) -> None:
        self.duty = duty
        self.lease_ms = lease_ms
        self.identity = new_identity()
        self.leads = False

    def contend(self, runner: Runner, announced: str = "", text: str = "") -> bool:
        """Take the duty where nobody has it, or prolong it; True when we lead anew: what we know may be old. With
        ``text`` the key ``announced`` holds it from then on, whoever leads."""
        answer = runner.run(lead(self.duty, self.identity, self.lease_ms, announced, text))
        anew = answer == 2 or not self.leads
        self.leads = answer > 0
        return self.leads and anew

    def resign(self, runner: Runner, events: Events, part: str) -> None:
        """Let another process have the duty at once; a server that is away is an event of ``part``."""
        self.leads = False
        try:
            runner.run(lead(self.duty, self.identity, 0))
        except ServerError as error:
            events.failed(part, error)


def lead(duty: str, identity: str, lease_ms: int, announced: str = "", text: str = "") -> Call[int]:
    """2: ``identity`` has the ``duty`` (a key) from now on; 1: it goes on having it; 0: another has it, or, with a
    lease of 0, the identity has given it up."""
    return script(_LEAD, [duty, announced or duty], [identity, lease_ms, text], int, again=True)


def turn_to_prune(keys: Keys) -> Call[bool]:
    """Whether it is our turn to prune dead processes: once a minute for all, Sidekiq's own processes among them."""
    return command("SET", keys.process_cleanup, "1", "NX", "EX", PRUNING_S, decode=bool, again=False)
