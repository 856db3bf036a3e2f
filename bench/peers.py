"""Other systems beside Henchman: the same job, the same server over TCP, each configured as its experts would.

The job notes when it started in memory that all processes share. A rate counts from the first start to the last. Each
system of Python has an environment of its own below bench/.peers, made at its first run; Sidekiq is Debian's.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple

import henchman.bench.stamps
from henchman.bench.jobs import QUEUES, tell
from henchman.bench.measures import Ground
from henchman.bench.server import BenchError, Server, wait_for
from henchman.bench.worker import worker

__all__ = ["PEERS", "Peer", "measure_peers"]

HERE = Path(__file__).resolve().parent
CORES = str(os.cpu_count() or 1)
CELERY_ALONE = "--without-gossip --without-mingle --without-heartbeat"
JOBS, SINGLE = 5_000, 1_000
LIMIT = 120.0  # seconds that a peer may take
STOP = 20.0


class Peer(NamedTuple):
    """One system: what is installed, how its workers start (``instances`` times), and what to know of its settings."""

    name: str
    packages: str
    command: str
    settings: str
    instances: int = 1
    times: int = 1  # as many jobs as the others


PEERS = (
    Peer("sidekiq", "", "sidekiq -c 10 -q default -r ./sidekiq_app.rb", "one process, 10 threads", times=6),
    Peer(
        "celery",
        "celery[redis] hiredis",
        f"celery -A celery_app worker -P prefork -c {CORES} -l error {CELERY_ALONE}",
        "prefork, a process a core, 100 prefetched each, results ignored, acknowledged before the run (its default)",
    ),
    Peer(
        "dramatiq",
        "dramatiq[redis] hiredis",
        f"dramatiq dramatiq_app -p {CORES} -t 8",
        "a process a core, 8 threads each, messages prefetched 128 at a time",
    ),
    Peer(
        "rq",
        "rq hiredis",
        f"rq worker-pool -q -n {CORES} -w rq.worker.SimpleWorker --url URL default",
        "a worker a core, without a fork for each job, results not kept",
    ),
    Peer(
        "huey",
        "huey redis hiredis",
        f"huey_consumer huey_app.huey -w {CORES} -k process -n -q",
        "a process a core, results not kept, no periodic tasks",
    ),
    Peer(
        "arq",
        "arq hiredis",
        "arq arq_app.WorkerSettings",
        "a process a core, 100 jobs at once each, polled every 50 ms, results not kept",
        int(CORES),
    ),
    Peer(
        "saq",
        "saq[redis] hiredis typing_extensions",
        f"saq saq_app.settings --workers {CORES} --quiet",
        "a process a core, 100 jobs at once each, results not kept",
    ),
    Peer(
        "taskiq",
        "taskiq taskiq-redis hiredis",
        f"taskiq worker taskiq_app:broker -w {CORES} --max-async-tasks 100 --log-level ERROR",
        "a process a core, 100 jobs at once each, a stream with acknowledgements",
    ),
    Peer(
        "streaq",
        "streaq",
        f"streaq run streaq_app:worker -w {CORES}",
        "a process a core, 100 jobs at once each, 100 prefetched, results not kept",
    ),
)


def measure_peers(ground: Ground, peers: Sequence[Peer]) -> None:
    """Henchman with one process and with one a core, then each of the others."""
    count, single, note = ground.count(JOBS), ground.count(SINGLE), ground.report.note
    with over_tcp(ground.server) as made:
        for processes in sorted({1, int(CORES)}):
            _ours(ground, made, processes, 20 * count, single)
        for peer in peers:
            if not peer.packages and not shutil.which(peer.name):
                note(peer.name, "not installed here: apt install ruby-sidekiq")
                continue
            print(f"  {peer.name}", file=sys.stderr, flush=True)
            ground.server.clear(ground.raw)
            many = count * peer.times
            try:
                pushes, rate = _measured(ground, peer, made.url, many, single)
            except BenchError as error:  # its trouble is told, and the others are measured
                note(f"{peer.name} was not measured", str(error))
                continue
            ground.report.add(f"{peer.name}_push", f"{peer.name}: pushed one by one", pushes, "jobs/s")
            ground.report.add(f"{peer.name}_drain", f"{peer.name}: drained", rate, "jobs/s")
            said = f"{versions(peer)}; {peer.settings}. Started with: {peer.command}"
            note(f"Settings of {peer.name}", said)


@contextmanager
def over_tcp(made: Server) -> Iterator[Server]:
    """The server at a port, too: how every system connects to it by default."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    made.connect().ask("CONFIG", "SET", "port", port)
    yield made.reached_by(f"redis://127.0.0.1:{port}/0")


def _ours(ground: Ground, made: Server, processes: int, count: int, single: int) -> None:
    ground.server.clear(ground.raw)
    ground.stamps.clear(range(count))
    with made.used():
        job = tell.using(queue=QUEUES[0])
        began = time.perf_counter()
        for number in range(single):
            job.enqueue(number)
        pushes = single / (time.perf_counter() - began)
        job.enqueue_many((number,) for number in range(single, count))
        with worker(made, "-q", QUEUES[0], processes=processes):
            rate = _started(ground, count)
    name = "henchman" if processes == 1 else f"henchman, {processes} processes"
    ground.report.add(f"henchman_{processes}_push", f"{name}: pushed one by one", pushes, "jobs/s")
    ground.report.add(f"henchman_{processes}_drain", f"{name}: drained", rate, "jobs/s")


def _started(ground: Ground, count: int, begun: Sequence[subprocess.Popen[bytes]] = ()) -> float:
    """Jobs a second, from the first start to the last."""
    stamps = ground.stamps

    def ended() -> bool:
        if dead := [process for process in begun if process.poll() is not None]:
            raise BenchError(f"its worker ended with status {dead[0].returncode}")
        return stamps.all_written(range(count))

    wait_for("the jobs", ended, LIMIT, 0.05)
    times = [stamps.monotonic(number) for number in range(count)]
    return (count - 1) / (max(times) - min(times)) * 1e9


def _measured(ground: Ground, peer: Peer, url: str, count: int, single: int) -> tuple[float, float]:
    """(Jobs pushed a second one by one, jobs started a second)."""
    ground.stamps.clear(range(count))
    python = environment(peer)
    env = _env(url)
    program = ["ruby", "sidekiq_app.rb"] if not peer.packages else [str(python), f"{peer.name}_app.py"]
    words = [*program, str(single), str(count)]
    done = subprocess.run(
        words, cwd=HERE / "others", env=env, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    if done.returncode:
        raise BenchError(f"{' '.join(words)} ended with status {done.returncode}:\n{done.stderr}")
    with tempfile.TemporaryFile("w+") as log, workers(peer, python.parent, url, env, log) as begun:
        try:
            rate = _started(ground, count, begun)
        except BenchError as error:
            log.seek(0)
            raise BenchError(f"{error}\n{log.read()[-3000:]}") from error
    return float(done.stdout.split()[-1]), rate


def _env(url: str) -> dict[str, str]:
    code = str(Path(henchman.bench.stamps.__file__))
    ours = {"BENCH_URL": url, "BENCH_STAMPS_CODE": code, "RUBYOPT": "-W0", "dramatiq_queue_prefetch": "128"}
    return {name: value for name, value in os.environ.items() if not name.startswith("HENCHMAN_")} | ours


@contextmanager
def workers(
    peer: Peer, folder: Path, url: str, env: dict[str, str], log: IO[str]
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The workers of a peer, for the length of a block."""
    words = [url if word == "URL" else word for word in peer.command.split()]
    words[0] = str(folder / words[0]) if peer.packages else words[0]
    where = HERE / "others"
    begun = [
        subprocess.Popen(
            words,
            cwd=where,
            env=env | {"PYTHONPATH": str(where)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        for _ in range(peer.instances)
    ]
    try:
        yield begun
    finally:
        for process in begun:
            _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """TERM to the parent, then KILL to whoever of its group is left."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(STOP)


def environment(peer: Peer) -> Path:
    """The Python of a peer's environment, which is made if there is none; of Sidekiq any path."""
    if not peer.packages:
        return HERE
    folder = HERE / ".peers" / peer.name
    python = folder / "bin" / "python"
    ready = folder / "ready"
    if not ready.exists() or ready.read_text() != peer.packages:
        print(f"  installing {peer.packages} into {folder}", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *peer.packages.split()]
        done = subprocess.run(pip, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BenchError(f"{peer.name} could not be installed:\n{done.stderr}")
        ready.write_text(peer.packages)
    return python


def versions(peer: Peer) -> str:
    """The versions of what is measured."""
    if not peer.packages:
        return subprocess.run(["sidekiq", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    names = [word.partition("[")[0] for word in peer.packages.split()]
    code = f"import importlib.metadata as m, json; print(json.dumps([n + ' ' + m.version(n) for n in {names!r}]))"
    told = subprocess.run([str(environment(peer)), "-c", code], capture_output=True, text=True, check=True).stdout
    return ", ".join(json.loads(told))
