"""The tests of Django's own backends of tasks, by their names, asked of ours. A project's ``orders/tests.py``."""

from __future__ import annotations

import sys
import time
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.test import SimpleTestCase, TransactionTestCase
from django.utils import timezone
from orders import work

from henchman.contrib.django import app
from henchman.contrib.django.tasks import HenchmanBackend

try:
    from django.tasks import TaskResultStatus, default_task_backend, task, task_backends
    from django.tasks.base import Task
    from django.tasks.exceptions import InvalidTask, InvalidTaskBackend, TaskResultDoesNotExist, TaskResultMismatch
    from django.tasks.signals import task_enqueued, task_finished, task_started
except ModuleNotFoundError:
    from django_tasks import TaskResultStatus, default_task_backend, task, task_backends
    from django_tasks.base import Task
    from django_tasks.exceptions import InvalidTaskBackendError as InvalidTaskBackend
    from django_tasks.exceptions import InvalidTaskError as InvalidTask
    from django_tasks.exceptions import TaskResultDoesNotExist, TaskResultMismatch
    from django_tasks.signals import task_enqueued, task_finished, task_started


def ended(result: Any) -> Any:
    end = time.monotonic() + 30
    while not result.is_finished:
        assert time.monotonic() < end, result
        time.sleep(0.02)  # between two looks
        result.refresh()
    return result


class WithWorker:
    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()  # type: ignore[misc]
        cls.worker = app.embed(concurrency=2)
        cls.worker.start()

    @classmethod
    def tearDownClass(cls) -> None:
        cls.worker.stop()
        super().tearDownClass()  # type: ignore[misc]


class BackendTestCase(SimpleTestCase):
    """No worker: tasks stay READY."""

    def test_using_correct_backend(self) -> None:
        self.assertEqual(default_task_backend, task_backends["default"])
        self.assertIsInstance(task_backends["default"], HenchmanBackend)
        self.assertEqual(default_task_backend.alias, "default")

    def test_task_decorator(self) -> None:
        self.assertIsInstance(work.noop_task, Task)
        self.assertIsInstance(work.noop_task_async, Task)
        self.assertIsInstance(work.noop_task_from_bare_decorator, Task)

    def test_enqueue_task(self) -> None:
        for one in [work.noop_task, work.noop_task_async]:
            result = one.enqueue(1, two=3)
            self.assertEqual(result.status, TaskResultStatus.READY)
            self.assertIs(result.is_finished, False)
            self.assertIsNone(result.started_at)
            self.assertIsNone(result.last_attempted_at)
            self.assertIsNone(result.finished_at)
            with self.assertRaisesMessage(ValueError, "Task has not finished yet"):
                result.return_value  # noqa: B018
            self.assertEqual(result.task, one)
            self.assertEqual(result.args, [1])
            self.assertEqual(result.kwargs, {"two": 3})
            self.assertEqual(result.attempts, 0)

    async def test_enqueue_task_async(self) -> None:
        for one in [work.noop_task, work.noop_task_async]:
            result = await one.aenqueue()
            self.assertEqual(result.status, TaskResultStatus.READY)
            self.assertEqual((result.task, result.args, result.kwargs), (one, [], {}))

    def test_enqueue_with_invalid_argument(self) -> None:
        with self.assertRaisesMessage(TypeError, "Unsupported type"):
            work.noop_task.enqueue(datetime.now())

    async def test_aenqueue_with_invalid_argument(self) -> None:
        with self.assertRaisesMessage(TypeError, "Unsupported type"):
            await work.noop_task.aenqueue(datetime.now())

    def test_get_result(self) -> None:
        result = default_task_backend.enqueue(work.noop_task, [1], {"two": 3})
        found = work.noop_task.get_result(result.id)
        self.assertEqual((found.id, found.status, found.task), (result.id, result.status, result.task))
        self.assertEqual((found.args, found.kwargs), ([1], {"two": 3}))
        self.assertIsNotNone(found.enqueued_at)

    async def test_get_result_async(self) -> None:
        result = await default_task_backend.aenqueue(work.noop_task, (), {})
        self.assertEqual((await work.noop_task.aget_result(result.id)).id, result.id)

    async def test_get_missing_result(self) -> None:
        with self.assertRaises(TaskResultDoesNotExist):
            default_task_backend.get_result("123")
        with self.assertRaises(TaskResultDoesNotExist):
            await default_task_backend.aget_result("123")

    def test_get_incorrect_result(self) -> None:
        result = default_task_backend.enqueue(work.noop_task_async, (), {})
        with self.assertRaisesMessage(TaskResultMismatch, "Task does not match"):
            work.noop_task.get_result(result.id)

    async def test_get_incorrect_result_async(self) -> None:
        result = await default_task_backend.aenqueue(work.noop_task_async, (), {})
        with self.assertRaisesMessage(TaskResultMismatch, "Task does not match"):
            await work.noop_task.aget_result(result.id)

    async def test_refresh_result(self) -> None:
        result = await work.noop_task.aenqueue()
        result.refresh()
        self.assertEqual(result.status, TaskResultStatus.READY)
        await result.arefresh()
        self.assertEqual(result.status, TaskResultStatus.READY)

    def test_using_priority(self) -> None:
        self.assertEqual(work.noop_task.priority, 0)
        self.assertEqual(work.noop_task.using(priority=60).priority, 60)
        result = work.noop_task.using(priority=60).enqueue()
        self.assertEqual(app.job_status(result.id).queue, "high")
        self.assertEqual(work.noop_task.priority, 0)

    def test_priority_without_a_queue(self) -> None:
        with self.assertRaisesMessage(InvalidTask, "priority 10 leads to no queue; OPTIONS has priorities from 50 on"):
            work.noop_task.using(priority=10)
        with self.assertRaisesMessage(InvalidTask, "Backend does not support setting priority of tasks."):
            work.noop_task.using(priority=10, backend="plain")

    def test_invalid_priority(self) -> None:
        for priority in (-101, 101, 3.1):
            with self.assertRaisesMessage(InvalidTask, "priority must be a whole number between -100 and 100."):
                work.noop_task.using(priority=priority)

    def test_using_queue_name(self) -> None:
        self.assertEqual(work.noop_task.using(queue_name="queue_1").queue_name, "queue_1")
        result = work.noop_task.using(queue_name="queue_1").enqueue()
        self.assertEqual(app.job_status(result.id).queue, "queue_1")

    def test_unknown_queue_name(self) -> None:
        with self.assertRaisesMessage(InvalidTask, "Queue 'queue-2' is not valid for backend."):
            work.noop_task.using(queue_name="queue-2")

    def test_using_run_after(self) -> None:
        later = timezone.now() + timedelta(hours=1)
        result = work.noop_task.using(run_after=later).enqueue()
        status = app.job_status(result.id)
        self.assertEqual((status.state, round(status.at or 0)), ("scheduled", round(later.timestamp())))
        self.assertEqual(default_task_backend.get_result(result.id).status, TaskResultStatus.READY)

    def test_naive_datetime(self) -> None:
        with self.assertRaisesMessage(InvalidTask, "run_after must be an aware datetime."):
            work.noop_task.using(run_after=datetime.now())

    def test_using_unknown_backend(self) -> None:
        with self.assertRaisesMessage(InvalidTaskBackend, "The connection 'unknown' doesn't exist."):
            work.noop_task.using(backend="unknown")

    def test_using_creates_new_instance(self) -> None:
        self.assertEqual(work.noop_task.using(), work.noop_task)
        self.assertIsNot(work.noop_task.using(), work.noop_task)

    def test_call_task(self) -> None:
        self.assertEqual(work.calculate_meaning_of_life.call(), 42)

    async def test_call_task_async(self) -> None:
        self.assertEqual(await work.calculate_meaning_of_life.acall(), 42)

    def test_call_async_task_sync(self) -> None:
        self.assertIsNone(work.noop_task_async.call())

    def test_invalid_function(self) -> None:
        for function in [any, self.test_invalid_function]:
            with self.assertRaisesMessage(InvalidTask, "Task function must be defined at a module level."):
                task()(function)

    def test_takes_context_without_taking_context(self) -> None:
        with self.assertRaisesMessage(InvalidTask, "does not have a first argument of 'context'"):
            task(takes_context=True)(work.calculate_meaning_of_life.func)

    def test_get_backend(self) -> None:
        self.assertIsInstance(work.noop_task.get_backend(), HenchmanBackend)
        self.assertEqual(work.noop_task.using(backend="plain").get_backend().alias, "plain")

    def test_check(self) -> None:
        self.assertEqual(list(default_task_backend.check()), [])

    def test_queues_are_served(self) -> None:
        self.assertLessEqual({"default", "queue_1", "high"}, set(app.registry.queues()))


class RunningTestCase(WithWorker, SimpleTestCase):
    def test_result(self) -> None:
        heard: list[Any] = []

        def hear(signal: Any, sender: Any, task_result: Any, **_: Any) -> None:
            heard.append((signal, sender, task_result.id, task_result.status))

        for signal in (task_enqueued, task_started, task_finished):
            signal.connect(hear)
        try:
            result = ended(default_task_backend.enqueue(work.calculate_meaning_of_life, [], {}))
        finally:
            for signal in (task_enqueued, task_started, task_finished):
                signal.disconnect(hear)
        self.assertEqual((result.status, result.return_value), (TaskResultStatus.SUCCESSFUL, 42))
        states = (TaskResultStatus.READY, TaskResultStatus.RUNNING, TaskResultStatus.SUCCESSFUL)
        signals = (task_enqueued, task_started, task_finished)
        told = [(one, HenchmanBackend, result.id, state) for one, state in zip(signals, states, strict=True)]
        heard.sort(key=lambda one: signals.index(one[0]))  # the worker may be faster than the push
        self.assertEqual(heard, told)

    async def test_result_async(self) -> None:
        result = ended(await default_task_backend.aenqueue(work.calculate_meaning_of_life, [], {}))
        self.assertEqual(result.return_value, 42)

    def test_enqueued_task_runs(self) -> None:
        for one in [work.noop_task, work.noop_task_async]:
            result = ended(one.enqueue(1, two=3))
            self.assertEqual(result.status, TaskResultStatus.SUCCESSFUL)
            self.assertGreaterEqual(result.finished_at, result.started_at)
            self.assertEqual(result.last_attempted_at, result.started_at)
            self.assertIsNone(result.return_value)
            self.assertEqual((result.task, result.args, result.kwargs, result.attempts), (one, [1], {"two": 3}, 1))

    def test_catches_exception(self) -> None:
        for one, kind in ((work.failing_task_value_error, ValueError), (work.failing_task_system_exit, SystemExit)):
            result = ended(one.enqueue())
            self.assertEqual(result.status, TaskResultStatus.FAILED)
            with self.assertRaisesMessage(ValueError, "Task failed"):
                result.return_value  # noqa: B018
            self.assertGreaterEqual(result.finished_at, result.started_at)
            self.assertIs(result.errors[0].exception_class, kind)
            text = result.errors[0].traceback
            self.assertTrue(text.endswith(f"{kind.__name__}: This Task failed due to {kind.__name__}\n"), text)

    def test_complex_exception(self) -> None:
        result = ended(work.complex_exception.enqueue())
        self.assertEqual(result.status, TaskResultStatus.FAILED)
        self.assertIn('ValueError(ValueError("This task failed"))', result.errors[0].traceback)

    def test_complex_return_value(self) -> None:
        result = ended(work.complex_return_value.enqueue())
        self.assertEqual(result.status, TaskResultStatus.FAILED)
        self.assertIs(result.errors[0].exception_class, TypeError)
        self.assertIn("Unsupported type", result.errors[0].traceback)

    def test_takes_context(self) -> None:
        result = ended(work.get_task_id.enqueue())
        self.assertEqual(result.return_value, result.id)

    def test_context(self) -> None:
        self.assertEqual(ended(work.test_context.enqueue(1)).status, TaskResultStatus.SUCCESSFUL)

    def test_tried_again(self) -> None:
        """A backend whose tasks are retried: READY between two attempts, and each attempt is counted."""
        result = work.fails_once.using(backend="plain").enqueue()
        end = time.monotonic() + 30
        while not app.retries.retry_all().done:
            assert time.monotonic() < end
            time.sleep(0.02)  # between two looks
        result = ended(result)
        self.assertEqual((result.status, result.attempts, result.return_value), (TaskResultStatus.SUCCESSFUL, 2, 2))
        self.assertEqual([one.exception_class for one in result.errors], [ValueError])

    def test_a_payload_imports_nothing(self) -> None:
        found = app.enqueue("django.task", "antigravity.fly", [], {}, "default", retry=False)
        end = time.monotonic() + 30
        while app.job_status(found.jid).state in ("enqueued", "working"):
            assert time.monotonic() < end
            time.sleep(0.02)  # between two looks
        self.assertNotIn("antigravity", sys.modules)


class TransactionTestCases(TransactionTestCase):
    def test_wait_until_transaction_commit(self) -> None:
        with transaction.atomic():
            result = work.noop_task.enqueue()
            self.assertIsNone(result.enqueued_at)
            with self.assertRaises(TaskResultDoesNotExist):
                default_task_backend.get_result(result.id)
        result.refresh()
        self.assertIsNotNone(result.enqueued_at)

    def test_doesnt_wait_until_transaction_commit(self) -> None:
        with transaction.atomic():
            result = work.noop_task.using(backend="plain").enqueue()
            self.assertIsNotNone(result.enqueued_at)
            result.refresh()

    def test_rolled_back(self) -> None:
        try:
            with transaction.atomic():
                result = work.noop_task.enqueue()
                raise ValueError
        except ValueError:
            pass
        with self.assertRaises(TaskResultDoesNotExist):
            default_task_backend.get_result(result.id)


assert settings.TASKS
