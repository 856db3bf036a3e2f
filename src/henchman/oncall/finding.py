"""One thing that is wrong, and the command that mends it."""

from __future__ import annotations

import shlex
from typing import Final, Literal, NamedTuple

from henchman.kernel.digests import sha256

__all__ = ["COMMANDS", "Finding", "Severity"]

Severity = Literal["critical", "warning"]

COMMANDS: Final = {  # by kind, else by page
    "no worker": "henchman work pkg.mod:app",
    "nobody serves it": "henchman work -q {name} pkg.mod:app",
    "behind": "henchman work -q {name} pkg.mod:app",
    "paused": "henchman queues unpause {name}",
    "paused batch": "henchman batch unpause {name}",
    "paused class": "henchman pauses unpause {name}",
    "paused tag": "henchman pauses unpause {name}",
    "lost process": "henchman processes",
    "late": "henchman doctor",
    "long run": "henchman job {name}",
    "many die": "henchman dead list",
    "slow server": "henchman doctor",
    "morgue": "henchman ordered show {name} --dead",
    "history": "henchman history status",
    "poison pill": "henchman dead list",
    "blocked": "henchman blocked --stuck",
    "limit": "henchman limits show {name}",
    "limit room": "henchman limits show {name}",
    "batch": "henchman batches",
    "ordered id": "henchman ordered show {name}",
    "grows": "henchman work -q {name} pkg.mod:app",
    "retry storm": "henchman retries list",
    "missed cron": "henchman cron run {name}",
    "versions": "henchman processes",
    "old code": "henchman processes",
    "host clock": "henchman processes",
    "error": "henchman errors {name}",
    "queue": "henchman queues",
    "system": "henchman doctor",
}


class Finding(NamedTuple):
    """One thing that is wrong: what, in a sentence; what it rests on; where to go (page, name, and what its list is
    narrowed to); what to do there. ``act``: the act that mends it, where there is one: page, names and verb."""

    severity: Severity
    kind: str
    text: str
    evidence: str
    page: str
    name: str = ""
    advice: str = ""
    filters: tuple[tuple[str, str], ...] = ()
    act: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """The same at every look for the same trouble of one thing; a warning that becomes critical has another."""
        same = [self.severity, self.kind, self.page, self.name, *map("=".join, self.filters)]
        digest: str = sha256("\n".join(same).encode("utf-8", "replace")).hexdigest()
        return digest[:12]

    @property
    def command(self) -> str:
        """The command that mends it, or shows what does."""
        said = COMMANDS.get(self.kind) or COMMANDS.get(self.page, "henchman top")
        return said.format(name=shlex.quote(self.name)) if self.name or "{name}" not in said else "henchman top"
