"""Steps of a workflow, and what they returned: read by the steps that take their results, before these begin.

A result is kept with the batch as the JSON text that the step's worker wrote. It is rebuilt when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Generic, Protocol, TypeVar, overload

import msgspec

from henchman.errors import ArgumentError, JobFailed, ResultError
from henchman.kernel.text import as_shown, did_you_mean
from henchman.store import batches
from henchman.store.call import Procedure
from henchman.wire import arguments, jsontext

__all__ = ["NO_RESULTS", "KeptResult", "Step", "StepResults", "ended_status", "plain_json", "step_of", "taken"]
__all__ += ["taken_by"]

R = TypeVar("R", covariant=True)

_ENDED_OTHERWISE: Final = frozenset({"failed", "error", "cancelled", "expired"})
#: how a step ended, by the letter that its workflow keeps; "over": without success, and it was not told how
_LETTERS: Final = {"s": "finished", "f": "failed", "x": "over", "d": "error"}
_PAGE: Final = 50  # results of one call, up to 64 KB each


class Step(Generic[R]):
    """A step of a workflow, as ``flow.add`` gives it: what other steps wait for. R is what its job returns.

    ``name``: unique in its workflow; ``jid``: the id of its job; ``job``: the name of that; ``workflow``: the id.
    """

    __slots__ = ("function", "jid", "job", "name", "workflow")

    def __init__(self, name: str, jid: str, job: str, workflow: str, function: Any = None) -> None:
        self.name = name
        self.jid = jid
        self.job = job
        self.workflow = workflow
        self.function = function

    def __repr__(self) -> str:
        return f"<step {self.name} of workflow {self.workflow}>"


class KeptResult(Generic[R]):
    """What a batch keeps of a job that has ended. ``status``: as the batch counts it, "unknown" when nothing is known.
    ``json``: what the job returned, as JSON text; None when there is no result. ``message``, ``error_class``: why not.
    """

    __slots__ = ("_function", "error_class", "jid", "job", "json", "message", "status")

    def __init__(self, job: str, jid: str, text: bytes, function: Any = None) -> None:
        mark, rest = text[:1], text[1:]
        facts: Mapping[str, str] = jsontext.loads(rest) if mark == b"!" else {}
        self.job = job
        self.jid = jid
        self.json = rest if mark == b"=" else None
        self.status = "finished" if mark == b"=" else facts.get("status") or rest.decode() or "unknown"
        self.message = facts.get("message", "")
        self.error_class = facts.get("error_class", "")
        self._function = function

    @property
    def _place(self) -> str:
        """Which job it is, in words."""
        return f"job {self.jid}"

    @property
    def ok(self) -> bool:
        """Whether there is a ``value``."""
        return self.json is not None

    @property
    def value(self) -> R:
        """What the job returned, as its return annotation says; plain JSON where this app does not know the job.

        Raises JobFailed when the job ended otherwise; ResultError when it has not ended, when it finished and its
        result could not be kept, and when the result does not fit the annotation (any more).
        """
        if self.json is None:
            if self.status in _ENDED_OTHERWISE:
                raise JobFailed(self.jid, self.status, error_class=self.error_class, message=self.message)
            why = self.message or (
                "how it ended is not known" if self.status == "unknown" else f"it has not ended: it is {self.status}"
            )
            raise ResultError(f"{self._place} has no result: {why}")
        try:
            value: R = arguments.from_json(self._function, plain_json(self.json))
        except ValueError as error:
            raise ResultError(f"{self._place} has finished, but its result is of another kind: {error}") from None
        return value


class _StepResult(KeptResult[Any]):
    __slots__ = ("_name",)

    def __init__(self, name: str, job: str, jid: str, text: bytes, function: Any) -> None:
        super().__init__(job, jid, text, function)
        self._name = name

    @property
    def _place(self) -> str:
        return f"step {self._name} (job {self.jid})"


def plain_json(text: bytes) -> Any:
    """JSON text of ours as plain values, also with numbers that only the slow reader takes."""
    try:
        return jsontext.loads(text)
    except msgspec.ValidationError:
        return jsontext.loads_slowly(text)


class _Returns(Protocol[R]):
    """What a job's handle tells of the result."""

    def result(self, timeout: float | None = None) -> R: ...


class _Enqueued(Protocol[R]):
    """A job, or a job with options: what is enqueued gives R."""

    def enqueue(self, *args: Any, **kwargs: Any) -> _Returns[R]: ...


def ended_status(letter: str, kept: KeptResult[Any] | None = None) -> str:
    """The status of a step that has ended, in the words in which its batch counts jobs; "over" where it ended without
    success and nobody knows how, "unknown" where nothing is known. ``letter``: what its workflow keeps of it."""
    told = _LETTERS.get(letter, "unknown")
    return kept.status if kept is not None and told in ("over", "unknown") else told


class StepResults(Mapping[str, Any]):
    """What the steps returned that a step waited for: ``results["charge"]``, or typed ``results.of(charge)``.

    Of a step that gave no result each way raises JobFailed (it ended otherwise) or ResultError (it has not ended, or
    returned more than 64 KB of JSON).
    """

    def __init__(self, found: Mapping[str, KeptResult[Any]]) -> None:
        self._found = found

    def __repr__(self) -> str:
        return f"<results of {', '.join(self._found) or 'no steps'}>"

    def __getitem__(self, step: str) -> Any:
        if step not in self._found:
            raise KeyError(self._unknown(f"step {as_shown(step, 80)}", did_you_mean(str(step), self._found)))
        return self._found[step].value

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    @overload
    def of(self, what: Step[R]) -> R: ...
    @overload
    def of(self, what: _Enqueued[R]) -> R: ...
    def of(self, what: Any) -> Any:
        """The result of one step: ``what`` is the step itself, or the job that it runs, when only one step runs that.

        ArgumentError when several do (take ``all``), or none.
        """
        if isinstance(what, Step):
            return self[what.name]
        job = _name_of(what)
        steps = [name for name, one in self._found.items() if one.job == job]
        if len(steps) != 1:
            several = f"{len(steps)} steps run {job}: take results.all({job.rpartition('.')[2]}), or name the step"
            raise ArgumentError(several if steps else self._unknown(f"step that runs {job}"))
        return self[steps[0]]

    def all(self, job: _Enqueued[R]) -> list[R]:
        """The results of every step that runs ``job``, in the order in which ``after=`` named them."""
        name = _name_of(job)
        return [one.value for one in self._found.values() if one.job == name]

    def _unknown(self, what: str, near: str = "") -> str:
        known = ", ".join(self._found)
        return (
            f"this job takes the result of no {what}{near}; it takes those of {known}"
            if known
            else f"this job takes the result of no {what}: it takes none; say flow.add(…, after=…, results=True)"
        )


#: of a job that takes none
NO_RESULTS: Final = StepResults({})


def _name_of(job: Any) -> str:
    name = getattr(getattr(job, "job", job), "name", None)
    if not isinstance(name, str):
        raise ArgumentError(f"{as_shown(job, 80)} is no step and no job: give one of them")
    return name


def step_of(job: Mapping[str, Any]) -> str:
    """The name of the step that a job is, ``hm.step``; empty when it is none."""
    ours = job.get("hm")
    step = ours.get("step") if isinstance(ours, dict) else None
    return step if isinstance(step, str) else ""


Taken = Mapping[str, tuple[str, str]]  #: step → jid, name of the job


def taken_by(job: Mapping[str, Any]) -> Taken:
    """The steps whose results a job takes, ``hm.takes``; none where it says so in a way that nobody can read."""
    ours = job.get("hm")
    said = ours.get("takes") if isinstance(ours, dict) else None
    pairs = said.items() if isinstance(said, dict) else ()
    return {
        name: (one[0], one[1])
        for name, one in pairs
        if isinstance(one, list) and [type(part) for part in one] == [str, str]
    }


def taken(keys: Any, batch: str, takes: Taken, function_of: Callable[[str], Any]) -> Procedure[StepResults]:
    """The results that a job takes, as its batch keeps them. ``function_of``: the function of a job by its name, None
    where it is not known."""
    found: dict[str, KeptResult[Any]] = {}
    names = list(takes)
    for first in range(0, len(names), _PAGE):
        some = names[first : first + _PAGE]
        texts: list[bytes | None] = yield batches.kept_results(keys, batch, [takes[name][0] for name in some])
        for name, text in zip(some, texts, strict=True):
            jid, job = takes[name]
            found[name] = _StepResult(name, job, jid, text or b"", function_of(job))
    return StepResults(found)
