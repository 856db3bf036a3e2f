"""The backend of ``django.tasks`` (Django 6; before that the package ``django-tasks``): each task is a Henchman job.

What it does not promise: a task may run twice, as any job. What is known of its runs is written beside the job, without
its fence: of a run that was killed the last words may be missing, and a status then comes from where the job is.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import socket
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone
from django.utils.module_loading import import_string

from henchman.contrib.django.project import project_app
from henchman.errors import DefinitionError, HenchmanError, JobShutdown, UnknownJob
from henchman.kernel.text import as_shown, did_you_mean
from henchman.store.call import Call, command
from henchman.wire import jsontext, times
from henchman.work.current import current_job

try:
    from django.tasks import task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
    from django.utils.json import normalize_json
except ModuleNotFoundError:  # Django 5
    from django_tasks import task_backends
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django_tasks.exceptions import InvalidTaskError as InvalidTask
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.signals import task_enqueued, task_finished, task_started
    from django_tasks.utils import normalize_json

__all__ = ["HenchmanBackend"]

NAME = "django.task"  # of the job, on the wire
DAY = 86_400.0
_OPTIONS = ("priorities", "transactional", "retry", "timeout", "result_ttl")
ENDED = ("SUCCESSFUL", "FAILED")
_WAITING = ("enqueued", "scheduled", "retrying", "blocked", "deferred")
#: endings of a run after which the job goes on
_GOES_ON = ("retry", "snoozed", "deferred", "released", "interrupted")


class HenchmanBackend(BaseTaskBackend):  # type: ignore[misc]
    """``TASKS = {"default": {"BACKEND": "henchman.contrib.django.tasks.HenchmanBackend"}}``.

    ``QUEUES`` are Henchman's queues, and workers serve them. ``OPTIONS``: ``priorities``, from which priority on a task
    goes to which queue ({50: "high"}); ``transactional``: whether ``enqueue`` waits for the commit, in place of the
    app's own setting; ``retry`` and ``timeout`` as of ``@app.job``; ``result_ttl``: how many seconds a result is kept.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        for name in self.options:
            if name not in _OPTIONS:
                near = did_you_mean(str(name), _OPTIONS)
                raise ImproperlyConfigured(f"TASKS[{alias!r}]: there is no option {name!r}{near}")
        self._queues_by_priority = _priorities(alias, self.options.get("priorities", {}))
        self.supports_priority = bool(self._queues_by_priority)
        self.result_ttl = float(self.options.get("result_ttl", DAY))
        self._app = project_app()
        self._app.registry.more_queues |= {*self.queues, *self._queues_by_priority.values()}

    def validate_task(self, task: Any) -> None:
        """InvalidTask when the task cannot be run here."""
        super().validate_task(task)
        self._queue_of(task)

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Push a job for ``task``; its id is that of the result."""
        self.validate_task(task)
        result = self._result(task, "", {"args": list(args), "kwargs": dict(kwargs)})
        job, arguments = self._pushed(task), (task.module_path, result.args, result.kwargs, self.alias)
        handle = job.enqueue(*arguments)
        _fill(result, id=handle.jid, enqueued_at=None if handle.admission == "deferred" else timezone.now())
        task_enqueued.send(sender=type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """The result of this id; TaskResultDoesNotExist when nothing is known of it, or no longer."""
        try:
            record = self.read(result_id)
            if record is None or record["status"] not in ENDED:
                record = self._now(result_id, record)
            return self._result(_task_at(record["task"], self.alias), result_id, record)
        except HenchmanError as error:
            if isinstance(error, UnknownJob):
                raise TaskResultDoesNotExist(str(error)) from error
            raise

    def _queue_of(self, task: Any) -> str:
        if not task.priority:
            return str(task.queue_name)
        found = [one for one in self._queues_by_priority if one <= task.priority]
        if not found:
            known = ", ".join(map(str, sorted(self._queues_by_priority)))
            raise InvalidTask(f"priority {task.priority} leads to no queue; OPTIONS has priorities from {known} on")
        return self._queues_by_priority[max(found)]

    def _pushed(self, task: Any) -> Any:
        """The job with what the task and the backend say of a push."""
        said: dict[str, Any] = {"queue": self._queue_of(task)}
        said |= {name: self.options[name] for name in ("retry", "timeout") if name in self.options}
        if self.options.get("transactional") is False:
            said["now"] = True
        if task.run_after is not None:
            said["at"] = task.run_after if timezone.is_aware(task.run_after) else timezone.make_aware(task.run_after)
        return run_task.using(**said)

    def _now(self, jid: str, record: dict[str, Any] | None) -> dict[str, Any]:
        """``record`` with the status that follows from where the job is; UnknownJob when there is none."""
        status = self._app.job_status(jid)
        if status.state == "unknown":  # a job that moves may be missed once, or has ended meanwhile
            record = self.read(jid)
            if record is not None and record["status"] in ENDED:
                return record
            status = self._app.job_status(jid)
        if record is None:
            if status.name != NAME:
                raise UnknownJob(f"there is no result of a task {as_shown(jid, 100)}")
            record = _begun(*status.args)
            record["enqueued_at"] = status.enqueued_at or status.created_at
        found = "READY" if status.state in _WAITING else "RUNNING" if status.state == "working" else "FAILED"
        return record | {"status": found}

    # ---- what is known of runs

    def read(self, jid: str) -> dict[str, Any] | None:
        """What was written of the runs of a task."""
        text: bytes | None = self._app.connections.run(command("GET", self._app.keys.task(jid)))
        return None if text is None else json.loads(text)

    def write(self, jid: str, record: Mapping[str, Any]) -> None:
        """Write it, for ``result_ttl`` from now on."""
        ttl = str(max(round(self.result_ttl * 1000), 1))
        call: Call[Any] = command("SET", self._app.keys.task(jid), jsontext.dumps(record), "PX", ttl)
        self._app.connections.run(call)

    def _result(self, task: Any, jid: str, record: Mapping[str, Any]) -> Any:
        moments = ("enqueued_at", "started_at", "finished_at", "last_attempted_at")
        result = TaskResult(
            task=task,
            id=jid,
            status=TaskResultStatus(record.get("status", "READY")),
            args=record["args"],
            kwargs=record["kwargs"],
            backend=self.alias,
            errors=[TaskError(exception_class_path=path, traceback=text) for path, text in record.get("errors", ())],
            worker_ids=list(record.get("worker_ids", ())),
            **{name: _moment(record.get(name)) for name in moments},
        )
        _fill(result, _return_value=record.get("value"))
        return result

    def run(self, task: Any, jid: str, record: dict[str, Any]) -> None:
        """One run, here and now: what it does is written, and told to the signals of Django."""
        result = self._result(task, jid, record)
        task_started.send(sender=type(self), task_result=result)
        context = (TaskContext(task_result=result),) if task.takes_context else ()
        try:
            value = normalize_json(task.call(*context, *result.args, **result.kwargs))
        except JobShutdown:
            raise
        except BaseException as error:
            path = f"{type(error).__module__}.{type(error).__qualname__}"
            record["errors"].append([path, "".join(traceback.format_exception(error))])
            self.write(jid, record | {"status": "READY"})
            raise
        record |= {"status": "SUCCESSFUL", "value": value, "finished_at": timezone.now().timestamp()}
        self.write(jid, record)
        task_finished.send(sender=type(self), task_result=self._result(task, jid, record))

    def failed(self, jid: str, args: Sequence[Any]) -> None:
        """The job has ended otherwise: no run of it follows."""
        record = self.read(jid) or _begun(*args)
        record |= {"status": "FAILED", "finished_at": timezone.now().timestamp()}
        self.write(jid, record)
        task_finished.send(
            sender=type(self), task_result=self._result(_task_at(record["task"], self.alias), jid, record)
        )


def _priorities(alias: str, said: Any) -> dict[int, str]:
    fine = isinstance(said, Mapping) and all(isinstance(n, int) and isinstance(queue, str) for n, queue in said.items())
    if not fine:
        text = f"TASKS[{alias!r}]: priorities = {as_shown(said, 200)}: give queues by priority, such as {{50: 'high'}}"
        raise ImproperlyConfigured(text)
    return dict(said)


def serve_queues() -> None:
    """Make our backends, so that a worker serves their queues."""
    for alias, entry in getattr(settings, "TASKS", {}).items():
        if entry.get("BACKEND") == f"{__name__}.{HenchmanBackend.__name__}":
            task_backends[alias].check()


@project_app().job(name=NAME)
def run_task(path: str, args: list[Any], kwargs: dict[str, Any], backend: str) -> None:
    """The job of every task: run the task at ``path`` with the backend that it was enqueued with."""
    task = _task_at(path, backend)
    found = _backend(task, backend)
    job = current_job()
    record = (found.read(job.jid) if job.attempt > 1 else None) or _begun(path, args, kwargs, backend)
    now = timezone.now().timestamp()
    started = record["started_at"] or now
    record |= {"status": "RUNNING", "started_at": started, "last_attempted_at": now, "finished_at": None}
    record["enqueued_at"] = record["enqueued_at"] or times.read(job.payload.get("enqueued_at"))
    record["worker_ids"].append(f"{socket.gethostname()}:{os.getpid()}")
    found.write(job.jid, record)
    found.run(task, job.jid, record)


def _on_failure(*, run: Any, outcome: Any, **_: Any) -> None:
    if run.name == NAME and outcome.ending not in _GOES_ON and len(run.args) == 4:
        _backend(_task_at(run.args[0], run.args[3]), run.args[3]).failed(run.jid, run.args)


project_app().events.on("job_failed", _on_failure)


def _begun(path: str, args: list[Any], kwargs: dict[str, Any], backend: str) -> dict[str, Any]:
    """What is known of a task before its first run."""
    moments = dict.fromkeys(("enqueued_at", "started_at", "finished_at", "last_attempted_at"))
    return {"task": path, "args": args, "kwargs": kwargs, "worker_ids": [], "errors": [], "status": "READY", **moments}


def _task_at(path: str, alias: str) -> Any:
    """The task at ``path``, for the backend ``alias``. A payload imports no module that is not of the project.

    DefinitionError when there is no such task.
    """
    module = path.rpartition(".")[0]
    ours = {one.name.partition(".")[0] for one in apps.get_app_configs()}
    if module not in sys.modules and module.partition(".")[0] not in ours:
        raise DefinitionError(f"{as_shown(path, 200)} is no task of an app in INSTALLED_APPS")
    try:
        found = import_string(path)
    except ImportError as error:
        raise DefinitionError(f"there is no task {as_shown(path, 200)}: {error}") from error
    if not isinstance(found, Task):
        raise DefinitionError(f"{as_shown(path, 200)} is no task: decorate it with @task")
    return found if found.backend == alias else found.using(backend=alias)


def _backend(task: Any, alias: str) -> HenchmanBackend:
    found = task.get_backend()
    if not isinstance(found, HenchmanBackend):
        raise DefinitionError(f"TASKS[{alias!r}] is no HenchmanBackend here: do its workers have these settings?")
    return found


def _fill(result: Any, **values: Any) -> None:
    """Results are frozen, and backends fill them all the same."""
    for name, value in values.items():
        object.__setattr__(result, name, value)


def _moment(seconds: float | None) -> dt.datetime | None:
    if seconds is None:
        return None
    made = dt.datetime.fromtimestamp(seconds, dt.UTC)
    return made if timezone.is_aware(timezone.now()) else timezone.make_naive(made)
