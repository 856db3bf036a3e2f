"""Business keys in memory: the same table as on a server says which push is a duplicate, and when a key is given back.

One unit runs at a time, so a key that is held while its job runs (``unique="running"``) keeps nobody out here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from henchman.client.needs import FOLLOW_FOR
from henchman.errors import PayloadError
from henchman.store.call import Arg
from henchman.testing.calls import PlainPush, as_bytes, as_text, due_at
from henchman.testing.needs import FakeNeeds, Name, step_of
from henchman.wire.payload import decode

__all__ = ["FakeKeys", "Replace"]

_DEAD: Final = frozenset({"dead", "kept", "invalid", "poisoned"})
_OVER: Final = frozenset({"gone", "discarded", "expired", "cancelled", "deleted"})
#: phase → the endings that give the key back
_FREES: Final = {
    **dict.fromkeys("of", {"done", "failed"} | _OVER),
    "u": {"done", "failed"} | _DEAD | _OVER,
    "w": {"done", "failed"} | _DEAD | _OVER,
}
Replace = Callable[[str, PlainPush], bool]


class FakeKeys:
    """Who has which key. ``replace(jid, push)``: put a push in the place of the scheduled job ``jid``, if it waits."""

    def __init__(self, app: Any, now: Callable[[], float], replace: Replace) -> None:
        self._app = app
        self._now = now
        self._replace = replace
        self.needs = FakeNeeds(now, self.stamped, self._state)
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.needs.clear()
        self._dead: dict[Name, str] = {}  # the jid of the dead job that has this key
        self._locks: dict[tuple[str, Name], tuple[str, str]] = {}  # phase and name → jid and mark of its arguments
        self._remembered: dict[Name, tuple[str, str, float]] = {}  # letter, jid, until when
        self._throttled: dict[Name, tuple[str, float]] = {}
        self._bursts: dict[Name, tuple[float, str]] = {}  # when it began, jid
        self._latest: dict[str, bytes] = {}
        self._waiting: dict[Name, list[tuple[str, str, PlainPush]]] = {}  # jid, mark, push

    def push(self, _: Arg, __: Arg, queue: Arg, ask: Arg, *rows: Arg) -> tuple[bytes, list[PlainPush]]:
        """The answer to ``keyed_push``, and what it pushes."""
        asked, answers, pushed = msgspec.json.decode(as_bytes(ask)), list[str](), list[PlainPush]()
        for i in range(0, len(rows), 6):
            jid, due, payload, mark, key, needs = rows[i : i + 6]
            push = PlainPush(as_text(queue), as_bytes(payload), due_at(due, self._now()))
            this = {**asked, "key": as_text(key), "mark": as_text(mark)}
            this |= {"needs": msgspec.json.decode(as_bytes(needs))} if needs else {}
            answer, now_pushed = self.admitted(this, as_text(jid), push)
            answers.append(answer)
            pushed += now_pushed
            if asked["conflict"] == "raise" and answer[0] in "DR":
                break
        return "\n".join(answers).encode(), pushed

    def admitted(self, ask: Mapping[str, Any], jid: str, push: PlainPush) -> tuple[str, list[PlainPush]]:
        """The answer to a job, and what is pushed: the job, and whatever its push lets go."""
        answer = self._admit(ask, jid, push)
        if answer != "C":
            return answer, []
        if "debounce" in ask:
            return answer, [self._first_of_burst(ask, push)]
        waits, let_go = self.needs.admit(ask, jid, push)
        return ("B -", let_go) if waits else ("C", [self.stamped(push)])

    def _state(self, name: Name) -> str:
        """What is known of the job of a key, as one that waits for it sees it."""
        if any((phase, name) in self._locks for phase in "of"):
            return "d" if name in self._dead else "l"
        letter, _, until = self._remembered.get(name, ("", "", 0.0))
        return letter if until > self._now() else ""

    def stamped(self, push: PlainPush) -> PlainPush:
        """A push that enters its queue now, with the time of that."""
        if push.at is not None or b'"enqueued_at"' in push.payload:
            return push
        text = b',"enqueued_at":%b}' % self._app.stamp(self._now())
        return push._replace(payload=push.payload[:-1] + text)

    def _first_of_burst(self, ask: Mapping[str, Any], push: PlainPush) -> PlainPush:
        return push._replace(at=self._now() + ask["debounce"])

    def _admit(self, ask: Mapping[str, Any], jid: str, push: PlainPush) -> str:
        """What ``lib/admit.lua`` answers to a job, but for its needs. Only after "C" it is to be pushed."""
        name, now = (ask["scope"], ask["key"]), self._now()
        if "debounce" in ask:
            return self._debounced(ask, name, jid, push)
        phase = next((one for one in ask["phases"] if one in "ofuw"), "")
        stopped = "" if ask.get("again") else self._stopped(ask, name, phase, jid, push)
        if stopped:
            return stopped
        if phase:
            self._locks[phase, name] = jid, ask["mark"]
            self._dead.pop(name, None)
        if "throttle" in ask:
            self._throttled[name] = jid, now + ask["throttle"] / 1000
        return "C"

    def _stopped(self, ask: Mapping[str, Any], name: Name, phase: str, jid: str, push: PlainPush) -> str:
        now = self._now()
        if "throttle" in ask and name in self._throttled and self._throttled[name][1] > now:
            return f"D {self._throttled[name][0]} 0"
        if phase != "f" and (phase, name) in self._locks:
            holder, mark = self._locks[phase, name]
            if ask["conflict"] == "replace":
                self._latest[holder] = _under(push.payload, jid, holder)
                return f"P {holder}"
            if ask["conflict"] == "wait":
                self._waiting.setdefault(name, []).append((jid, ask["mark"], push))
                return f"B {holder}"
            return f"D {holder} {int(mark != ask['mark'])}"
        if phase == "o" and name in self._remembered and self._remembered[name][2] > now:
            letter, first, _ = self._remembered[name]
            return f"R {first} 0 {letter}"
        return ""

    def _debounced(self, ask: Mapping[str, Any], name: Name, jid: str, push: PlainPush) -> str:
        now = self._now()
        first, before = self._bursts.get(name, (now, ""))
        due = min(now + ask["debounce"], first + ask["most"])
        later = push._replace(payload=_under(push.payload, jid, before), at=due)
        if before and not ask.get("again") and self._replace(before, later):
            return f"P {before}"
        self._bursts[name] = now, jid
        return "C"

    def started(self, payload: bytes) -> bytes:
        """A job leaves its queue: its "queued" key is free, and it runs with the newest arguments."""
        jid, name, phases, _ = _key_of(payload)
        if "w" in phases:
            self._free("w", name, jid)
        return self._latest.get(jid, payload)

    def settle(self, payload: bytes, ending: str) -> list[PlainPush]:
        """A job ended, or goes on later; the jobs that waited for its key."""
        jid, name, phases, once_for = _key_of(payload)
        let_go = self._follow(payload, ending)
        freed = [phase for phase in phases if ending in _FREES.get(phase, ()) and self._free(phase, name, jid)]
        if "o" in freed or "f" in freed:
            letter = {"done": "s", "failed": "f"}.get(ending, "" if name[0] else "x")
            if letter:
                self._remembered[name] = letter, jid, self._now() + once_for
            let_go += self.needs.over(name, "success" if ending == "done" else "over")
        elif ending in _DEAD and any(self._locks.get((one, name), ("",))[0] == jid for one in "of"):
            self._dead[name] = jid
            let_go += self.needs.over(name, "dead")
        if ending in _DEAD | _OVER | {"done", "failed"}:
            self._latest.pop(jid, None)
        waiting = self._waiting.get(name) if "u" in freed else None
        if not waiting:
            return let_go
        following, mark, push = waiting.pop(0)
        self._locks["u", name] = following, mark
        return [*let_go, self.stamped(push)]

    def _follow(self, payload: bytes, ending: str) -> list[PlainPush]:
        """The jobs that the end of a step of a workflow lets go."""
        name = step_of(decode(payload)) if b'"step"' in payload else None
        if name is None or ending not in _DEAD | _OVER | {"done", "failed"}:
            return []
        return self.needs.step_ended(name, ending, dead=ending in _DEAD)

    def _free(self, phase: str, name: Name, jid: str) -> bool:
        """Give a key back, if it is this job's."""
        if self._locks.get((phase, name), ("", ""))[0] != jid:
            return False
        del self._locks[phase, name]
        return True


def _under(payload: bytes, jid: str, other: str) -> bytes:
    return payload.replace(b'"jid":"%b"' % jid.encode(), b'"jid":"%b"' % other.encode(), 1)


def _key_of(payload: bytes) -> tuple[str, Name, str, float]:
    """The jid, the scope and key, the phases, and how long they are remembered; empty where there is no key."""
    try:
        job = decode(payload)
    except PayloadError:
        return "", ("", ""), "", 0.0
    ours = job.get("hm")
    key: Sequence[Any] = ours.get("key") or () if isinstance(ours, dict) else ()
    if len(key) != 3 or not isinstance(ours, dict):
        return str(job.get("jid")), ("", ""), "", 0.0
    return str(job.get("jid")), (str(key[0]), str(key[1])), str(key[2]), float(ours.get("once_for") or FOLLOW_FOR)
