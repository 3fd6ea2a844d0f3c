"""
The flows of Django's tasks, one for each queue of the settings TASKS that uses our backend.

    [pgflowd]
    flows = ["pgflowd.django.task_flows"]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.utils.module_loading import import_string

import pgflowd.django  # noqa: F401  sets Django up
from pgflowd.core.context import Context
from pgflowd.django.tasks import ERROR, TasksBackend, flow_of
from pgflowd.flow import job

try:
    from django.tasks import task_backends
    from django.tasks.base import TaskContext
except ImportError:
    from django_tasks import task_backends
    from django_tasks.base import TaskContext


def _perform_of(backend: TasksBackend) -> Callable[[Any, Context], Any]:
    def perform(run: Any, ctx: Context) -> Any:
        task = import_string(run["task"])
        given = []
        if task.takes_context:
            given.append(TaskContext(task_result=backend.get_result(ctx.run_id)))
        try:
            return task.call(*given, *run["args"], **run["kwargs"])
        except Exception as error:
            kind = type(error)
            ctx.save(f"{ERROR} {ctx.attempt}", f"{kind.__module__}.{kind.__qualname__}")
            raise

    return perform


for _alias in getattr(settings, "TASKS", {}):
    _backend = task_backends[_alias]
    if isinstance(_backend, TasksBackend):
        for _queue in sorted(_backend.queues):
            _slug = flow_of(_queue)
            globals().setdefault(_slug, job(_slug, **_backend.flow_options)(_perform_of(_backend)))
