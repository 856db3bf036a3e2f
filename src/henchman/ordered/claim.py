"""One claim: some ids of an ordered queue, with their payloads, held under one token by one process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from henchman.client.handle import Handle, Pushed
from henchman.errors import ArgumentError
from henchman.ordered.push import OrderedPush, OrderedPushed
from henchman.store.ordered import ClaimedId, Verdict

__all__ = ["DEATHS", "Claim"]

DEATHS = 3  # of processes that had an id in hand, the last with nothing beside it: a failure of the id

MOST_RECORDS = 500


class Claim:
    """``token`` rises from claim to claim of a queue. ``retry_count``: -1 when its ids have not failed; ``suspect``:
    processes died with it, it runs with nothing beside it. ``refused``: ids that cannot run, and why; ``verdicts``:
    how each id ends, once that is known, and ``endings`` in words, with the error."""

    __slots__ = ("endings", "ids", "refused", "retry_count", "suspect", "token", "verdicts")

    def __init__(self, token: int, ids: list[ClaimedId]) -> None:
        self.token = token
        self.ids = ids
        first = ids[0]  # what failed or crashed before is claimed alone
        self.retry_count = first.retry_count
        self.suspect = first.crashes == DEATHS - 1
        self.refused: dict[bytes, BaseException] = {}
        self.verdicts: list[Verdict] | None = None
        self.endings: dict[bytes, tuple[str, BaseException | None]] | None = None

    @property
    def records(self) -> list[str]:
        """The jids of the records that hear what its handler says: the first 500 of its payloads, where tracked."""
        return [jid.decode() for one in self.ids for jid in one.jids if jid][:MOST_RECORDS]

    def __repr__(self) -> str:
        return f"Claim({self.token}, {len(self.ids)} ids)"

    def all(self, verdict: str, delay: float = 0.0) -> list[Verdict]:
        """Every id ends alike."""
        make, token = Verdict._make, self.token  # half the time of naming each field, and this is the hot path
        return [make((token, one.id, verdict, delay, 0, "")) for one in self.ids]

    def errors(self, result: Any, problem: BaseException | None) -> dict[bytes, BaseException]:
        """The ids that failed, and of what: all when the handler raised, else those for which it answered an exception,
        or something that is none: what is not understood counts as failed, or the payload would be gone.
        """
        found = dict(self.refused)
        answers: Mapping[bytes, BaseException] = {}
        if problem is None:
            try:
                answers = self._read(result)
            except BaseException as error:  # the answer is somebody else's object: it may raise anything when looked at
                problem = error
        for one in self.ids:
            failed = problem or answers.get(one.id)
            if failed is not None:
                found.setdefault(one.id, failed)
        return found

    def _read(self, result: Any) -> dict[bytes, BaseException]:
        """What a handler answered, by id; ArgumentError when it cannot be told for which ids."""
        if result is None or isinstance(result, _NO_ANSWER):
            return {}
        if isinstance(result, BaseException) or (isinstance(result, type) and issubclass(result, BaseException)):
            return dict.fromkeys((one.id for one in self.ids), _ending(result))  # as if it had been raised
        if not isinstance(result, Mapping):
            raise ArgumentError(f"the handler answered {_kind(result)}; {_WAY_OUT}")
        answers = {encoded(name): answer for name, answer in result.items() if answer is not None}
        ids = {one.id for one in self.ids}
        strangers = [name for name in answers if name not in ids]
        named = {encoded(name) for name in result}
        read = {name: _ending(answer) for name, answer in answers.items() if name in ids}
        if strangers:  # one of those that it does not name may be meant
            what = f"the handler answered for {shown(strangers[0])!r}, which is no id of this claim; {_WAY_OUT}"
            read |= {name: ArgumentError(what) for name in ids - named}
        return read


#: what a push returns: a handler that ends with one says nothing of its ids
_NO_ANSWER = (OrderedPush, OrderedPushed, Handle, Pushed)
_WAY_OUT = "it may return nothing, or a dict of exceptions by id, without those that succeeded"


def _kind(answer: Any) -> str:
    """What kind of thing an answer is; not its text, which may be anything."""
    return f"an object of type {type(answer).__name__}"


def _ending(answer: Any) -> BaseException:
    """An answer for one id as an exception; a class of them (``Kill``) as one of its kind."""
    if isinstance(answer, BaseException):
        return answer
    if not (isinstance(answer, type) and issubclass(answer, BaseException)):
        return ArgumentError(f"the handler answered {_kind(answer)} for this id; {_WAY_OUT}")
    try:
        return answer()
    except Exception as error:
        return ArgumentError(f"the handler answered the class {answer.__name__} for this id, not one of them: {error}")


def encoded(name: Any) -> bytes:
    """An id as it is stored; the reverse of ``shown``."""
    return str(name).encode("utf-8", "surrogateescape")


def shown(name: bytes) -> str:
    """An id as handlers and people get it; one that is no UTF-8 keeps its bytes."""
    return name.decode("utf-8", "surrogateescape")
