"""Where iterable jobs stand, kept in memory: as much of a server as they need to go on where they were."""

from __future__ import annotations

from typing import Any

from henchman.errors import PayloadError
from henchman.store.call import Call
from henchman.store.jobs import LATE
from henchman.store.keys import Keys
from henchman.testing.pushes import arguments
from henchman.wire.payload import decode
from henchman.work.effects import effects

__all__ = ["Iterations"]


class Iterations:
    """The states of iterable jobs by their key."""

    def __init__(self) -> None:
        self._states: dict[str, dict[bytes, bytes]] = {}

    def knows(self, call: Call[Any], keys: Keys) -> bool:
        """Whether ``call`` is about such a state."""
        if call.script is not None:
            return call.name == "iterate"
        command, *rest = call.parts[0]
        mine = bool(rest) and str(rest[0]).startswith(keys.iteration(""))
        return mine and len(call.parts) == 1 and command == "HGETALL"

    def answer(self, call: Call[Any]) -> Any:
        """What a server would answer."""
        if call.script is None:
            return [text for pair in self._states.get(str(call.parts[0][1]), {}).items() for text in pair]
        keys, (executions, cursor, run_time, _) = arguments(call)
        state = self._states.setdefault(str(keys[0]), {})
        if int(state.get(b"ex", 0)) > int(executions):
            return LATE
        said = {b"ex": executions, b"c": cursor, b"rt": run_time}
        state |= {name: one if isinstance(one, bytes) else str(one).encode() for name, one in said.items()}
        return int(b"cancelled" in state)

    def cancel(self, call: Call[Any]) -> None:
        """What ``cancel.lua`` notes for a job that may be an iterable one."""
        keys, (*_, is_job) = arguments(call)
        for key in keys[3:] if is_job else ():
            self._states.setdefault(str(key), {}).setdefault(b"cancelled", b"1")
            self._states[str(key)].setdefault(b"c", b"null")

    def settle(self, keys: Keys, payload: bytes, ending: str) -> None:
        """A job ended: forget where it stood, if a server would."""
        try:
            job = decode(payload)
        except PayloadError:
            return
        for kind, *told in effects(keys, job | {"hm": {"iterable": True}}, ending):  # only these are kept here
            if kind == "uniterate":
                self._states.pop(told[0], None)

    def clear(self) -> None:
        """Forget them."""
        self._states.clear()
