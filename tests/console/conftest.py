"""An app whose jobs failed, wait, are dead and scheduled, and its console."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from henchman import App
from henchman.store.call import command
from henchman.wire.payload import encode
from support.browsing import DEAD, RETRY, XSS, Browser


@pytest.fixture
def app(redis_url: str) -> Iterator[App]:
    made = App(redis_url=redis_url)
    yield made
    made.close()


@pytest.fixture
def shop(app: App) -> App:
    """Twelve jobs wait in ``mail`` and one in a queue with a wild name; one job is to be retried, one is dead."""

    @app.job(name="shop.mail", queue="mail", secret=("card",))
    def mail(user: int, card: str = "") -> None: ...

    mail.enqueue_many([(user, "4111-1111") for user in range(12)])
    mail.using(delay=3600).enqueue(99)
    now, run = time.time(), app.connections.run
    failed = {"class": "shop.charge", "queue": "pay", "created_at": now - 60, "failed_at": now - 50, "retry_count": 1}
    error = {"error_class": "CardDeclined", "error_message": XSS, "error_backtrace": ["shop.py:7:in charge"]}
    retry = encode({**failed, **error, "jid": RETRY, "args": [2**63, XSS], "retry": 5})
    run(command("ZADD", app.keys.retry, now + 60, retry))
    run(command("ZADD", app.keys.dead, now - 10, encode({**failed, **error, "jid": DEAD, "args": ["A-1"], "retry": 0})))
    run(command("SADD", app.keys.queues, "odd/ü?#<b>"))
    run(command("LPUSH", app.keys.queue("odd/ü?#<b>"), encode({"class": "odd", "args": [], "jid": "f" * 24})))
    return app


@pytest.fixture
def browser(shop: App) -> Browser:
    return Browser(shop.console())
