"""The options of ``@app.ordered``, checked where they are written; those of plain jobs are refused with the reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from henchman.client.options import LATER, JobOptions, PushOptions, definition_options
from henchman.client.ordered_options import OrderedOptions
from henchman.errors import DefinitionError
from henchman.kernel.text import did_you_mean

__all__ = ["ALIASES", "KNOWN", "Options", "foreign", "one_name_each", "ordered_options"]

#: Lowkiq's names → ours
ALIASES: Final[Mapping[str, str]] = {
    "batch_size": "claim_size",
    "shards_count": "max_parallel",
    "max_retry_count": "max_retries",
    "queue_name": "queue",
}
_COMMON = ("queue", "timeout", "log_level", "track")  # with plain jobs
KNOWN: Final = (*_COMMON, *OrderedOptions.__struct_fields__, "derive")
_MOST_SIZE = 500  # ids in one claim: scripts unpack no more than 1,000 values
_MOST_CAP = 100_000
_MOST_PARTITIONS = 1000

_WHY_NOT: Final[Mapping[str, str]] = {
    "retry": "an ordered queue says max_retries=",
    "retry_for": "retries are counted here: max_retries= and retry_in=",
    "retry_on": "raise or return Discard or Kill for what is not worth another try",
    "no_retry_on": "raise or return Discard or Kill for what is not worth another try",
    "retry_queue": "a failed id waits in its own queue, or it would be overtaken",
    "dead": "what is given up goes to the morgue of its queue",
    "backtrace": "an id keeps its last error, not where that came from; the log has it",
    "expires": "payloads of an id are merged and wait as long as they must",
    "tags": "payloads of an id are merged: there is no one job to tag",
    "secret": "it names parameters, and a payload has none; send a reference instead of what must not be seen",
    "ack": "a claim is settled as soon as it has ended",
    "delay": "it belongs to push",
    "at": "it belongs to push",
    "score": "it belongs to push",
    "cron": "let a periodic job push",
}


class Options(NamedTuple):
    """The options of one definition, checked. ``derive`` is told in ``definition``."""

    job: JobOptions
    ordered: OrderedOptions
    derive: Callable[[Any], Any] | None


def foreign(name: str) -> str | None:
    """Why an option of plain jobs makes no sense here; None for any other name."""
    if name in _WHY_NOT:
        return _WHY_NOT[name]
    if name in LATER or name in JobOptions.__struct_fields__ or name in PushOptions.__struct_fields__:
        return "it is for plain jobs"
    return None


def one_name_each(where: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """``given`` under our own names; DefinitionError where an option is given under both of its names."""
    ours: dict[str, Any] = {}
    for name, value in given.items():
        own = ALIASES.get(name, name)
        if own in ours:
            alias = next(one for one, other in ALIASES.items() if other == own)
            raise DefinitionError(f"{where}: {alias}= is another name of {own}=; give one of them")
        ours[own] = value
    return ours


def ordered_options(where: str, given: Mapping[str, Any]) -> Options:
    """The options of a definition, checked; DefinitionError names ``where`` and what is wrong."""
    ours = one_name_each(where, given)
    for name in ours:
        if name not in KNOWN:
            why = foreign(name)
            near = did_you_mean(name, (*KNOWN, *ALIASES))
            raise DefinitionError(
                f"{where}: {name}= is not for ordered queues: {why}"
                if why
                else f"{where}: there is no option {name}={near}"
            )
    said = {name: value for name, value in ours.items() if value is not None}
    common = {name: said.pop(name) for name in (*_COMMON, "retries_exhausted", "retry_in") if name in said}
    job = definition_options(where, common)  # the checks are the same; what is not a plain job's is moved over
    derive = said.pop("derive", None)
    if derive is not None and not callable(derive):
        raise DefinitionError(f"{where}: derive={derive!r}: give a function of the payload")
    checked = {name: _CHECKS[name](where, name, value) for name, value in said.items()}
    ordered = OrderedOptions(**checked, retry_in=job.retry_in, retries_exhausted=job.retries_exhausted)
    _check_together(where, ordered, said)
    plain = JobOptions(**{name: getattr(job, name) for name in _COMMON})
    return Options(plain, ordered, derive)


def _check_together(where: str, options: OrderedOptions, said: Mapping[str, Any]) -> None:
    if "group_separator" in said and options.max_per_group is None:
        raise DefinitionError(f"{where}: group_separator= says nothing without max_per_group=")
    if options.max_per_group is not None and options.partitions is not None:
        raise DefinitionError(
            f"{where}: max_per_group= and partitions= exclude each other: the ids of a group would lie in several "
            "partitions, where nobody counts them together"
        )


def _number(least: int, most: int) -> Callable[[str, str, Any], int]:
    def check(where: str, name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise DefinitionError(f"{where}: {name}={value!r}: give a whole number from {least} to {most:,}")
        return value

    return check


def _collapse(where: str, name: str, value: Any) -> str:
    if not isinstance(value, str) or value not in {"min", "latest", "none"}:
        raise DefinitionError(f"{where}: {name}={value!r}: give 'min', 'latest' or 'none'")
    return value


def _separator(where: str, name: str, value: Any) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= 20 or not value.isprintable():
        raise DefinitionError(f"{where}: {name}={value!r}: give a printable text of 1 to 20 characters")
    return value


_CHECKS: Final[Mapping[str, Callable[[str, str, Any], Any]]] = {
    "claim_size": _number(1, _MOST_SIZE),
    "payload_cap": _number(1, _MOST_CAP),
    "max_parallel": _number(1, 1_000_000),
    "max_per_group": _number(1, 1_000_000),
    "max_retries": _number(0, 10_000),
    "partitions": _number(1, _MOST_PARTITIONS),
    "group_separator": _separator,
    "collapse": _collapse,
}
