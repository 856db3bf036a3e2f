"""Acts on all that a search of retries, scheduled or dead jobs finds: counted first, then done in pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from henchman.client.runtime import Runtime
from henchman.console.deeds import Deed, Unwanted
from henchman.console.pages import View
from henchman.inspector.base import Entry
from henchman.inspector.errors import COUNTED, MOST
from henchman.inspector.sets import JobSet, SetName
from henchman.kernel.text import count, shorten, visible

__all__ = ["BulkActs", "moment_of"]

_SAMPLES: Final = 3
_WORDS: Final[Mapping[SetName, tuple[str, str]]] = {
    "retries": ("retry", "retries"),
    "scheduled": ("scheduled job", ""),
    "dead": ("dead job", ""),
}
_SINCE: Final[Mapping[SetName, tuple[str, ...]]] = {
    "retries": ("retried_at", "failed_at"),
    "scheduled": ("created_at",),
    "dead": (),
}
_VERBS: Final = {
    "retry": ("Run all now…", "go into their queues now.", "put into their queues"),
    "kill": ("Kill all…", "go to the dead.", "killed"),
    "delete": ("Delete all…", "are deleted. They are gone for good.", "deleted"),
}
_OF: Final[Mapping[SetName, tuple[str, ...]]] = {
    "retries": ("retry", "kill", "delete"),
    "scheduled": ("retry", "delete"),
    "dead": ("retry", "delete"),
}


def moment_of(text: str) -> float:
    """The moment of the page on which an act was wished; Unwanted where that is none."""
    if not (text.isascii() and text.isdigit() and len(text) < 12):
        raise Unwanted("the address says no moment: begin at the page where the act is offered")
    return float(text) + 1  # it is in whole seconds


class BulkActs:
    """The acts of one app: ``page/<text>/<moment>/do/<verb>-found``. What came after the moment is left alone."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @property
    def views(self) -> Mapping[tuple[str, int], View]:
        """None: they stand on the pages of the sets."""
        return {}

    @property
    def deeds(self) -> Mapping[tuple[str, str], Deed]:
        """The acts, by page and verb."""
        return {(which, f"{verb}-found"): self._deed(which, verb) for which, verbs in _OF.items() for verb in verbs}

    def _deed(self, which: SetName, verb: str) -> Deed:
        title, will, done = _VERBS[verb]

        def plan(text: str, moment: str = "") -> str:
            found = list(islice(self._found(which, text, moment), COUNTED))
            if not found:
                raise Unwanted(f"no {_WORDS[which][0]} holds {visible(text)!r} any more")
            some = "; ".join(shorten(one.call_text(60), 60) for one in found[:_SAMPLES])
            many = count(len(found), *_WORDS[which]) + (" or more" if len(found) == COUNTED else "")
            most = f" At most {MOST:,} at once." if len(found) > MOST else ""
            return visible(f"{many} with {text!r} in it, as of the page before, {will}{most} Among them: {some}")

        def do(text: str, moment: str = "") -> str:
            found = islice(self._found(which, text, moment), MOST)
            acted = getattr(JobSet(self._runtime, which), verb)(list(found))
            if not acted.done and not acted.stayed:
                raise Unwanted(f"no {_WORDS[which][0]} holds {visible(text)!r} any more")
            gone = f"; {acted.gone:,} had gone already" if acted.gone else ""
            stayed = f"; {acted.stayed:,} stayed: {acted.reasons[0]}" if acted.stayed else ""
            return visible(f"{count(acted.done, *_WORDS[which])} with {text!r} in it {done}{gone}{stayed}")

        return Deed(title, "", do, "", plan)

    def _found(self, which: SetName, text: str, moment: str) -> Iterator[Entry]:
        """What a search finds and was there at the moment."""
        until = moment_of(moment)
        for one in JobSet(self._runtime, which).matching(text):
            times = [at for name in _SINCE[which] if (at := one.time(name)) is not None]
            if (times[0] if times else (one.score or 0.0) if which == "dead" else 0.0) <= until:
                yield one
