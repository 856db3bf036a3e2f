import asyncio
import time

from arq import create_pool
from arq.connections import RedisSettings
from told import URL, numbers, told, write


async def tell(ctx, number):
    write(number)


class WorkerSettings:
    functions = (tell,)
    redis_settings = RedisSettings.from_dsn(URL)
    max_jobs = 100
    keep_result = 0
    poll_delay = 0.05


async def main():
    redis = await create_pool(WorkerSettings.redis_settings)
    single, rest = numbers()
    began = time.perf_counter()
    for number in single:
        await redis.enqueue_job("tell", number)
    told(len(single), began)
    for first in range(rest.start, rest.stop, 50):
        some = range(first, min(first + 50, rest.stop))
        await asyncio.gather(*(redis.enqueue_job("tell", number) for number in some))


if __name__ == "__main__":
    asyncio.run(main())
