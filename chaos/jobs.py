"""The app of the chaos run: jobs that write down when they start and how they end, and do what their kind says.

What the worker itself announces (a rescue, a lost lease, a part that failed) goes to the ledger too, as evidence.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from begun import begun
from kinds import KINDS, PLACES, lane_of
from ledger import Ledger

from henchman import App, Concurrent, Discard, Failure, JobTimeout, Kill, Leaky, Snooze, current_job
from henchman.errors import BatchError, ServerAway, ServerError
from henchman.wire import payload
from henchman.work.effects import attempt_of
from henchman.worker import acker
from henchman.worker.lost_runs import LostRuns

LINE = 60  # jids in one line of the ledger
FOLDER = Path(os.environ["CHAOS_LEDGER"])
app = App(imports=["entities", "contracts", "dependants", "policies"])
ledger = Ledger(FOLDER, os.environ.get("CHAOS_ROLE", "worker"))
worker_log = logging.getLogger("chaos")
chatter = logging.getLogger(
    "chatter"
)  # its lines are written, under a lock as every handler has it, and read by nobody
chatter.propagate = False
chatter.addHandler(logging.FileHandler(os.devnull))


@contextmanager
def acting(key: str) -> Iterator[int]:
    """Write that ``key`` starts and how it ends, whatever is raised in it; gives the attempt."""
    job = current_job()
    ledger.write("start", key, job.attempt, job.payload.get("enqueued_at", 0), job.jid, begun())
    how = "ok"
    try:
        yield job.attempt
    except BaseException as error:
        how = type(error).__name__
        raise
    finally:
        ledger.write("end", key, job.attempt, how)


def _sleep(seconds: float) -> None:
    """In slices, so that a time-out is heard; counted, so that a frozen process has not slept when it goes on."""
    for _ in range(max(1, round(seconds / 0.02))):
        time.sleep(0.02)


@app.job(name="tiny", queue="fast")
def tiny(key: str) -> None:
    with acting(key):
        pass


@app.job(name="atiny", queue="fast")
async def atiny(key: str) -> None:
    with acting(key):
        await asyncio.sleep(0)


def tenant(key: str, *_: object) -> str:
    """The queue "slow" is a fair one: of ten tenants, and of jobs without one."""
    return key[-1]


@app.job(name="nap", queue="slow", fair_by=tenant)
def nap(key: str, seconds: float) -> None:
    with acting(key):
        _sleep(seconds)


@app.job(name="anap", queue="slow", fair_by=tenant, priority="high")
async def anap(key: str, seconds: float) -> None:
    with acting(key):
        await asyncio.sleep(seconds)


def lane(key: str, *_: object) -> int:
    """Whose places of the limit "capped" a job takes."""
    return lane_of(key)


@app.job(name="capped", queue="slow", limits=[Concurrent("capped", PLACES, by=lane)])
def capped(key: str, seconds: float) -> None:
    with acting(key):
        _sleep(seconds)


@app.job(name="acapped", queue="fast", limits=[Concurrent("capped", PLACES, by=lane)])
async def acapped(key: str, seconds: float) -> None:
    with acting(key):
        await asyncio.sleep(seconds)


@app.job(name="paced", queue="fast", limits=[Leaky("paced", 20, per=1)])
def paced(key: str) -> None:
    with acting(key):
        pass


@app.job(name="pressed", queue="held", deadline=KINDS["pressed"].deadline)
def pressed(key: str, seconds: float) -> None:
    with acting(key):
        _sleep(seconds)


@app.job(name="flaky", queue="slow", retry=5, retry_in=1.0)
def flaky(key: str, fails: int) -> None:
    with acting(key) as attempt:
        if attempt <= fails:
            raise ValueError(f"attempt {attempt} fails as told")


@app.job(name="hopeless", queue="slow", retry=1, retry_in=1.0)
async def hopeless(key: str) -> None:
    with acting(key):
        raise ValueError("always")


@app.job(name="snoozer", queue="slow")
def snoozer(key: str) -> None:
    with acting(key):
        try:
            os.close(os.open(FOLDER / f"snoozed.{key}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        raise Snooze(1.0)


@app.job(name="slowpoke", queue="slow", timeout=0.5, retry=1, retry_in=1.0)
def slowpoke(key: str) -> None:
    with acting(key):
        _sleep(20)


@app.job(name="astuck", queue="slow", timeout=0.5, retry=False)
async def astuck(key: str) -> None:
    with acting(key):
        await asyncio.sleep(20)


@app.job(name="chatty", queue="slow", timeout=0.3, retry=False)
def chatty(key: str) -> None:
    """Its time-out strikes while it logs: almost always to nobody, now and then where the worker's own lines go."""
    with acting(key):
        for number in range(1_000_000):
            chatter.warning("line %d of %s", number, key)
            if number % 300 == 0:
                worker_log.info("line %d of %s", number, key)
                time.sleep(0.005)


@app.job(name="big", queue="slow")
def big(key: str, blob: str, crc: int) -> None:
    with acting(key):
        if zlib.crc32(blob.encode()) != crc:
            ledger.write("torn", key)


@app.job(name="refuser", queue="fast")
def refuser(key: str) -> None:
    with acting(key):
        raise Failure("the answer is no")


@app.job(name="killer", queue="fast")
def killer(key: str) -> None:
    with acting(key):
        raise Kill("enough")


@app.job(name="dropper", queue="fast")
async def dropper(key: str) -> None:
    with acting(key):
        raise Discard


@app.job(name="hostile_fine", queue="slow")
def hostile_fine(*_: Any) -> None:
    """What some of the hostile payloads call."""


@app.job(name="hostile_raises", queue="slow", retry=1, retry_in=0.5)
def hostile_raises(*_: Any) -> None:
    ledger.write("hostilerun")
    raise ValueError("as told")


@app.job(name="brief", queue="held", expires=2.0)
def brief(key: str) -> None:
    with acting(key):
        pass


@app.job(name="doomed", queue="held")
def doomed(key: str) -> None:
    with acting(key):
        pass


@app.job(name="adder", queue="fast")
def adder(key: str) -> None:
    """Adds three jobs to its batch, and says of them what a producer says."""
    with acting(key):
        batch = current_job().batch
        keys = [f"tiny-added-{os.urandom(6).hex()}" for _ in range(3)]
        for one in keys:
            ledger.write("bjob", batch.id, one)
            ledger.write("push", one)
        try:
            batch.add(tiny, [(one,) for one in keys])
            verdict = "accepted"
        except ServerAway as error:
            verdict = "unknown" if error.executed is None else "refused"
        except (ServerError, BatchError):
            verdict = "refused"
        for one in keys:
            ledger.write(verdict, one)


def die_first(key: str) -> None:
    """Kill a job whenever it runs as it was pushed first, and not when it was put into its queue once more."""
    now, known = str(current_job().payload["enqueued_at"]), FOLDER / f"mended.{key}"
    draft = FOLDER / f"mending.{key}.{os.getpid()}"
    draft.write_text(now)
    with suppress(FileExistsError):
        os.link(draft, known)
    draft.unlink()
    if known.read_text() == now:
        raise Kill("to be mended")


@app.job(name="mender", queue="fast")
def mender(key: str) -> None:
    with acting(key):
        die_first(key)


@app.job(name="called_complete", queue="fast")
def called_complete(batch: str) -> None:
    with acting(f"called-complete-{batch}"):
        pass


@app.job(name="called_success", queue="fast")
async def called_success(batch: str) -> None:
    with acting(f"called-success-{batch}"):
        pass


@app.job(name="called_death", queue="slow")
def called_death(batch: str) -> None:
    with acting(f"called-death-{batch}"):
        pass


def _note_settlings() -> None:
    """Write down whose end the server has confirmed: that is never run again, whatever becomes of this process."""
    settle, settle_oldest = acker.settle_units, acker.settle_oldest_units

    def write(jids: list[str]) -> None:
        for start in range(0, len(jids), LINE):
            ledger.write("settled", *jids[start : start + LINE])

    def noted(host: Any, identity: str, units: Any) -> Any:
        statuses = settle(host, identity, units)
        jids = [
            unit.job["jid"]
            for (unit, ending, *_), status in zip(units, statuses, strict=True)
            if unit.source is None and status == 1 and ending != "released" and unit.job.get("jid")
        ]
        write(jids)
        return statuses

    def noted_together(host: Any, identity: str, units: Any) -> Any:
        status = settle_oldest(host, identity, units)
        write([unit.job["jid"] for unit in units if status == 1 and unit.job.get("jid")])
        return status

    acker.settle_units, acker.settle_oldest_units = noted, noted_together
    acker.CUT_LEAST = 2  # few end here in the order of their fetch


def _is_ours(key: object) -> bool:
    """False of a hostile payload."""
    return isinstance(key, str) and key.partition("-")[0] in KINDS


def _note_lost_runs() -> None:
    """An attempt whose time was over on a host that is gone ends here: nobody else can write that down."""
    end = LostRuns._end

    def noted(lost: LostRuns, flight: str, stored: bytes) -> int:
        ended = end(lost, flight, stored)
        if ended:
            job = payload.decode(stored)
            key = job["args"][0] if job["args"] else None
            if _is_ours(key):
                ledger.write("struck", key, attempt_of(job))
        return ended

    LostRuns._end = noted  # type: ignore[method-assign]


def _note_unstarted(run: Any, outcome: Any) -> None:
    """A job that ended without a run: expired or cancelled; or in its time-out, which may have struck before its first
    line, when the machine was held up."""
    key = run.args[0] if run.args else run.kwargs.get("key")
    if not _is_ours(key):
        return
    if outcome.ending in ("expired", "cancelled"):
        ledger.write(outcome.ending, key)
    elif isinstance(outcome.error, JobTimeout) and run.unit.source is None:
        ledger.write("struck", key, run.attempt)


def _note(name: str) -> None:
    def listen(**facts: Any) -> None:
        said = [f"{key}={value!r}" for key, value in facts.items() if key not in ("stack", "facts", "secrets")]
        ledger.write("event", name, *said)

    app.events.on(name, listen)


app.events.on("job_failed", _note_unstarted)
for _name in (
    *("rescued", "swept", "late", "lease_lost", "lease_lapsed", "drift", "refused", "charged", "part_failed"),
    "clock_stepped",
):
    _note(_name)
_note_settlings()
_note_lost_runs()
