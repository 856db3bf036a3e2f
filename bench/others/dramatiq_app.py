import dramatiq
from dramatiq.brokers.redis import RedisBroker
from told import URL, numbers, pushed, write

dramatiq.set_broker(RedisBroker(url=URL))


@dramatiq.actor(max_retries=3)
def tell(number):
    write(number)


if __name__ == "__main__":
    pushed(tell.send)
    for number in numbers()[1]:
        tell.send(number)
