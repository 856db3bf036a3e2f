"""Pages of limits: how large each is and how much of it is taken; who has its places, who waits; another size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from henchman.client.runtime import Runtime
from henchman.console.pages import Query, Screen, View
from henchman.errors import ArgumentError
from henchman.inspector.limits import LimitPage, Limits, LimitState, limit_page, some_limits
from henchman.kernel.text import shorten, visible
from henchman.oncall.deeds import Deed, Missing, Order, Unfit, Unwanted
from henchman.store.call import run

__all__ = ["LimitPages"]

_ROWS: Final = 25


class LimitPages:
    """The pages and acts of limits."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._limits = Limits(runtime)
        self.views: Mapping[tuple[str, int], View] = {
            ("limits", 0): self.limits,
            ("limits", 1): self.limit,
            ("limits", 2): self.part,
        }
        question = "Who waits goes on as far as there is room; who runs goes on to its end. It holds for all workers."
        self.deeds: Mapping[tuple[str, str], Deed] = {
            ("limits", "change"): Deed("Change…", question, None, "one", begin=self._change, form=self._form),
            ("limits", "reset"): Deed("As the code says…", question, self._reset, "one"),
        }

    def limits(self, query: Query) -> Screen:
        """Every limit that was ever used, by name."""
        query.unless_said(_ROWS)
        found, total = run(
            self._runtime.connections, some_limits(self._runtime.keys, query.search, query.first, query.rows)
        )
        return Screen("limits.html", {"limits": found, "total": total})

    def limit(self, name: str, query: Query) -> Screen:
        """One limit: whose places are taken, or who has them where all share them."""
        return self.part(name, "", query)

    def part(self, name: str, by: str, query: Query) -> Screen:
        """Of one value of ``by`` who has a place and who waits."""
        look, first = self._look(name, by, query.after or 0), query.first
        facts = {"name": name, "by": by, "look": look, "shown": look.parts[first : first + query.rows]}
        return Screen("limit.html", facts | {"total": len(look.parts)})

    def _look(self, name: str, by: str = "", cursor: int = 0) -> LimitPage:
        keys, mask = self._runtime.keys, self._runtime.registry.mask
        found: LimitPage | None = run(self._runtime.connections, limit_page(keys, name, by, cursor, mask))
        if found is None:
            raise Missing(f"there is no limit {visible(shorten(name, 80))}: one stands here from its first use on")
        return found

    # ---- acts

    def _known(self, name: str) -> LimitPage:
        """The limit that is acted on; Unwanted: there is none."""
        try:
            return self._look(name)
        except Missing as error:
            raise Unwanted(str(error)) from None

    def _form(self, name: str, form: Mapping[str, str], problem: str) -> Screen:
        """The form of another size; ``form``: what somebody has written into it, and ``problem`` what is wrong."""
        look = self._known(name)
        return Screen("limit_change.html", {"name": name, "look": look, "new": form, "problem": problem})

    def _change(self, order: Order, name: str) -> tuple[str, str]:
        before = self._known(name).state
        n, per = order.form.get("n", "").strip(), order.form.get("per", "").strip()
        if not (n.isascii() and n.isdigit() and len(n) < 10):
            raise Unfit(f"n={visible(n)[:40]!r}: give a whole number")
        try:
            seconds = float(per) if per and not before.has_places else None
        except ValueError:
            raise Unfit(f"per={visible(per)[:40]!r}: give seconds") from None
        return "", self._set(before, int(n), seconds)

    def _reset(self, name: str) -> str:
        state = self._known(name).state
        if not state.by_hand:
            raise Unwanted(f"{name} is {state.size}, as the code says")
        return self._set(state, state.code_n, None if state.has_places else state.code_per)

    def _set(self, before: LimitState, n: int, per: float | None) -> str:
        try:
            return self._limits.set(before.name, n, per=per).text
        except ArgumentError as error:
            raise Unfit(visible(str(error))) from None
