import asyncio
import time

from saq import Queue
from told import URL, numbers, told, write

queue = Queue.from_url(URL)


async def tell(ctx, *, number):
    write(number)


settings = {"queue": queue, "functions": [tell], "concurrency": 100}


async def main():
    await queue.connect()
    single, rest = numbers()
    began = time.perf_counter()
    for number in single:
        await queue.enqueue("tell", number=number, ttl=-1)
    told(len(single), began)
    for first in range(rest.start, rest.stop, 50):
        some = range(first, min(first + 50, rest.stop))
        await asyncio.gather(*(queue.enqueue("tell", number=number, ttl=-1) for number in some))
    await queue.disconnect()


if __name__ == "__main__":
    asyncio.run(main())
