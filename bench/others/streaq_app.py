import time

from anyio import run
from streaq import Worker
from told import URL, numbers, told, write

worker = Worker(redis_url=URL, concurrency=100, prefetch=100)


@worker.task(ttl=0)
async def tell(number: int) -> None:
    write(number)


async def main():
    single, rest = numbers()
    async with worker:
        began = time.perf_counter()
        for number in single:
            await tell.enqueue(number)
        told(len(single), began)
        for first in range(rest.start, rest.stop, 1000):
            await worker.enqueue_many([tell.enqueue(number) for number in range(first, min(first + 1000, rest.stop))])


if __name__ == "__main__":
    run(main)
