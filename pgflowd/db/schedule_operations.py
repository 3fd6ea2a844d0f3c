"""The operations of clients on schedules."""

from __future__ import annotations

from pgflowd.core.definition.schedule import Schedule, given_faults
from pgflowd.core.documents.runs import Run
from pgflowd.core.documents.schedules import Fired, ListedSchedule
from pgflowd.db import operations, schedules
from pgflowd.db.operations import Operation
from pgflowd.errors import FlowError


def listed(flow_slug: str | None) -> Operation[list[ListedSchedule]]:
    found: list[ListedSchedule] = yield schedules.list_schedules(flow_slug)
    return found


def add(name: str, flow_slug: str, schedule: Schedule, actor: str | None) -> Operation[bool]:
    """Whether it was not so before."""
    if faults := given_faults(name, schedule):
        raise FlowError(faults)
    answer: str = yield schedules.set_schedule(name, flow_slug, schedule, actor)
    return answer != schedules.REPEATED


def remove(name: str, actor: str | None) -> Operation[str]:
    """Its origin."""
    origin: str = yield schedules.remove_schedule(name, actor)
    return origin


def pause(name: str, actor: str | None) -> Operation[bool]:
    """Whether it was not paused before."""
    answer: str = yield schedules.pause_schedule(name, actor)
    return answer != schedules.REPEATED


def resume(name: str, actor: str | None) -> Operation[bool]:
    """Whether it was paused."""
    answer: str = yield schedules.resume_schedule(name, actor)
    return answer != schedules.REPEATED


def fire(name: str, actor: str | None) -> Operation[Fired]:
    fired: Fired = yield schedules.fire_schedule(name, actor)
    return fired


def fire_for_run(name: str, actor: str | None) -> Operation[Run]:
    fired = yield from fire(name, actor)
    return (yield from operations.get(fired.run_id))
