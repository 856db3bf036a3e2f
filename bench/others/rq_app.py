from redis import Redis
from rq import Queue
from told import URL, numbers, pushed

queue = Queue(connection=Redis.from_url(URL))

if __name__ == "__main__":
    pushed(lambda number: queue.enqueue("rq_app.tell", number, result_ttl=0))
    rest = numbers()[1]
    for first in range(rest.start, rest.stop, 1000):
        some = range(first, min(first + 1000, rest.stop))
        queue.enqueue_many([Queue.prepare_data("rq_app.tell", (number,), result_ttl=0) for number in some])
