"""Jobs in memory that wait for others: the same table as on a server says who is let go, and when, and who is not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from henchman.testing.calls import PlainPush
from henchman.wire.deadlines import deadline_of, is_over
from henchman.wire.payload import decode, encode

__all__ = ["FakeNeeds", "Name", "step_of"]

Name = tuple[str, str]  #: scope and key; "" and a jid; "batch:<id>" and the name of a step
#: ending → what a step is then, as far as others wait for it
_LETTERS: Final = {"done": "s", "failed": "f"}


@dataclass
class _Parked:
    """A job that waits. ``missing``: what for, with what people call it; ``until``: the Unix time at which it waits no
    longer."""

    push: PlainPush
    missing: dict[Name, str]
    until: float | None


class FakeNeeds:
    """Who waits for whom. ``state(name)`` tells of a key: "l" its job has not ended, "d" it is dead, "s", "f", "x" as
    remembered, "" unknown. ``end(push, ending, reason)`` ends a job that never ran, and gives the jobs that this lets
    go; ``dead`` keeps those that came to the dead set so."""

    def __init__(
        self,
        now: Callable[[], float],
        stamped: Callable[[PlainPush], PlainPush],
        state: Callable[[Name], str],
    ) -> None:
        self._now = now
        self._stamped = stamped
        self._state = state
        self.end: Callable[[PlainPush, str, str], list[PlainPush]] = lambda push, ending, reason: []
        self.parked: dict[str, _Parked] = {}
        self._steps: dict[Name, str] = {}

    def clear(self) -> None:
        """Forget everything."""
        self.parked.clear()
        self._steps.clear()

    def admit(self, ask: Mapping[str, Any], jid: str, push: PlainPush) -> tuple[bool, list[PlainPush]]:
        """Whether a job has to wait, and the jobs that are let go by what is known of its needs already."""
        names = {(str(scope), str(name)) for scope, name, _ in ask.get("needs", ())}
        states = {name: self._state_of(name) for name in names}
        missing = {name for name, state in states.items() if state != "s"}
        if not missing:
            return False, []
        labels = {(one[0], one[1]): one[3] for one in decode(push.payload)["hm"]["needs"]}
        limits = [self._now() + ask["wait_at_most"]] if "wait_at_most" in ask else []
        deadline = deadline_of(decode(push.payload))
        until = min(limits if deadline is None else [*limits, deadline], default=None)
        self.parked[jid] = _Parked(push, {name: labels.get(name, name[1]) for name in sorted(missing)}, until)
        found = list[PlainPush]()
        for name in sorted(missing):
            how = {"d": "dead", "f": "over", "x": "over"}.get(states[name])
            found += self._decide(jid, name, how) if how is not None else []
        return True, found

    def _state_of(self, name: Name) -> str:
        return self._steps.get(name, "") if name[0].startswith("batch:") else self._state(name)

    def over(self, name: Name, how: str) -> list[PlainPush]:
        """What has this name ended: "success", "dead" or "over"; the jobs that are let go."""
        waiting = [jid for jid, one in self.parked.items() if name in one.missing]
        found = list[PlainPush]()
        for jid in waiting:
            found += self._met(jid, [name], "") if how == "success" else self._decide(jid, name, how)
        return found

    def step_ended(self, name: Name, ending: str, *, dead: bool) -> list[PlainPush]:
        """A step of a workflow has ended."""
        letter = self._steps[name] = "d" if dead else _LETTERS.get(ending, "x")
        return self.over(name, {"s": "success", "d": "dead"}.get(letter, "over"))

    def expired(self) -> list[PlainPush]:
        """The jobs that are let go because they have waited long enough."""
        now, found = self._now(), list[PlainPush]()
        for jid in [jid for jid, one in self.parked.items() if one.until is not None and one.until <= now]:
            if is_over(decode(self.parked[jid].push.payload), now):
                one = self.parked.pop(jid)
                found += self.end(one.push, "expired", "its deadline passed while it waited for others")
            else:
                found += self._decide(jid, None, "time")
        return found

    def cancel(self, jid: str) -> list[PlainPush]:
        """Somebody cancels a job that waits; the jobs that this lets go."""
        one = self.parked.pop(jid, None)
        return [] if one is None else self.end(one.push, "cancelled", "cancelled")

    def _decide(self, jid: str, name: Name | None, how: str) -> list[PlainPush]:
        """Carry out the policy of a job for what did not succeed; without a name: for all that it waits for."""
        one = self.parked.get(jid)
        if one is None or (name is not None and name not in one.missing):
            return []
        policy = _policy(one.push.payload, how, name)
        names = list(one.missing) if name is None else [name]
        if policy == "run":
            return self._met(jid, names, how)
        if policy == "wait":
            return []
        del self.parked[jid]
        label = one.missing[names[0]]
        words = {"dead": f"{label} is dead", "time": f"it waited too long for {label}"}
        reason = words.get(how, f"{label} is over without success")
        return self.end(one.push, "dead" if policy == "fail" else "cancelled", reason)

    def _met(self, jid: str, names: Iterable[Name], how: str) -> list[PlainPush]:
        """A job waits for these no longer; it goes its way when it waits for nothing else."""
        one = self.parked[jid]
        labels = [one.missing.pop(name) for name in names]
        if how:
            job = decode(one.push.payload)
            job["hm"]["met"] = job["hm"].get("met", {}) | dict.fromkeys(labels, how)
            one.push = one.push._replace(payload=encode(job))
        if one.missing:
            return []
        del self.parked[jid]
        late = one.push.at is not None and one.push.at <= self._now()
        return [self._stamped(one.push._replace(at=None) if late else one.push)]

    def deadlines(self, wanted: Callable[[bytes], bool]) -> list[float]:
        """When each of these jobs waits no longer."""
        return [one.until for one in self.parked.values() if one.until is not None and wanted(one.push.payload)]


def _policy(payload: bytes, how: str, name: Name | None) -> str:
    """What a job does when what it waits for does not succeed: as it says, else wait; where a step is over, cancel."""
    ours = decode(payload)["hm"]
    said = ours.get("on_failed")
    failed = said or ("cancel" if name is not None and name[0].startswith("batch:") else "wait")
    dead = ours.get("on_dead") or said or "wait"
    if how == "time":
        return str(dead if failed == "wait" else failed)
    return str(dead if how == "dead" else failed)


def step_of(payload: Mapping[str, Any]) -> Name | None:
    """Under which name others wait for a step of a workflow; None for any other job."""
    ours = payload.get("hm")
    step, batch = (ours.get("step"), ours.get("batch")) if isinstance(ours, dict) else (None, None)
    return (f"batch:{batch}", step) if isinstance(step, str) and isinstance(batch, str) else None
