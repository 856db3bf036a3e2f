"""The words of a failed assertion: what was expected, what came near, what was pushed in all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from henchman.kernel.text import shorten
from henchman.testing.collected import Collected, Wanted, Where

__all__ = ["found_unwanted", "missed"]

_NEAREST = 3
_LISTED = 20
_VALUE_MOST = 200

Misfits = Mapping[str, tuple[Any, Any]]


def missed(
    wanted: Wanted,
    where: Where,
    count: int | None,
    hits: Sequence[Collected],
    near: Sequence[tuple[Collected, Misfits]],
    everything: Sequence[Collected],
) -> str:
    """Why an expected push was not found, or not so often. ``near``: pushes of the same job and how they differ."""
    often = "a push" if count is None else "1 push" if count == 1 else f"{count} pushes"
    lines = [f"expected {often} of {wanted.shown}{_conditions(where)}; found {len(hits) or 'none'}"]
    if hits:
        lines += ["these fit:", *_listed(hits)]
    closest = sorted(near, key=lambda pair: len(pair[1]))[:_NEAREST]
    if closest and (count is None or len(hits) < count):
        lines.append("nearest:")
        for one, misfits in closest:
            lines.append(f"  {one}")
            lines += [f"      {name}: expected {_short(e)}, was {_short(was)}" for name, (e, was) in misfits.items()]
    return "\n".join([*lines, *_everything(everything)])


def found_unwanted(wanted: Wanted, where: Where, hits: Sequence[Collected], everything: Sequence[Collected]) -> str:
    """Which pushes there should not have been."""
    head = f"expected no push of {wanted.shown}{_conditions(where)}; found {len(hits)}"
    return "\n".join([f"{head}:", *_listed(hits), *_everything(everything)])


def _conditions(where: Where) -> str:
    words = []
    if where.queue is not None:
        words.append(f"queue={where.queue!r}")
    if where.tags is not None:
        words.append(f"tags={sorted(where.tags)!r}")
    if where.at is not None:
        words.append(f"at={where.at} within={where.within} s")
    return f" with {', '.join(words)}" if words else ""


def _everything(pushed: Sequence[Collected]) -> list[str]:
    if not pushed:
        return ["nothing was enqueued"]
    return [f"enqueued in all: {len(pushed)}", *_listed(pushed)]


def _listed(pushed: Sequence[Collected]) -> list[str]:
    lines = [f"  {one}" for one in pushed[:_LISTED]]
    return [*lines, f"  … and {len(pushed) - _LISTED} more"] if len(pushed) > _LISTED else lines


def _short(value: Any) -> str:
    return shorten(repr(value), _VALUE_MOST)
