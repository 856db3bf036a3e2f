from celery import Celery
from told import URL, numbers, pushed, write

app = Celery(broker=URL)
app.conf.update(
    task_ignore_result=True,
    worker_prefetch_multiplier=100,
    worker_enable_remote_control=False,
    worker_send_task_events=False,
    broker_connection_retry_on_startup=True,
    broker_pool_limit=1,
)


@app.task(name="tell")
def tell(number):
    write(number)


if __name__ == "__main__":
    with app.pool.acquire(block=True) as connection, app.amqp.Producer(connection) as producer:
        pushed(lambda number: tell.apply_async((number,), producer=producer))
        for number in numbers()[1]:
            tell.apply_async((number,), producer=producer)
