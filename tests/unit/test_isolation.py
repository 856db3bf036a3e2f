"""What a definition may say of isolation, and errors on their way out of a process."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from henchman import App, DefinitionError, Failure, Isolated, IterableJob, Snooze
from henchman.isolation.failure import rebuilt, to_facts


@pytest.fixture
def app() -> App:
    return App(redis_url="redis://localhost:1")


def test_true_false_and_a_value(app: App) -> None:
    made = [app.job(name=f"job{at}", isolate=one)(lambda: None) for at, one in enumerate((True, False, None))]
    assert [one.options.isolate for one in made] == [Isolated(), None, None]
    limited = app.job(name="limited", isolate=Isolated(memory="1.5GB", reuse=1, grace=0))(lambda: None)
    assert limited.options.isolate is not None
    assert limited.options.isolate.megabytes == 1536


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"memory": "63MB"}, 'Isolated(memory="63MB"): give memory from 64 to 16,777,216 MB'),
        ({"memory": True}, "Isolated(memory=True): give memory"),
        ({"reuse": 0}, "Isolated(reuse=0): give a number of runs from 1 to 1,000,000"),
        ({"reuse": True}, "Isolated(reuse=True): give a number"),
        ({"grace": -1}, "Isolated(grace=-1): give seconds from 0 to 3600"),
        ({"grace": float("nan")}, "Isolated(grace=nan): give seconds"),
        ({"grace": "2"}, 'Isolated(grace="2"): give seconds'),
    ],
)
def test_a_wrong_value_is_named(values: dict[str, Any], words: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        Isolated(**values)
    assert str(caught.value).replace("'", '"').startswith(words)


def test_another_value_says_what_is_due(app: App) -> None:
    options: Any = {"isolate": "yes"}
    with pytest.raises(DefinitionError, match="isolate='yes': give True, False or Isolated"):
        app.job(name="job", **options)(lambda: None)


def test_it_is_refused_where_it_cannot_be(app: App) -> None:
    unknown: Any = {"isolate": True}
    with pytest.raises(DefinitionError, match="isolate= is not for ordered queues: an isolated run is that of one job"):
        app.ordered(name="o", queue="q", **unknown)(lambda claim: None)
    with pytest.raises(DefinitionError, match="isolate= is not for iterable jobs"):

        @app.iterable(name="it", isolate=True)
        class It(IterableJob[[]]):
            def build(self, *, cursor: Any) -> Any: ...
            def each_iteration(self, item: Any) -> None: ...

    with pytest.raises(DefinitionError, match="isolate= cannot travel with a job"):
        app.enqueue("unknown", **unknown)


class Odd(Exception):
    """Cannot be made of its message alone."""

    def __init__(self, one: int, *, other: object) -> None:
        super().__init__(one)
        self.one, self.other, self._hidden = one, other, "x"

    def __str__(self) -> str:
        return f"odd {self.one}"


def _through(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as raised:
        return rebuilt(json.loads(json.dumps(to_facts(raised))))


def test_an_error_comes_through() -> None:
    error = _through(Odd(7, other=object()))
    assert isinstance(error, Odd)
    assert (str(error), type(error).__name__, error.one) == ("odd 7", "Odd", 7)
    assert not hasattr(error, "other")
    assert not hasattr(error, "_hidden")
    assert type(_through(Odd(8, other=1))) is type(error), "failures of one class are of one class"
    snoozed = _through(Snooze(30))
    assert isinstance(snoozed, Snooze)
    assert snoozed.delay == 30
    assert isinstance(_through(Failure("no")), Failure)


@pytest.mark.parametrize(
    "error",
    [
        OSError(2, "gone"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
        SystemExit(3),
        KeyError("k"),
        MemoryError(),
    ],
)
def test_errors_of_every_layout_come_through(error: BaseException) -> None:
    came = _through(error)
    assert isinstance(came, type(error))
    assert str(came) == str(error)


def test_a_class_that_is_not_here_is_not_imported() -> None:
    facts = to_facts(ValueError("x")) | {"module": "antigravity", "name": "Deep.Error"}
    error = rebuilt(facts)
    assert (type(error).__name__, type(error).__module__, str(error)) == ("Error", "antigravity", "x")
    assert "antigravity" not in sys.modules


def test_a_ring_of_causes_and_a_broken_str_end_somewhere() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise ValueError("no")

    error = Broken()
    error.__context__ = other = ValueError("\ud800")
    other.__context__ = error
    came = rebuilt(json.loads(json.dumps(to_facts(error))))
    assert "cannot be shown" in str(came)
    assert str(came.__context__) == "?"
