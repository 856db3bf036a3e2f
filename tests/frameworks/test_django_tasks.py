"""``django.tasks``: the names of Django's own tests of its backends, asked of ours in a project."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from support import django_project
from support.django_project import Project

pytestmark = pytest.mark.frameworks("it runs projects of Django as processes")

REFERENCE = Path(django_project.__file__).with_name("django_tasks_reference.py")
HEAD = """
try:
    from django.tasks import TaskContext, task
except ModuleNotFoundError:
    from django_tasks import TaskContext, task
"""
WORK = """
@task()
def noop_task(*args, **kwargs):
    return None


@task
def noop_task_from_bare_decorator(*args, **kwargs):
    return None


@task()
async def noop_task_async(*args, **kwargs):
    return None


@task()
def calculate_meaning_of_life():
    return 42


@task()
def failing_task_value_error():
    raise ValueError("This Task failed due to ValueError")


@task()
def failing_task_system_exit():
    raise SystemExit("This Task failed due to SystemExit")


@task()
def complex_exception():
    raise ValueError(ValueError("This task failed"))


@task()
def complex_return_value():
    return {1, 2}


@task(takes_context=True)
def get_task_id(context):
    return context.task_result.id


@task(takes_context=True)
def test_context(context, attempt):
    assert isinstance(context, TaskContext)
    assert context.attempt == attempt


@task(takes_context=True)
def fails_once(context):
    if context.attempt == 1:
        raise ValueError
    return context.attempt
"""
SETTINGS = """
TASKS = {
    "default": {
        "BACKEND": "henchman.contrib.django.tasks.HenchmanBackend",
        "QUEUES": ["default", "queue_1"],
        "OPTIONS": {"retry": False, "priorities": {50: "high"}},
    },
    "plain": {
        "BACKEND": "henchman.contrib.django.tasks.HenchmanBackend",
        "QUEUES": [],
        "OPTIONS": {"retry": 3, "transactional": False},
    },
}
"""


ROOT = Path(__file__).parents[2]
SIX = ROOT / ".venv-django6" / "bin" / "python"  # made by tools/django6 where there is a Python for it


@pytest.mark.parametrize("python", [sys.executable, *([str(SIX)] if SIX.exists() else [])])
def test_the_backend_does_what_djangos_own_tests_ask(python: str, tmp_path: Path, redis_url: str) -> None:
    project = Project(tmp_path, redis_url, SETTINGS)
    project.python = python
    (project.folder / "orders" / "work.py").write_text(HEAD + WORK)
    shutil.copy(REFERENCE, project.folder / "orders" / "tests.py")
    said = project.manage("test", "orders")
    ran = re.search(r"Ran (\d+) tests", said)
    assert ran is not None, said
    assert int(ran[1]) == REFERENCE.read_text().count("def test_")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ('{"priorites": {}}', "there is no option 'priorites'; did you mean 'priorities'?"),
        ('{"priorities": {"high": 50}}', "give queues by priority"),
    ],
)
def test_wrong_options_are_named(options: str, said: str, tmp_path: Path, redis_url: str) -> None:
    settings = SETTINGS.replace('{"retry": 3, "transactional": False}', options)
    project = Project(tmp_path, redis_url, settings, "INSTALLED_APPS += ['django_tasks']\n")
    assert said in project.manage("check", status=1)
