"""Random trees of blocks within a transaction, some of which fail: what is pushed is what the database keeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import pytest
import sqlalchemy as sa
from django.db import transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event, orm

from henchman import App, testing


class Rollback(Exception):
    """What a block fails with."""


class Block(NamedTuple):
    """A block within a transaction. ``savepoint`` False: it has none of its own, as Django allows."""

    savepoint: bool
    fails: bool
    steps: list[Any]


PUSH = st.just("push")
STEPS = st.recursive(
    st.lists(PUSH, max_size=3),
    lambda inner: st.lists(PUSH | st.builds(Block, st.booleans() | st.just(True), st.booleans(), inner), max_size=5),
    max_leaves=12,
)
TREES = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def kept(steps: Sequence[Any], numbers: list[int], poisoned: bool = False) -> tuple[list[int], bool]:
    """The numbers of the pushes that a database keeps, and whether the block around them must be rolled back."""
    found: list[int] = []
    for step in steps:
        if step == "push":
            numbers.append(len(numbers))
            found.append(numbers[-1])
            continue
        own = step.savepoint and not poisoned
        inner, bad = kept(step.steps, numbers, poisoned)
        if not (bad or step.fails):
            found += inner
        elif not own:
            found, poisoned = found + inner, True
    return found, poisoned


def walk(steps: Sequence[Any], push: Callable[[], None], block: Callable[[bool], Any]) -> None:
    for step in steps:
        if step == "push":
            push()
        else:
            with suppress(Rollback), block(step.savepoint):
                walk(step.steps, push, block)
                if step.fails:
                    raise Rollback


def pushing(note: Any) -> Callable[[], None]:
    numbers = iter(range(1000))
    return lambda: note.enqueue(next(numbers))


def arguments(jobs: testing.FakeJobs) -> list[int]:
    return [one.args[0] for one in jobs]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@TREES
@given(steps=STEPS, fails=st.booleans())
def test_django(databases: Callable[..., None], app: App, note: Any, steps: list[Any], fails: bool) -> None:
    databases(default="sqlite://")
    with testing.fake(app) as jobs:
        with suppress(Rollback), transaction.atomic():
            walk(steps, pushing(note), lambda savepoint: transaction.atomic(savepoint=savepoint))
            assert arguments(jobs) == []
            if fails:
                raise Rollback
        expected, poisoned = kept(steps, [])
        assert arguments(jobs) == ([] if fails or poisoned else expected)
        assert jobs.deferred == []


@TREES
@given(steps=STEPS, fails=st.booleans())
def test_sqlalchemy(app: App, note: Any, steps: list[Any], fails: bool) -> None:
    engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
    event.listen(engine, "connect", lambda connection, _: setattr(connection, "isolation_level", None))
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    with testing.fake(app) as jobs, orm.Session(engine) as session:
        push = note.using(session=session)
        walk(with_savepoints(steps), pushing(push), lambda _: session.begin_nested())
        assert arguments(jobs) == []
        (session.rollback if fails else session.commit)()
        assert arguments(jobs) == ([] if fails else kept(with_savepoints(steps), [])[0])
        assert jobs.deferred == []
    engine.dispose()


def with_savepoints(steps: Sequence[Any]) -> list[Any]:
    """The same tree where each block has a savepoint: SQLAlchemy has no others."""
    return [one if one == "push" else Block(True, one.fails, with_savepoints(one.steps)) for one in steps]
