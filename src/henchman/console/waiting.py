"""Pages of what keeps jobs from running: business keys, who holds them and who waits; jobs that wait for others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from henchman.client.runtime import Runtime
from henchman.console.pages import Query, Screen, View
from henchman.console.render import place_of
from henchman.errors import ArgumentError
from henchman.inspector.base import scoped
from henchman.inspector.blocked import BlockedJobs, blocked_slice
from henchman.inspector.keys import key_look, keys_in, scope_states, unlock
from henchman.kernel.text import visible
from henchman.oncall.deeds import Deed, Missing, Unwanted, said_of_one
from henchman.store.call import run
from henchman.store.locks import PHASES

__all__ = ["WaitingPages"]

_SCOPES: Final = 1000  # scopes that are looked at
_SHOWN: Final = {"": "all", "stuck": "stuck alone"}
_HELD: Final = {
    "once": "once",
    "until_success": "until it succeeds",
    "queued": "until it starts",
    "running": "while it runs",
    "followed": "for those that follow",
}


class WaitingPages:
    """The pages and acts of keys and of blocked jobs."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._blocked = BlockedJobs(runtime)
        self.views: Mapping[tuple[str, int], View] = {
            ("keys", 0): self.scopes,
            ("keys", 1): self.scope,
            ("keys", 2): self.key,
            ("blocked", 0): self.blocked,
        }
        force = "Its job may be at work: another one with this key may run beside it then."
        self.deeds: Mapping[tuple[str, str], Deed] = {
            ("keys", "unlock"): Deed(
                "Unlock…", "The next in line has it then. A job that lives keeps it.", self._unlock(force=False), "one"
            ),
            ("keys", "unlock-by-force"): Deed("Unlock by force…", force, self._unlock(force=True), "one"),
            ("blocked", "release"): Deed(
                "Let go…", "It goes as if what it waits for had succeeded.", self._act("release", "goes into its queue")
            ),
            ("blocked", "cancel"): Deed(
                "Cancel…", "It never runs; what waits for it hears of that.", self._act("cancel", "is cancelled")
            ),
            ("blocked", "delete"): Deed("Delete…", "It is gone for good.", self._act("delete", "is deleted")),
        }

    def scopes(self, query: Query) -> Screen:
        """All scopes in which a key was ever held, with how many are."""
        found = run(self._runtime.connections, scope_states(self._runtime.keys, query.search, _SCOPES))
        found = [one for one in found if one.scope]  # "": jobs that are followed by their ids, which have a page each
        ordered = sorted(found, key=lambda one: (-sum(one.held.values()), one.scope))
        shown = ordered[query.first : query.first + query.rows]
        facts = {"scopes": shown, "total": len(found), "phases": _HELD, "most": _SCOPES}
        return Screen("keys.html", facts)

    def scope(self, scope: str, query: Query) -> Screen:
        """The keys of one scope that are held, in no order, for one of the times for which keys are held."""
        by = query.word("by", *PHASES.values())
        page = run(self._runtime.connections, keys_in(self._runtime.keys, scope, by, query.after or 0))
        return Screen("scope.html", {"scope": scope, "page": page, "phases": _HELD})

    def key(self, scope: str, name: str, query: Query) -> Screen:
        """Who has a key, and who waits for it."""
        try:
            asked = scoped(scope, name)
        except ArgumentError as error:
            raise Missing(str(error)) from None
        look = run(self._runtime.connections, key_look(self._runtime.keys, *asked, self._runtime.registry.mask))
        return Screen("key.html", {"scope": scope, "key": name, "look": look, "phases": _HELD})

    def blocked(self, query: Query) -> Screen:
        """Jobs that wait for others: for keys, for jobs that have not succeeded."""
        show = query.word("show", *_SHOWN)
        keys, mask = self._runtime.keys, self._runtime.registry.mask
        some = run(self._runtime.connections, blocked_slice(keys, query.after or 0, mask, stuck=bool(show)))
        roots = Counter(one for job in some.jobs for one in job.waits_for)
        facts = {
            "jobs": some.jobs,
            "more": some.cursor,
            "first": not query.after,
            "looked": some.looked,
            "roots": [(one, many) for one, many in roots.most_common(8) if many > 1],
            "show": show,
            "shows": _SHOWN,
            "place": place_of,
        }
        return Screen("blocked.html", facts)

    # ---- acts

    def _unlock(self, *, force: bool) -> Callable[[str, str], str]:
        def do(scope: str, key: str) -> str:
            keys, mask = self._runtime.keys, self._runtime.registry.mask
            try:
                asked = scoped(scope, key)
                freed = run(self._runtime.connections, unlock(keys, *asked, force=force, mask=mask))
            except ArgumentError as error:
                raise Unwanted(visible(str(error))) from None
            for one in freed:
                self._runtime.events.emit("key_unlocked", scope=one.scope, key=one.key, jid=one.jid, status=one.status)
            if not freed:
                raise Unwanted(f"nobody holds {visible(key)} of {visible(scope)}")
            who = ", ".join(f"job {one.jid}, which was {one.status}" for one in freed)
            return f"{visible(key)} of {visible(scope)} taken from {visible(who)}"

        return do

    def _act(self, method: str, words: str) -> Callable[[str], str]:
        def do(jid: str) -> str:
            return said_of_one(getattr(self._blocked, method)(jid), jid, words, f"{jid} is not blocked any more")

        return do
