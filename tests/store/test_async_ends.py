"""An event loop that ends takes its connections with it: no warning, no socket left open."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading

from henchman.store.aconnection import AsyncConnections
from henchman.store.call import command
from support.store import Store
from support.worker import until

SCRIPT = """
import asyncio, sys
from henchman import App

app = App(redis_url=sys.argv[1], namespace="ends")

async def main():
    await asyncio.gather(*(app.aenqueue("Other", number) for number in range(5)))

for _ in range(3):
    asyncio.run(main())
"""


def test_asyncio_run_again_and_again_leaves_nothing_open(redis_url: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", SCRIPT, redis_url],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    # asyncio's own debug mode remarks on a slow step ("took 0.1 seconds"): that is no warning
    left = [line for line in ran.stderr.splitlines() if "Warning" in line or "Traceback" in line]
    assert (ran.returncode, left) == (0, [])


def test_its_connections_are_closed_when_a_loop_ends(redis_url: str, store: Store) -> None:
    pools = AsyncConnections(redis_url)
    ids = {asyncio.run(pools.run(command("CLIENT", "ID"))) for _ in range(3)}
    assert len(ids) == 3
    gc.collect()  # what is left open would warn here
    until(lambda: not any(b"id=%d " % one in store.ask("CLIENT", "LIST") for one in ids), "no connection is left")


def test_a_loop_may_end_in_one_thread_while_another_works(redis_url: str) -> None:
    pools = AsyncConnections(redis_url)
    answers: list[bytes] = []

    def body() -> None:
        answers.extend(asyncio.run(pools.run(command("PING"))) for _ in range(20))

    threads = [threading.Thread(target=body) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert answers == [b"PONG"] * 80


def test_a_task_that_is_cancelled_at_any_moment_of_a_call_hears_of_it(redis_url: str) -> None:
    """Python 3.11's ``wait_for``, in which redis-py sends, forgets a cancellation that comes when it has just sent."""
    pools = AsyncConnections(redis_url)

    async def cancelled_after(turns: int) -> str:
        ended = []

        async def call() -> None:
            await pools.run(command("PING"))
            ended.append("the call")
            await asyncio.sleep(0)
            ended.append("what comes after it")

        task = asyncio.ensure_future(call())
        for _ in range(turns):
            await asyncio.sleep(0)
        had_ended = "the call" in ended
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return "ended before" if had_ended else "cancelled" if task.cancelled() and not ended else f"went on: {ended}"

    async def main() -> set[str]:
        await pools.run(command("PING"))  # from here on there is a connection
        return {await cancelled_after(turns) for turns in range(1, 40) for _ in range(20)}

    assert asyncio.run(main()) <= {"cancelled", "ended before"}
