"""A project with ``henchman.contrib.django``: from ``startproject`` to a job that ran, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from redis import Redis

from support.django_project import Project
from support.worker import until

pytestmark = pytest.mark.frameworks("it runs projects of Django as processes")

CHARGE = """
@app.job
def charge(order: int) -> None:
    print(f"order {order} is charged", flush=True)
"""


@pytest.fixture
def project(tmp_path: Path, redis_url: str) -> Project:
    return Project(tmp_path, redis_url, jobs=CHARGE)


def test_a_job_of_an_app_runs_in_a_worker_of_manage(project: Project, redis: Redis) -> None:
    with project.working() as log:
        said = project.manage("henchman", "enqueue", "orders.jobs.charge", "[17]")
        assert len(said.strip()) == 24
        until(lambda: "order 17 is charged" in log.read_text(), "the job runs")
        until(lambda: redis.get("stat:processed") == b"1", "it is counted")
    assert redis.keys("queue:*") == []


def test_the_whole_command_line_is_there(project: Project, tmp_path: Path) -> None:
    assert '"queues"' in project.manage("henchman", "status", "--json", status=3)  # nothing runs
    assert "did you mean 'status'" in project.manage("henchman", "stats", status=2)
    assert "Background jobs on Redis" in project.manage("help", "henchman")
    assert "Usage: manage.py henchman work" in project.manage("henchman", "work", "--help")
    other = project.manage("henchman", "--settings", "shop.other", "status", status=1)
    assert "shop.other" in other
    called = project.shell(
        "import io, json, contextlib\nfrom django.core.management import call_command\nsaid = io.StringIO()\n"
        "with contextlib.redirect_stdout(said):\n    call_command('henchman', 'queues', '--json')\n"
        "print(said.getvalue())"
    )
    assert called == [] or called["queues"] == []


def test_settings_of_the_project_are_the_apps(tmp_path: Path, redis_url: str) -> None:
    settings = "HENCHMAN = {'namespace': 'shop', 'processes': 2, 'concurrency': 3, 'queues': ['mail', 'default']}"
    project = Project(tmp_path, redis_url, settings, jobs=CHARGE)
    with project.working() as log:
        until(lambda: log.read_text().count("the worker process is ready") == 2, "two processes")
        assert "slots=3" in log.read_text()
    code = "import json\nfrom henchman.contrib.django import app\nc = app.config\n"
    assert project.shell(code + "print(json.dumps([c.namespace, c.concurrency, c.transactional]))") == ["shop", 3, True]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("HENCHMAN = {'redis_ulr': 'redis://localhost'}", "there is no setting 'redis_ulr'; did you mean 'redis_url'?"),
        ("HENCHMAN = {'CONCURRENCY': 3}", "there is no setting 'CONCURRENCY'; did you mean 'concurrency'?"),
        ("HENCHMAN = {'concurrency': 'three'}", "HENCHMAN: "),
        ("HENCHMAN = ['concurrency']", "give a dict of settings"),
        ("from henchman.contrib.django import app", "app is made from the settings"),
    ],
)
def test_wrong_settings_say_what_is_meant(tmp_path: Path, redis_url: str, settings: str, said: str) -> None:
    project = Project(tmp_path, redis_url, settings, jobs=CHARGE)
    assert said in project.manage("check", status=1)


class TestBeforeDjangoHasLoaded:
    def test_a_push_is_refused_with_the_way_out(self, project: Project, redis: Redis) -> None:
        project.jobs(f"{CHARGE}\n\ncharge.enqueue(1)\n")
        said = project.manage("check", status=1)
        assert "Django is still loading" in said
        assert "push from a view, a command, a job" in said
        assert redis.keys("queue:*") == []

    def test_ready_of_a_later_app_may_push(self, project: Project, redis: Redis) -> None:
        apps = project.folder / "orders" / "apps.py"
        text = "\n    def ready(self):\n        from orders.jobs import charge\n\n        charge.enqueue(1)\n"
        apps.write_text(apps.read_text() + text)
        project.manage("check")
        assert redis.llen("queue:default") == 1

    def test_a_project_that_has_not_installed_it_is_told(self, project: Project) -> None:
        with (project.folder / "shop" / "settings.py").open("a") as file:
            file.write("INSTALLED_APPS.remove('henchman.contrib.django')\n")
        code = "import json\nfrom orders.jobs import charge\ntry:\n    charge.enqueue(1)\n"
        said = project.shell(code + "except Exception as error:\n    print(json.dumps(str(error)))")
        assert 'add "henchman.contrib.django" to INSTALLED_APPS' in said


def test_a_push_waits_for_the_commit_by_default(project: Project, redis: Redis) -> None:
    code = """
import json
from django.db import transaction
from orders.jobs import charge

with transaction.atomic():
    kept = charge.enqueue(1)
    during = kept.admission
try:
    with transaction.atomic():
        lost = charge.enqueue(2)
        raise ValueError
except ValueError:
    pass
print(json.dumps([during, kept.admission, lost.problem]))
"""
    during, after, problem = project.shell(code)
    assert (during, after) == ("deferred", "created")
    assert "rolled back" in problem
    assert redis.llen("queue:default") == 1


def test_every_process_finds_a_project_in_another_folder(project: Project, tmp_path: Path, redis: Redis) -> None:
    """``python /srv/shop/manage.py henchman work`` from anywhere."""
    manage = project.folder / "manage.py"
    project.folder, elsewhere = tmp_path, manage
    (tmp_path / "manage.py").write_text(
        f"import runpy, sys\nsys.argv[0] = {str(elsewhere)!r}\n"
        f"sys.path[0] = {str(elsewhere.parent)!r}\n"
        f"runpy.run_path({str(elsewhere)!r}, run_name='__main__')\n"
    )
    with project.working() as log:
        until(lambda: "jobs=1" in log.read_text(), "the job is found")


def test_fixtures_of_pytest_know_the_app(project: Project) -> None:
    text = """
from django.db import transaction
from orders.jobs import charge


def test_pushed(henchman_fake, henchman_commits):
    with transaction.atomic():
        charge.enqueue(17)
        assert len(henchman_fake.deferred) == 1
    henchman_fake.assert_enqueued(charge, 17)

"""
    (project.folder / "test_orders.py").write_text(text)
    (project.folder / "conftest.py").write_text("import django\n\ndjango.setup()\n")
    said = project.pytest()
    assert "1 passed" in said
