"""The queries that answer what handlers ask for; workers execute them, and drains in tests."""

from __future__ import annotations

from typing import Any

from pgflowd.core.worker.state import FetchRequest, HandlerRequest
from pgflowd.core.worker.task import Task
from pgflowd.db import checkpoints, workers
from pgflowd.db.query import Query


def reading(request: FetchRequest, task: Task) -> Query[Any] | None:
    """What a handler reads; None if it changes something."""
    if request.kind is HandlerRequest.RUN_INPUT:
        return workers.run_input(task.run_id)
    if request.kind is HandlerRequest.STEP_OUTPUT:
        return workers.step_output(task.run_id, request.step)
    if request.kind is HandlerRequest.WISHES:
        return workers.run_wishes(task.run_id)
    if request.kind is HandlerRequest.ORIGINAL:
        return workers.read_original(task.key, request.parts)
    if request.kind is HandlerRequest.CHECKPOINTS:
        one = request.checkpoint
        return checkpoints.load_one(task.key, one) if one else checkpoints.load(task.key)
    if request.kind is HandlerRequest.CHILDREN:
        return checkpoints.children(task.key)
    if request.kind is HandlerRequest.RUNS:
        return checkpoints.read_runs(request.runs)
    return None


def changing(request: FetchRequest, task: Task, lease_s: float) -> Query[Any]:
    """Change something for a task; nothing is done, and false returned, while it is locked."""
    name, token = request.checkpoint, task.token
    if request.kind is HandlerRequest.START:
        return checkpoints.start(task.key, token, request.runs[0], request.data.decode())
    if request.kind is HandlerRequest.DROP:
        return checkpoints.drop(task.key, token, name)
    data, version = request.data.decode(), request.version
    return checkpoints.save(task.key, token, name, data, version, lease_s)
