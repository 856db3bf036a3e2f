"""An error as a log may have it: its secrets hidden, in every cause and note, for whatever handler writes it."""

from __future__ import annotations

from henchman.kernel.text import words_of
from henchman.wire.secret import Secrets

__all__ = ["without_secrets"]

_MOST = 100  # errors in one chain or group; what is beyond is left out


def without_secrets(error: BaseException, secrets: Secrets) -> BaseException:
    """An error of the same name, with the same tracebacks, that says the same with ``***`` in place of ``secrets``."""
    return _copy(error, secrets, {})


def _copy(error: BaseException, secrets: Secrets, made: dict[int, BaseException]) -> BaseException:
    if id(error) in made or len(made) >= _MOST:
        return made.get(id(error), error if not secrets else Exception("(more of them were left out)"))
    kind = type(error)
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__str__": BaseException.__str__}
    copy: BaseException
    if isinstance(error, BaseExceptionGroup):
        made[id(error)] = error
        inner = [_copy(one, secrets, made) for one in error.exceptions]
        copy = type(kind.__name__, (BaseExceptionGroup,), {**names, "__str__": BaseExceptionGroup.__str__})(
            secrets.hide(error.message), inner
        )
    else:
        copy = type(kind.__name__, (Exception,), names)(secrets.hide(words_of(error)))
    made[id(error)] = copy
    for note in getattr(error, "__notes__", ()):
        copy.add_note(secrets.hide(str(note)))
    copy.__cause__ = None if error.__cause__ is None else _copy(error.__cause__, secrets, made)
    copy.__context__ = None if error.__context__ is None else _copy(error.__context__, secrets, made)
    copy.__suppress_context__ = error.__suppress_context__
    return copy.with_traceback(error.__traceback__)
