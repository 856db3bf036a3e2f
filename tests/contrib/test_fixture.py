"""``henchman_commits``: tests of users whose own transaction is never committed."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

SHOP = """
import sqlalchemy as sa
from django.conf import settings
from sqlalchemy import orm

settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}, INSTALLED_APPS=[], USE_TZ=True
)

import django

django.setup()

from django.db import transaction

from henchman import App
from henchman.contrib.sqlalchemy import bind

app = App(redis_url="redis://nobody.invalid:1", transactional=True)
engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
Session = orm.sessionmaker(engine)
bind(app, Session)

@app.job
def charge(order: str) -> None: ...

def place_order(order: str, fails: bool = False) -> None:
    with transaction.atomic():
        charge.enqueue(order)
        if fails:
            raise ValueError("no")
"""
CONFTEST = """
import pytest, shop

@pytest.fixture(scope="session")
def henchman_app():
    return shop.app
"""


def test_what_would_have_been_pushed_is_pushed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(shop=SHOP, conftest=CONFTEST)
    pytester.makepyfile(
        """
        import pytest
        from django.test import TestCase
        from sqlalchemy import orm
        from shop import Session, app, charge, engine, place_order

        class TestOrders(TestCase):
            @pytest.fixture(autouse=True)
            def _fixtures(self, henchman_fake, henchman_commits):
                self.jobs, self.commits = henchman_fake, henchman_commits

            def test_placed(self):
                place_order("17")
                with pytest.raises(ValueError):
                    place_order("18", fails=True)
                self.jobs.assert_not_enqueued(charge)
                assert [one.args for one in self.jobs.deferred] == [("17",)]
                assert self.commits() == 1
                self.jobs.assert_enqueued(charge, "17", count=1)
                self.jobs.assert_not_enqueued(charge, "18")
                assert self.commits() == 0

            def test_captured(self):
                with self.captureOnCommitCallbacks(execute=True):
                    place_order("17")
                self.jobs.assert_enqueued(charge, "17", count=1)

        def test_the_recipe_of_sqlalchemy(henchman_fake, henchman_commits):
            with engine.connect() as connection:
                outer = connection.begin()
                with Session(bind=connection, join_transaction_mode="create_savepoint") as session, app.inside(session):
                    charge.enqueue("1")
                    session.commit()
                    henchman_fake.assert_enqueued(charge, "1")
                    charge.enqueue("2")  # the commit is the caller's, who is not part of this test
                    assert henchman_commits() == 1
                    henchman_fake.assert_enqueued(charge, "2")
                    charge.enqueue("3")
                    session.rollback()
                    assert henchman_commits() == 0
                outer.rollback()
            henchman_fake.assert_not_enqueued(charge, "3")
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:randomly", timeout=150)
    result.assert_outcomes(passed=3)
