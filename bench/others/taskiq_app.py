import asyncio
import time

from taskiq_redis import RedisStreamBroker
from told import URL, numbers, told, write

broker = RedisStreamBroker(URL)


@broker.task
async def tell(number: int) -> None:
    write(number)


async def main():
    await broker.startup()
    single, rest = numbers()
    began = time.perf_counter()
    for number in single:
        await tell.kiq(number)
    told(len(single), began)
    for first in range(rest.start, rest.stop, 50):
        await asyncio.gather(*(tell.kiq(number) for number in range(first, min(first + 50, rest.stop))))
    await broker.shutdown()


if __name__ == "__main__":
    asyncio.run(main())
