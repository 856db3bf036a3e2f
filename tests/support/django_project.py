"""A Django project as ``django-admin startproject`` makes it, in a folder of its own, and its commands as processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.django import django_database
from support.processes import clean_environ
from support.worker import until

__all__ = ["Project"]


class Project:
    """``shop`` with one app, ``orders``. ``settings`` are lines at the end of its settings."""

    python = sys.executable

    def __init__(
        self, folder: Path, redis_url: str, *settings: str, database: str | None = None, jobs: str = ""
    ) -> None:
        self.folder = folder / "shop"
        self.env = _environ(redis_url)
        folder.mkdir(exist_ok=True)
        self._run(folder, "-m", "django", "startproject", "shop")
        self.manage("startapp", "orders")
        self.jobs(jobs)
        lines = ['INSTALLED_APPS += ["henchman.contrib.django", "orders"]', *settings]
        if database is not None:
            lines.insert(0, f"DATABASES = {{'default': {django_database(database)!r}}}")
        with (self.folder / "shop" / "settings.py").open("a", encoding="utf-8") as file:
            file.write("\n".join(["", *lines, ""]))

    @classmethod
    def at(cls, folder: Path, redis_url: str) -> Project:
        """A project that is there already."""
        project = cls.__new__(cls)
        project.folder, project.env = folder, _environ(redis_url)
        return project

    def jobs(self, text: str) -> None:
        """Write ``orders/jobs.py``."""
        head = "from henchman.contrib.django import app\n\n\n"
        (self.folder / "orders" / "jobs.py").write_text(head + text, encoding="utf-8")

    def manage(self, *words: str, status: int = 0, **env: str) -> str:
        """What ``manage.py`` with these words writes; it must end with ``status``."""
        return self._run(self.folder, "manage.py", *words, status=status, **env)

    def pytest(self, *words: str) -> str:
        """What pytest says of the project's own tests, which must pass."""
        return self._run(self.folder, "-m", "pytest", "-p", "no:randomly", "-p", "no:cacheprovider", *words, **SETTINGS)

    def shell(self, code: str) -> Any:
        """The value of the JSON that ``code`` prints in the project."""
        said = self._run(self.folder, "-c", f"import django; django.setup()\n{code}", **SETTINGS)
        return json.JSONDecoder().raw_decode(said)[0]  # warnings may stand behind it

    def _run(self, folder: Path, *words: str, status: int = 0, **env: str) -> str:
        done = subprocess.run(
            [self.python, *words],
            cwd=folder,
            env=self.env | env,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == status, f"{words} ended with {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    @contextmanager
    def working(self, *words: str, **env: str) -> Iterator[Path]:
        """A worker for the length of a block: the file that it writes."""
        log = self.folder / "worker.log"
        before = log.read_text().count("the worker process is ready") if log.exists() else 0
        with log.open("ab") as out:
            worker = subprocess.Popen(
                [sys.executable, "manage.py", "henchman", "work", *words],
                cwd=self.folder,
                env=self.env | env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                process_group=0,
            )
        self.worker_pid = worker.pid
        try:
            until(
                lambda: log.read_text().count("the worker process is ready") > before or worker.poll() is not None,
                "the worker is ready",
            )
            assert worker.poll() is None, log.read_text()
            yield log
        finally:
            worker.send_signal(signal.SIGTERM)
            try:
                worker.wait(60)
            finally:
                worker.kill()
                worker.wait()


def _environ(redis_url: str) -> dict[str, str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    made = clean_environ() | {"PATH": path, "HENCHMAN_REDIS_URL": redis_url, "PYTHONDONTWRITEBYTECODE": ""}
    made.pop("DJANGO_SETTINGS_MODULE", None)
    return made


SETTINGS = {"DJANGO_SETTINGS_MODULE": "shop.settings"}
