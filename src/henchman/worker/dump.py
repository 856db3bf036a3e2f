"""Where every thread and task of a process stands and what each runs: to the log, and into one file a process."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from henchman.kernel.text import visible
from henchman.worker.feed import Feeds
from henchman.worker.host import Host
from henchman.worker.loop import Loop, task_name
from henchman.worker.run import Run
from henchman.worker.stacks import thread_stacks

__all__ = ["dump", "file_name"]

_MOST_IDS = 500  # no claim has more


def file_name(pid: int) -> str:
    """How the file of a process is called; each dump takes the place of the one before."""
    return f"henchman-{pid}-stacks.txt"


def dump(host: Host, identity: str, feeds: Feeds, loop: Loop) -> None:
    """Announce where every thread and task stands, and write it down with what they run."""
    seats = [seat for feed in feeds for seat in feed.pool.seats]
    running = {seat.thread_id: run for seat in seats if (run := seat.run) is not None}
    threads, tasks = thread_stacks(), loop.stacks()
    awaited = {task_name(run): run for feed in feeds for run in list(feed.pool.tasks)}
    now = datetime.now(UTC).isoformat(timespec="seconds")
    lines = [f"henchman {identity} at {now}: {len(threads)} threads, {len(tasks)} tasks"]
    for ident, (name, frames) in threads.items():
        lines += _stack("thread", name, frames, running.get(ident))
    for name, frames in tasks.items():
        lines += _stack("task", name, frames, awaited.get(name))
    file = Path(host.config.dump_folder or tempfile.gettempdir()) / file_name(os.getpid())
    try:
        _replace(file, "\n".join(lines) + "\n")
    except OSError as error:
        host.events.failed("dump", error)
        written = None
    else:
        written = str(file)
    host.events.emit("dump", threads=dict(threads.values()), tasks=tasks, file=written)


def _stack(kind: str, name: str, frames: Sequence[str], run: Run | None) -> Iterator[str]:
    yield f"\n== {kind} {visible(name)} =="
    if run is not None:
        yield from _job(run)
    yield from (visible(one) for one in frames or ["<no stack>"])


def _job(run: Run) -> Iterator[str]:
    """What runs, without its arguments: these may be secret."""
    yield visible(f"runs {run.name} {run.jid} from {run.queue}, attempt {run.attempt}, for {run.elapsed:.1f} s")
    if run.token is not None:
        ids = list(run.args[0])
        shown = ", ".join(visible(str(one)) for one in ids[:_MOST_IDS])
        yield f"token {run.token}, {len(ids)} {'id' if len(ids) == 1 else 'ids'}: {shown}"


def _replace(file: Path, text: str) -> None:
    """Never through a link that somebody else put there, and readable by us alone: a temporary file, then its name."""
    handle, made = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as out:
            out.write(text)
        os.replace(made, file)
    except OSError:
        with suppress(OSError):
            os.unlink(made)
        raise
