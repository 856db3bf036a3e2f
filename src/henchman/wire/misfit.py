"""What does not fit into JSON, and where: raised deep inside a value, given its place on the way out."""

from __future__ import annotations

__all__ = ["Misfit", "kind_of", "wrong"]

_STEPS = 12


class Misfit(Exception):
    """``what`` reads after the place (``" is NaN"``); ``shown`` may quote the value and is left out for secrets.

    ``discreet`` is said of a secret in place of a ``what`` that quotes.
    """

    def __init__(self, what: str, shown: str = "", discreet: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.discreet = discreet or what
        self.shown = " ".join(shown.split())  # one line, whatever another library says
        self._steps: list[str] = []

    def at(self, step: str | int) -> Misfit:
        """The same, one level further out: ``step`` is the index or key that leads inward."""
        if isinstance(step, int):
            self._steps.append(f"[{step}]")
        elif step.isidentifier() and len(step) <= 100:
            self._steps.append(f".{step}")
        else:
            self._steps.append(f"[{step[:100]!r}]")
        return self

    def text(self, name: str, *, secret: bool = False) -> str:
        """The whole sentence about parameter ``name``; of a secret one, neither keys nor values are shown."""
        if secret:
            return f"{name}{self.discreet} (its value is secret)"
        steps = self._steps if len(self._steps) <= _STEPS else ["…", *self._steps[-_STEPS:]]
        place = name + "".join(reversed(steps))
        return f"{place}{self.what}{f' ({self.shown[:200]})' if self.shown else ''}"


def kind_of(value: object) -> str:
    """``"a datetime"``, ``"an int"``: how the type of ``value`` is called in a message."""
    name = "None" if value is None else type(value).__name__
    return name if value is None else f"{'an' if name[:1].lower() in 'aeio' else 'a'} {name}"


def wrong(value: object, due: str) -> Misfit:
    """The Misfit for a value of another type than the one that is ``due``."""
    return Misfit(f" is {kind_of(value)} where {due} is due")
