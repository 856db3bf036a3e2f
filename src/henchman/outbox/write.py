"""``app.outbox``: jobs as rows of the caller's transaction, and the tap on the relay's shoulder after its commit."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ParamSpec, Protocol, TypeVar, Unpack

from henchman.client.job import Using
from henchman.client.keywords import PushKeywords
from henchman.client.prepared import PreparedPush
from henchman.client.push import Handle, Pushed
from henchman.client.runtime import Runtime
from henchman.errors import HenchmanError, OutboxError
from henchman.kernel.middleware import in_thread
from henchman.kernel.threads import REFUSED
from henchman.outbox import load
from henchman.outbox.rows import Row, insert_by_cursor, rows_of
from henchman.store import outbox as store

__all__ = ["Outbox"]

P = ParamSpec("P")
R = TypeVar("R")
IDLE = 5.0  # seconds after which the thread that wakes the relay ends
PAUSE = 1.0  # seconds without another try, when the server could not be told


class Writable(Protocol[P, R]):
    """A job, or a job with options."""

    def using(self, **options: Unpack[PushKeywords]) -> Using[P, R]: ...


class Outbox:
    """The outbox of one app. Its tables stand in the application's database: ``henchman db upgrade --outbox URL``."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._waker = _Waker(runtime)

    def write(self, connection: Any, job: Writable[P, R], *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Push one job as a part of the transaction of ``connection``: a SQLAlchemy Session or Connection, or Django's.

        ``job`` may bring options: ``outbox.write(connection, charge.using(delay=60), "17", 990)``. The handle has the
        job's id, and ``admission="deferred"``: the job exists when the transaction is committed.
        """
        return job.using(outbox=connection).enqueue(*args, **kwargs)

    async def awrite(self, connection: Any, job: Writable[P, R], *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """``write``, awaited, also for an AsyncConnection."""
        return await job.using(outbox=connection).aenqueue(*args, **kwargs)

    def write_many(self, connection: Any, job: Writable[..., Any], rows: Iterable[Any]) -> Pushed:
        """``write`` for each row, as ``enqueue_many`` takes them."""
        return job.using(outbox=connection).enqueue_many(rows)

    async def awrite_many(self, connection: Any, job: Writable[..., Any], rows: Any) -> Pushed:
        """``write_many``, awaited."""
        return await job.using(outbox=connection).aenqueue_many(rows)

    def wake(self) -> None:
        """Tell the relay that a transaction was committed, and do not wait for it. Sessions and Django do so by
        themselves; after the commit of a connection of SQLAlchemy it saves up to a second."""
        self._waker.ring()

    def status(self) -> Any:
        """How it stands, by one look: ``rows``, ``waiting``, ``lag`` in seconds, ``relay``, ``refused``; see
        ``outbox.status.OutboxStatus``. ConfigError when the setting ``outbox`` names no database; OutboxError."""
        part = load("status")
        database = self._runtime.open_outbox()
        try:
            return part.look(database, self._runtime.connections, self._runtime.keys)
        finally:
            database.close()

    async def astatus(self) -> Any:
        """``status``, awaited."""
        return await in_thread(self.status)

    # --- for the client ---------------------------------------------------------------------------------------------

    def rows(
        self,
        plan: PreparedPush,
        scheduled: bool,
        by_queue: Mapping[str, Sequence[bytes]],
        created: float,
        questions: Mapping[str, bytes],
    ) -> list[Row]:
        """The rows of one push; see ``rows_of``."""
        return rows_of(plan, scheduled, by_queue, created, questions)

    def put(self, target: Any, rows: Sequence[Row]) -> None:
        """Write rows as a part of the transaction of ``target``. OutboxError when there is none."""
        target = self._transaction(target)
        if hasattr(target, "vendor"):  # Django's
            insert_by_cursor(target, rows, self._waker.ring)
        else:
            load("session").put(target, rows, self._waker.ring)

    async def aput(self, target: Any, rows: Sequence[Row]) -> None:
        """``put``, awaited."""
        target = self._transaction(target)
        if hasattr(target, "vendor"):
            raise OutboxError("Django's connections write in a thread of their own: enqueue there, not aenqueue")
        await load("session").aput(target, rows, self._waker.ring)

    def _transaction(self, target: Any) -> Any:
        if target is not True:
            return target
        raise OutboxError(
            "using(outbox=True): there is no session here to write into; name it, as in using(outbox=session), or "
            "app.outbox.write(connection, job, …)"
        )

    def close(self) -> None:
        """End the thread that wakes the relay."""
        self._waker.close()


class _Waker:
    """Tells the relay, from a thread of its own: no commit waits for the server. Many rings in a row are one."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._rung, self._closing = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()

    def ring(self) -> None:
        """Something was committed."""
        if os.getpid() != self._pid:  # the thread stayed with the parent process, and perhaps a lock
            self.__init__(self._runtime)  # type: ignore[misc]
        with self._lock:
            self._rung.set()
            if self._thread is None and not self._closing.is_set():
                thread = threading.Thread(target=self._run, name="henchman-outbox-waker", daemon=True)
                with contextlib.suppress(*REFUSED):  # the relay looks by itself, a little later
                    thread.start()
                    self._thread = thread

    def close(self) -> None:
        """End the thread, and let a later ring start another."""
        self._closing.set()
        self._rung.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join(2 * PAUSE)
        self._closing.clear()

    def _run(self) -> None:
        while True:
            self._rung.wait(IDLE)
            with self._lock:
                if self._closing.is_set() or not self._rung.is_set():
                    self._thread = None
                    return
                self._rung.clear()
            try:
                self._runtime.connections.run(store.wake(self._runtime.keys))
            except HenchmanError:  # the relay looks by itself, a little later
                self._closing.wait(PAUSE)
