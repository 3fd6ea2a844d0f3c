"""
The options of decorators as types, for editors and type checkers: each key is a row of `options`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict

from pgflowd.core.definition.limit import Limit
from pgflowd.core.definition.schedule import Schedule

StepName = str | Callable[..., Any]  # a slug, or the step's function
Mode = Literal["fail", "skip", "skip-cascade"]
CrashEnd = Literal["fail", "quarantine"]
RunEnd = Literal["undo", "keep"]
Undoable = Literal["completed", "attempted"]


class _RetryOptions(TypedDict, total=False):
    max_attempts: int | None  # 1 or more; the first attempt counts
    base_delay: int | None  # seconds; attempt n waits base_delay * 2^n


class _TryOptions(_RetryOptions, total=False):
    timeout: int | None  # seconds of one attempt


class FlowOptions(_TryOptions, total=False):
    """
    Defaults for all steps of a flow, for which the database has defaults, too; and when runs start.
    """

    on_failure: RunEnd | None  # of a flow with undos: "undo" or "keep"
    on_cancel: RunEnd | None  # likewise: "keep" or "undo"
    cron: str | None  # "0 3 * * *", "@daily", "@every 30s"
    timezone: str | None  # of `cron`; UTC by default
    schedules: Sequence[Schedule] | None
    decode: bool | None  # False: handlers get JSON, whatever their annotations say


class WaitOptions(_RetryOptions, total=False):
    """Options of a step that waits; its own `timeout` is that of the wait."""

    start_delay: int | None  # seconds between ready and started
    if_: Mapping[str, Any] | None  # run only if the input contains this
    if_not: Mapping[str, Any] | None  # run only if the input does not contain this
    when_unmet: Mode | None  # after an unmet condition: "skip", "fail", "skip-cascade"
    when_exhausted: Mode | None  # after the last failed attempt: "fail", "skip", "skip-cascade"
    version: int | None  # of what the handler saves; older code leaves what newer code has saved


class _CommonOptions(_TryOptions, WaitOptions, total=False):
    slug: str | None  # instead of the function's name
    needs: Sequence[str] | None  # only workers with all of these among their caps get its tasks
    limit: Limit | None  # how many of its tasks are at work at once, in the whole fleet
    crash_limit: int | None  # so many workers may end in a row while they execute a task
    on_crash_limit: CrashEnd | None  # then: "fail" or "quarantine"


class StepOptions(_CommonOptions, total=False):
    """Options of one step; they override the flow's."""

    depends_on: StepName | Sequence[StepName] | None  # deps for `input` and `ctx.step_output`
    after: StepName | Sequence[StepName] | None  # deps without their outputs


class MapOptions(_CommonOptions, total=False):
    """Options of one map."""

    over: StepName | None  # the step whose list is mapped; without it, the run's input


class JobOptions(FlowOptions, total=False):
    """Options of a flow with one step."""

    start_delay: int | None
    version: int | None
    needs: Sequence[str] | None
    limit: Limit | None
    crash_limit: int | None
    on_crash_limit: CrashEnd | None


class UndoOptions(_TryOptions, total=False):
    """Options of one undo handler."""

    on: Undoable  # "attempted": also tasks that did not complete
    start_delay: int | None
    version: int | None
    needs: Sequence[str] | None
    limit: Limit | None  # without a key
    crash_limit: int | None  # then the task is quarantined
