"""
Schedules: when runs of a flow start by the calendar.

    Flow("reports", cron="0 9 * * MON-FRI", timezone="Europe/Berlin")
    Flow("reports", schedules=[Schedule("@every 15m", input={"type": "quick"}, name="quick")])

A schedule is named as its flow, or `flow.name`. In a shape all are in `schedules`, each as the
object that the database keeps; they are no part of what is compared as the flow's shape.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from pgflowd.core.json import as_stored, encode
from pgflowd.core.suggest import did_you_mean
from pgflowd.errors import OutputError, Problem

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_FULL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,120}")
_NAME_RULE = "1 to 64 letters, digits, '_' or '-'"
_FULL_NAME_RULE = "1 to 120 letters, digits, '_', '.' or '-'"


class Overlap(StrEnum):
    """What a tick does while the last run of its schedule has not ended."""

    SKIP = "skip"
    ALLOW = "allow"
    WAIT = "wait"
    REPLACE = "replace"


@dataclass(frozen=True)
class Schedule:
    """When runs start, with which input."""

    cron: str  # five fields, "@daily" or "@every 30s"
    input: Any = field(default_factory=dict)
    timezone: str = "UTC"
    overlap: Literal["skip", "allow", "wait", "replace"] = "skip"
    catchup: Literal["one", "none", "all"] = "one"
    name: str | None = None  # needed by all but one schedule of a flow

    def full_name(self, flow_slug: str) -> str:
        return flow_slug if self.name is None else f"{flow_slug}.{self.name}"


def schedules_of(options: Mapping[str, Any]) -> list[Schedule]:
    """The schedules that the options of a flow ask for."""
    given = [*options.get("schedules", ())]
    if "cron" in options:
        given.insert(0, Schedule(options["cron"], timezone=options.get("timezone", "UTC")))
    return given


def schedules_json(flow_slug: str, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All schedules of a flow without problems, by their names."""
    made = [
        {
            "name": schedule.full_name(flow_slug),
            "cron": " ".join(schedule.cron.split()),
            "timezone": schedule.timezone,
            "input": as_stored(schedule.input),
            "overlap": str(schedule.overlap),
            "catchup": str(schedule.catchup),
        }
        for schedule in schedules_of(options)
    ]
    return sorted(made, key=lambda each: str(each["name"]))


def schedule_problems(slug: str, options: Mapping[str, Any], place: str) -> Iterator[Problem]:
    """Everything that is wrong with the schedules of a flow."""
    listed = options.get("schedules", ())
    if not isinstance(listed, Sequence) or not all(isinstance(each, Schedule) for each in listed):
        text = f"flow {slug}: schedules is {repr(listed)[:60]}; it must be a list of Schedule"
        yield Problem("E224", text, place, 'write schedules=[Schedule("0 9 * * *")]')
        return
    if "timezone" in options and "cron" not in options:
        text = f"flow {slug}: timezone has no effect without cron"
        yield Problem("E224", text, place, "add cron=, or give the timezone to each Schedule")
    names = Counter(each.name for each in schedules_of(options) if _is_hashable(each.name))
    for name, count in names.items():
        if count > 1:
            full = Schedule("", name=name).full_name(slug)
            text = f"flow {slug}: {count} schedules have the name {full}"
            yield Problem("E224", text, place, "give each but one a name= of its own")
    for schedule in schedules_of(options):
        label = f"flow {slug}, schedule {schedule.name or slug}"
        for fault, remedy in _faults(schedule):
            yield Problem("E224", f"{label}: {fault}", place, remedy)


def given_faults(name: str, schedule: Schedule) -> list[Problem]:
    """What is wrong with a schedule that an operator adds under this whole name."""
    found = [
        Problem("E224", f"schedule {name}: {text}", None, next) for text, next in _faults(schedule)
    ]
    if not _FULL_NAME.fullmatch(name):
        found.append(
            Problem(
                "E224", f"a schedule cannot be named {name[:60]!r}", None, f"use {_FULL_NAME_RULE}"
            )
        )
    return found


def taken_problem(name: str, flow_slug: str, owner: str, origin: str) -> Problem:
    """The schedule of a flow's code cannot be written, since its name is taken."""
    whose = f"an operator has one of this name, for flow {owner}"
    text = f"schedule {name} of flow {flow_slug} does not tick: {whose}"
    if origin == "code":
        text = (
            f"schedule {name} of flow {flow_slug} does not tick: flow {owner} has one of this name"
        )
    return Problem(
        "E224", text, "database", "give it another name, or see `pgflowd schedules list`"
    )


def schedule_differences(
    ours: Sequence[Mapping[str, Any]], theirs: Sequence[Mapping[str, Any]]
) -> list[str]:
    """How the schedules of the code differ from those of the database, which apply."""
    code, known = ({each["name"]: each for each in some} for some in (ours, theirs))
    found = []
    for name in sorted(code.keys() | known.keys()):
        if name not in known:
            found.append(f"schedule {name} is in the code only, so it does not tick")
        elif name not in code:
            found.append(f"schedule {name} is in the database only; it ticks")
        else:
            changed = [key for key in code[name] if code[name][key] != known[name].get(key)]
            for key in changed:
                values = f"{code[name][key]!r} in the code, {known[name].get(key)!r}"
                found.append(
                    f"schedule {name}: {key} is {values} in the database; the latter applies"
                )
    return found


def _faults(schedule: Schedule) -> Iterator[tuple[str, str | None]]:
    """What is wrong with a schedule, and what to write instead."""
    # a runner of a flow without schedules need not load calendars and time zones
    from pgflowd.core.ticks import Catchup, expression_fault, zone_fault

    if fault := expression_fault(schedule.cron):
        yield f"cron is {repr(schedule.cron)[:60]}; it {fault}", None
    if fault := zone_fault(schedule.timezone):
        yield f"timezone is {repr(schedule.timezone)[:60]}; it {fault}", None
    for key, kind in (("overlap", Overlap), ("catchup", Catchup)):
        value, allowed = getattr(schedule, key), [str(each) for each in kind]
        if value not in allowed:
            text = f"{key} is {repr(value)[:60]}; it must be one of {', '.join(allowed)}"
            yield text, did_you_mean(value, allowed) if isinstance(value, str) else None
    if schedule.name is not None and not (
        isinstance(schedule.name, str) and _NAME.fullmatch(schedule.name)
    ):
        yield f"its name is {repr(schedule.name)[:60]}; it must have {_NAME_RULE}", None
    try:
        encode(schedule.input, what="its input")
    except OutputError as error:
        yield error.text, error.next


def _is_hashable(name: object) -> bool:
    return name is None or isinstance(name, str)
