"""
When runs of a flow start by the calendar, and what each has from its input.

    Flow("reports", cron="0 9 * * MON-FRI", timezone="Europe/Berlin")
    Flow("reports", schedules=[Schedule("@every 15m", input={"type": "quick"}, name="quick")])

A schedule is named as its flow, or `flow.name`. In a shape all are in `schedules`, each as the
object that the database keeps; they are no part of what is compared as the flow's shape.

Title, labels, expiry and singleton key come from the input. A template is a text with
placeholders such as `{run.customer}` or `{run.items[0].name}`; a label is such a path without
braces. The database fills them when a run is started, in whichever way (`pgflowd.start`), and
`filled` is the same for tests. A part that the input does not have, or that is no text, number,
true or false, is missing. Pure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, get_args

from pgflowd.core.json import SqlNull, as_stored, dumps, encode
from pgflowd.core.text import did_you_mean, is_storable
from pgflowd.core.waiting import seconds_of
from pgflowd.errors import OutputError, Problem, RunError

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_FULL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,120}")
_NAME_RULE = "1 to 64 letters, digits, '_' or '-'"
_FULL_NAME_RULE = "1 to 120 letters, digits, '_', '.' or '-'"
# what a tick does while the last run of its schedule has not ended
Overlap = Literal["skip", "allow", "wait", "replace"]


@dataclass(frozen=True)
class Schedule:
    """When runs start, with which input."""

    cron: str  # five fields, "@daily" or "@every 30s"
    input: Any = field(default_factory=dict)
    timezone: str = "UTC"
    overlap: Overlap = "skip"
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
    given = schedules_of(options)
    names = Counter(each.name for each in given if isinstance(each.name, str | None))
    for name, count in names.items():
        if count > 1:
            full = Schedule("", name=name).full_name(slug)
            text = f"flow {slug}: {count} schedules have the name {full}"
            yield Problem("E224", text, place, "give each but one a name= of its own")
    for schedule in given:
        label = f"flow {slug}, schedule {schedule.name or slug}"
        for fault, remedy in _faults(schedule):
            yield Problem("E224", f"{label}: {fault}", place, remedy)


def given_faults(name: str, schedule: Schedule) -> list[Problem]:
    """What is wrong with a schedule that an operator adds under this whole name."""
    faults = [(f"schedule {name}: {text}", next) for text, next in _faults(schedule)]
    if not _FULL_NAME.fullmatch(name):
        faults.append((f"a schedule cannot be named {name[:60]!r}", f"use {_FULL_NAME_RULE}"))
    return [Problem("E224", text, None, next) for text, next in faults]


def taken_problem(name: str, flow_slug: str, owner: str, origin: str) -> Problem:
    """The schedule of a flow's code cannot be written, since its name is taken."""
    whose = f"an operator has one of this name, for flow {owner}"
    if origin == "code":
        whose = f"flow {owner} has one of this name"
    text = f"schedule {name} of flow {flow_slug} does not tick: {whose}"
    remedy = "give it another name, or see `pgflowd schedules list`"
    return Problem("E224", text, "database", remedy)


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
    for key, allowed in (("overlap", get_args(Overlap)), ("catchup", tuple(Catchup))):
        if (value := getattr(schedule, key)) not in allowed:
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


MAX_TITLE_CHARS = 120
MAX_TEMPLATE_CHARS = 500
NAMES = ("title", "labels", "expires", "singleton")
_PATH = r"run(?:\.[^\s.\[\]{}!:]+|\[[0-9]{1,9}\])*"
_IS_PATH = re.compile(_PATH)
_PART = re.compile(rf"([^{{}}]+)|\{{({_PATH})\}}")
_STEP = re.compile(r"[^.\[\]]+")
_NUMBER = re.compile("[0-9]{1,9}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


def start_problem(name: str, value: Any) -> str | None:
    """What is wrong with one of these options."""
    if name == "expires":
        try:
            return None if seconds_of(value, "it") >= 1 else "it must be a second or more"
        except RunError as error:
            return error.text
    if name == "labels":
        return _labels_problem(value)
    if not isinstance(value, str) or not 0 < len(value) <= MAX_TEMPLATE_CHARS:
        return f"it must be a text of 1 to {MAX_TEMPLATE_CHARS} characters"
    if not is_storable(value):
        return "it has a character that PostgreSQL cannot store"
    at = 0
    while at < len(value):
        part = _PART.match(value, at)
        if part is None:
            found = re.match(r"\{[^}]*\}?|\}", value[at:])
            return f"{found[0] if found else value[at:]} is no placeholder such as {{run.customer}}"
        at = part.end()
    return None


def start_problems(options: Mapping[str, Any], name: str, place: str) -> Iterator[Problem]:
    for option in NAMES:
        if option in options and (fault := start_problem(option, options[option])):
            text = f"{name}: {option} is {repr(options[option])[:80]}; {fault}"
            yield Problem("E209", text, place, "see docs/guides/planned-runs.md")


def _labels_problem(value: Any) -> str | None:
    if not isinstance(value, Mapping) or not value:
        return 'it must be a dict, such as {"customer": "run.customer"}'
    for label, path in value.items():
        if not isinstance(label, str) or not label or not is_storable(label):
            return f"the label {label!r} must be a text"
        if not isinstance(path, str) or not _IS_PATH.fullmatch(path):
            return f"{path!r} of label {label} is no path into the input, such as run.customer"
    return None


def start_options_json(options: Mapping[str, Any]) -> dict[str, Any]:
    """These options as a shape has them."""
    found = {name: options[name] for name in NAMES if name in options}
    if "expires" in found:
        seconds = round(seconds_of(found["expires"], "expires"), 3)
        found["expires"] = int(seconds) if seconds.is_integer() else seconds
    if "labels" in found:
        found["labels"] = dict(found["labels"])
    return found


def labels_of(options: Mapping[str, Any], input: Any) -> dict[str, str]:
    """The labels that the input gives a run."""
    paths = options.get("labels") or {}
    found = {label: _value(path, input) for label, path in paths.items()}
    return {label: value for label, value in found.items() if value is not None}


def title_of(options: Mapping[str, Any], input: Any) -> str | None:
    """The title that the input gives a run; missing parts are left out."""
    if "title" not in options:
        return None
    text = "".join(part or "" for _, part in _filled(options["title"], input))
    return _CONTROL.sub(" ", text).strip(" ")[:MAX_TITLE_CHARS] or None


def singleton_of(flow: str, options: Mapping[str, Any], input: Any) -> str | None:
    """The singleton key of a run. E432 if a part is missing: strangers would share a line."""
    if "singleton" not in options:
        return None
    parts = list(_filled(options["singleton"], input))
    for path, part in parts:
        if part is None:
            text = f"the singleton key of flow {flow} is made of {path}, which the input lacks"
            raise RunError(text, code="E432", next="give it, or start with a singleton key")
    return "".join(part for _, part in parts if part)


def _filled(template: str, input: Any) -> Iterator[tuple[str, str | None]]:
    for part in _PART.finditer(template):
        yield (part[2], _value(part[2], input)) if part[2] else ("", part[1])


def _value(path: str, input: Any) -> str | None:
    """The text of a scalar of the input; None for anything else."""
    found = input
    for step in _STEP.findall(path)[1:]:
        if isinstance(found, Mapping) and step in found:
            found = found[step]
        elif isinstance(found, list) and _NUMBER.fullmatch(step) and int(step) < len(found):
            found = found[int(step)]
        else:
            return None
    if found is None or isinstance(found, Mapping | list | SqlNull):
        return None
    if isinstance(found, float):
        return format(Decimal(repr(found)), "f")  # as PostgreSQL writes it
    return found if isinstance(found, str) else dumps(found)
