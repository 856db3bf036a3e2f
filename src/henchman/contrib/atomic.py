"""Transactions of Django: which atomic block a push waits for, and the ``on_commit`` hook that sends what waited.

What it cannot see: a savepoint that is rolled back by hand (``transaction.savepoint_rollback``), for Django itself
knows only those of ``atomic``; transactions of other threads, also of the one in which ``async_to_sync`` runs a
coroutine; and transactions begun by ``set_autocommit(False)``. An ``on_commit`` callback that raises makes Django drop
those after it, ours among them: register yours with ``robust=True``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections, transaction

from henchman.contrib.submission import Sender, Submission
from henchman.errors import DefinitionError

__all__ = ["AtomicBlock", "open_transactions"]


def open_transactions(alias: str | None) -> list[AtomicBlock]:
    """The atomic blocks that a push of this thread may wait for: of the database ``alias``, else of every one.

    Of several the one on the default database is meant. The block that a TestCase puts around each test counts for
    none, as for ``atomic(durable=True)``. DefinitionError when there is no database ``alias``.
    """
    if not settings.configured:
        return []
    if alias is not None and alias not in connections.settings:
        raise DefinitionError(f"db={alias!r}: DATABASES of Django has {', '.join(map(repr, connections.settings))}")
    opened = [one for one in connections.all(initialized_only=True) if alias in (None, one.alias) and _in_atomic(one)]
    defaults = [one for one in opened if one.alias == DEFAULT_DB_ALIAS]
    return [AtomicBlock(one) for one in defaults or opened]


def _in_atomic(connection: Any) -> bool:
    blocks = connection.atomic_blocks
    return bool(connection.in_atomic_block) and not (blocks and _of_a_test(blocks[-1]))


def _of_a_test(block: Any) -> bool:
    return bool(getattr(block, "_from_testcase", False))


class _Level:
    """What waits for the commit with the same savepoints open: Django drops it when one of them is rolled back.

    ``before``: the level around it. Django holds a level by its callback, so one that Django has dropped is gone.
    """

    def __init__(self, client: Sender, savepoints: Sequence[str], before: _Level | None) -> None:
        self.client = client
        self.submissions: list[Submission] = []
        self.before = before
        self._savepoints = savepoints

    def send(self) -> None:
        """The callback: the transaction has committed."""
        submissions, self.submissions = self.submissions, []
        if submissions:
            self.client.send(submissions)

    def opened(self, now: Sequence[str]) -> list[str]:
        """The savepoints by which it can still be rolled back, of those that are open ``now``."""
        return [one for one in self._savepoints if one in now]

    def merged(self, now: Sequence[str]) -> _Level:
        """The outermost level that has come to share the fate of this one, with what waited here behind its own."""
        level = self
        while (before := level.before) is not None and before.opened(now) == level.opened(now):
            before.submissions += level.submissions
            level.submissions = []
            level = before
        return level


class AtomicBlock:
    """The transaction that is open on one connection of this thread."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @property
    def name(self) -> str:
        """As ``using`` names it."""
        return f"db={self._connection.alias!r}"

    @property
    def target(self) -> Any:
        """The connection itself."""
        return self._connection

    def has_outbox(self, outbox: str) -> bool:
        """Where ``outbox`` is an alias, whether this is that database; an address may be that of any."""
        return outbox == self._connection.alias or outbox not in connections.settings

    def defer(self, submission: Submission) -> None:
        """Keep ``submission`` until the outermost block has committed, unless a block around the push is rolled back.

        One callback sends what was pushed with the same savepoints open. A savepoint that was released no longer
        counts, so all that waits is sent by few callbacks, as a rule by one. Within a TestCase each push has a callback
        of its own, so that ``captureOnCommitCallbacks`` sees those of its block.
        """
        connection, client = self._connection, submission.client
        now = [one for one in connection.savepoint_ids if one is not None]
        level = None if any(map(_of_a_test, connection.atomic_blocks)) else self._deepest(client)
        if level is not None:
            level = level.merged(now)
        if level is None or level.opened(now) != now:
            level = _Level(client, now, level)
            transaction.on_commit(level.send, using=connection.alias)
        level.submissions.append(submission)

    def _deepest(self, client: Sender) -> _Level | None:
        """The last level of this transaction in which something waits."""
        for entry in reversed(self._connection.run_on_commit):
            for part in entry:  # (savepoints, callback, robust)
                level = getattr(part, "__self__", None)
                if isinstance(level, _Level) and level.client is client and level.submissions:
                    return level
        return None
