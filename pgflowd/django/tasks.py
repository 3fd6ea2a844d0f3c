"""
The backend of Django's tasks: `TASKS = {"default": {"BACKEND": "pgflowd.django.TasksBackend"}}`.

A task that is enqueued is a run of the flow of its queue (`pgflowd.django.task_flows`), started in
the current transaction. Its result is read from that run. OPTIONS are options of the flow, and
"using" names another connection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from django.utils import timezone
from django.utils.module_loading import import_string

from pgflowd.core.documents.run_tasks import SavedCheckpoint
from pgflowd.core.documents.runs import Attempt, RunWithStates
from pgflowd.core.statuses import Outcome, RunStatus
from pgflowd.db import runs, waits
from pgflowd.db.operations import Operation, get_with_states
from pgflowd.django import client
from pgflowd.errors import NotFound

try:
    from django.tasks import TaskResultStatus
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import TaskError, TaskResult
    from django.tasks.exceptions import TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued
except ImportError:
    from django_tasks import TaskResultStatus
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import TaskError, TaskResult
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.signals import task_enqueued

FLOW = "django_tasks"  # of queue "default"
STEP = "perform"  # of these flows
ERROR = "django_error"  # with the attempt: the checkpoint that has the path of an exception
_ENDED_BADLY = (Outcome.FAILED, Outcome.TIMED_OUT, Outcome.CRASHED)


def flow_of(queue_name: str) -> str:
    """The flow whose runs are the tasks of a queue."""
    if queue_name == "default":
        return FLOW
    return f"{FLOW}_" + "".join(c if c.isascii() and c.isalnum() else "_" for c in queue_name)


class TasksBackend(BaseTaskBackend):  # type: ignore[misc,unused-ignore]
    """Enqueues tasks as runs, and reads their results."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = False

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, dict(params))
        self.flow_options = {key: value for key, value in self.options.items() if key != "using"}
        self._client = client(self.options.get("using"))

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        self.validate_task(task)
        given = {"task": task.module_path, "backend": self.alias,
                 "args": list(args), "kwargs": dict(kwargs)}  # fmt: skip
        later = {} if task.run_after is None else {"at": task.run_after}
        run = self._client.start_flow(flow_of(task.queue_name), given, **later)
        result = self._result(
            task, given, str(run.run_id), TaskResultStatus.READY, enqueued_at=timezone.now()
        )
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        try:
            run, tried, saved = self._client._perform(_read(UUID(result_id)))
        except (NotFound, ValueError):
            raise TaskResultDoesNotExist(result_id) from None
        paths = {each.name: each.data for each in saved}
        failed = [each for each in tried if each.outcome in _ENDED_BADLY]
        result = self._result(
            import_string(run.input["task"]), run.input, result_id, _status(run, tried),
            enqueued_at=run.start_at or run.started_at, finished_at=run.ended_at,
            started_at=tried[0].started_at if tried else None,
            last_attempted_at=tried[-1].started_at if tried else None,
            worker_ids=[str(each.worker_id) for each in tried],
            errors=[_error(each, paths) for each in failed],
        )  # fmt: skip
        if run.status is RunStatus.COMPLETED:
            object.__setattr__(result, "_return_value", (run.output or {}).get(STEP))
        return result

    def _result(
        self, task: Any, given: Mapping[str, Any], id: str, status: Any, **known: Any
    ) -> Any:
        later = dict.fromkeys(("started_at", "finished_at", "last_attempted_at"))
        values = {**later, "errors": [], "worker_ids": [], **known}
        return TaskResult(
            task=task, id=id, status=status, backend=self.alias, args=given["args"],
            kwargs=given["kwargs"], **values,
        )  # fmt: skip


def _read(run_id: UUID) -> Operation[tuple[RunWithStates, list[Attempt], list[SavedCheckpoint]]]:
    run = yield from get_with_states(run_id)
    if run.flow_slug != FLOW and not run.flow_slug.startswith(f"{FLOW}_"):
        raise NotFound(f"run {run_id} is no task of Django")
    tried: list[Attempt] = yield runs.attempts(run_id)
    saved: list[SavedCheckpoint] = yield waits.list_checkpoints(run_id)
    return run, tried, saved


def _status(run: RunWithStates, tried: Sequence[Attempt]) -> Any:
    if run.status is RunStatus.COMPLETED:
        return TaskResultStatus.SUCCESSFUL
    if run.has_ended:
        return TaskResultStatus.FAILED
    is_running = bool(tried) and tried[-1].outcome is None
    return TaskResultStatus.RUNNING if is_running else TaskResultStatus.READY


def _error(attempt: Attempt, paths: Mapping[str, Any]) -> Any:
    path = paths.get(f"{ERROR} {attempt.attempt}")
    if path is None:  # its process was killed
        is_timeout = attempt.outcome is Outcome.TIMED_OUT
        path = "builtins.TimeoutError" if is_timeout else "builtins.RuntimeError"
    text = attempt.traceback or attempt.error or str(attempt.outcome)
    return TaskError(exception_class_path=path, traceback=text)
