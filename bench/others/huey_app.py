from huey import RedisHuey
from told import URL, numbers, pushed, write

huey = RedisHuey("bench", url=URL, results=False)


@huey.task()
def tell(number):
    write(number)


def main():
    from huey_app import tell  # under the name that the workers know

    pushed(tell)
    for number in numbers()[1]:
        tell(number)


if __name__ == "__main__":
    main()
