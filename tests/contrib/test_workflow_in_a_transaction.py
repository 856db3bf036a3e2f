"""A workflow inside a transaction: it waits for no commit, and says so."""

from __future__ import annotations

import pytest
from redis import Redis
from sqlalchemy import orm

from henchman import App
from henchman.errors import BatchError, DefinitionError
from support.keys import waiting


def test_a_workflow_waits_for_no_commit(app: App, session: orm.Session, redis: Redis) -> None:
    @app.job(name="charge", key="order", unique="queued")
    def charge(order: str) -> None: ...

    flow = app.workflow().open()
    with pytest.raises(BatchError, match=r"step charge: a transaction is open.*charge\.using\(now=True\)\.call"):
        flow.add(charge.call("17"))
    with pytest.raises(DefinitionError, match=r"session= says where a job goes"):
        flow.add(charge.using(session=session).call("17"))
    flow.add(charge.using(now=True).call("18"))
    flow.close()
    assert [job["args"] for job in waiting(redis)] == [["18"]]
