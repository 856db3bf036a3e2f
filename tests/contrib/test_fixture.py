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


def test_a_test_that_never_commits_is_told_why_nothing_came(pytester: pytest.Pytester) -> None:
    """What is asserted and what is drained names the job, that it waits, and the two ways to push it."""
    pytester.makepyfile(shop=SHOP, conftest=CONFTEST)
    pytester.makepyfile(
        """
        import pytest
        from django.test import TestCase
        from shop import app, charge, place_order

        class TestOrders(TestCase):
            @pytest.fixture(autouse=True)
            def _fixtures(self, henchman_fake):
                self.jobs = henchman_fake

            def test_asserted(self):
                place_order("17")
                self.jobs.assert_enqueued(charge, "17")

            def test_drained(self):
                place_order("17")
                assert len(self.jobs.drain_all()) == 1

            def test_waited_for(self):
                from django.db import transaction

                with transaction.atomic():
                    handle = charge.using(result_ttl=60).enqueue("17")
                handle.result(timeout=1)
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:randomly")
    result.assert_outcomes(failed=3)
    way = "*captureOnCommitCallbacks(execute=True), or call the fixture henchman_commits()*"
    result.stdout.fnmatch_lines(
        [
            "*expected a push of shop.charge('17'); found none*",
            f"*these wait for the commit of a transaction; {way}",
            "*shop.charge('17')*",
            "*nothing was enqueued*",
            f"*a drain runs none of them: shop.charge (1); {way}",
            "*gives no result yet: it waits for the commit of the transaction that it was pushed in*",
        ]
    )


def test_a_worker_that_is_drained_says_so_too(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(shop=SHOP, conftest=CONFTEST)
    pytester.makepyfile(
        """
        from django.test import TestCase
        import pytest
        from shop import place_order

        class TestOrders(TestCase):
            @pytest.fixture(autouse=True)
            def _fixtures(self, henchman, caplog):
                self.henchman, self.log = henchman, caplog

            def test_drained(self):
                with self.captureOnCommitCallbacks(execute=True):
                    place_order("16")
                self.henchman.drain()
                assert "a drain runs none of them" not in self.log.text
                place_order("17")
                self.henchman.drain()
                assert "a drain runs none of them: shop.charge (1)" in self.log.text
        """
    )
    pytester.runpytest_subprocess("-p", "no:randomly").assert_outcomes(passed=1)
