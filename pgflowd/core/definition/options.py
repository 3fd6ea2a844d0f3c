"""
The options of flows, steps, maps and jobs: one row for each, and what is wrong with their values.

Checks, shapes, plans, comparisons and screens read the rows. So a new option is a row here, a key
in the types below, and the SQL that obeys it, with its twin in `testing.engine`. Unset options
reach the database as NULL, so that its defaults hold.

A limit says how many tasks may be at work at once in the whole fleet.

    limit=Limit(5)                                  five of this step
    limit=Limit(1, key="run.customer")              one for each value in the run's input
    limit=Limit(2, key="item.host", name="hosts")   shared by all steps, of any flow, with this name

In a shape a limit is `{"slots", "name", "path"}`, the latter two only if they are given.

An option has three values: in the code, when it was last deployed, and in the database. The last
counts. The SQL's `compare_options` decides whether somebody has tuned it there, so that it stays,
or the code's is to be written. Here are the texts about it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, StrEnum
from typing import Annotated, Any, Literal, TypedDict, get_args

from pgflowd.core.definition.schedule import Schedule
from pgflowd.core.documents import Hidden, Named, shown
from pgflowd.core.json import dumps, encode
from pgflowd.core.settings.values import needs_fault
from pgflowd.core.text import did_you_mean, with_article
from pgflowd.core.waiting import Time
from pgflowd.errors import OutputError, Problem

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_ROOTS = ("run", "item")
MAX_SLOTS = 1_000_000
MAX_KEY_CHARS = 500


@dataclass(frozen=True)
class Limit:
    """At most so many tasks at once; with a key, so many for each value of it."""

    slots: int
    key: str | None = None  # a path into the run's input, or, of a map, into its element
    name: str | None = None  # what steps with this name share; by default each step has its own

    @property
    def path(self) -> list[str] | None:
        return None if self.key is None else self.key.split(".")


def limit_fault(limit: object, *, is_map: bool) -> str | None:
    """What is wrong with the limit of a step."""
    if not isinstance(limit, Limit):
        return "must be a Limit, such as Limit(5)"
    slots, key, name = limit.slots, limit.key, limit.name
    is_whole = isinstance(slots, int) and not isinstance(slots, bool)
    if not is_whole or not 1 <= slots <= MAX_SLOTS:
        return f"must have 1 to {MAX_SLOTS} slots"
    if name is not None and not (isinstance(name, str) and _NAME.fullmatch(name)):
        return "must have a name of 1 to 64 letters, digits, '_', '.' or '-'"
    if key is None:
        return None
    if not isinstance(key, str) or len(key) > MAX_KEY_CHARS or "\0" in key:
        return f"must have a key of at most {MAX_KEY_CHARS} characters"
    root, *rest = key.split(".")
    if root not in _ROOTS or not all(rest):
        return "must have a key that begins with 'run' or 'item', such as 'run.customer'"
    if root == "item" and not is_map:
        return "must have a key in the run's input: only a map has items"
    return None


def limit_json(limit: Limit) -> dict[str, Any]:
    """The limit in a shape."""
    whole = {"slots": limit.slots, "name": limit.name, "path": limit.path}
    return {key: value for key, value in whole.items() if value is not None}


MAX_INT = 2**31 - 1  # the largest int of SQL
StepName = str | Callable[..., Any]  # a slug, or the step's function
Mode = Literal["fail", "skip", "skip-cascade"]
CrashEnd = Literal["fail", "quarantine"]
RunEnd = Literal["undo", "keep"]  # of the effects of a run that failed or was cancelled
Undoable = Literal["completed", "attempted"]  # which tasks an undo handler undoes
MODES = get_args(Mode)


class Owner(Enum):
    """The decorator or class that takes an option."""

    FLOW = "flow"
    STEP = "step"
    MAP = "map"
    JOB = "job"
    UNDO = "undo"


class OptionKind(Enum):
    SLUG = "slug"  # of the step itself
    DEPS = "deps"  # slugs or functions of other steps
    COUNT = "count"  # a whole number
    SECONDS = "seconds"  # a whole number of seconds
    MODE = "mode"  # one of MODES
    NEEDS = "needs"  # words, all of which a worker must have
    LIMIT = "limit"  # how many tasks at once
    WORD = "word"  # one of the option's words
    SWITCH = "switch"  # True or False
    FLAG = "flag"  # only flows that we make ourselves have it
    PATTERN = "pattern"  # a JSON object that is compared with the step's input
    SCHEDULE = "schedule"  # when runs start (`core.definition.schedule`)
    START = "start"  # what each start has from its input (`core.definition.schedule`)


class Column(StrEnum):
    """The columns of options in the table of steps, in their order."""

    ATTEMPTS = "ATTEMPTS"
    DELAY = "DELAY"
    TIMEOUT = "TIMEOUT"
    START = "START"
    EXHAUSTED = "EXHAUSTED"
    IF = "IF"
    NEEDS = "NEEDS"
    LIMIT = "LIMIT"
    CRASHES = "CRASHES"
    UNDO = "UNDO"


@dataclass(frozen=True)
class Option:
    """One option."""

    name: str  # in Python
    kind: OptionKind
    owners: frozenset[Owner]
    json_name: str = ""  # in a shape; none for what only runners read, or a shape has elsewhere
    default: Any = None  # in force where neither step nor flow sets the option
    least: int = 0
    most: int = MAX_INT
    words: tuple[str, ...] = ()
    column: Column | None = None
    label: str = ""  # before the value in its column
    hides_default: bool = False  # in its column
    needs_condition: bool = False  # has no effect without a pattern
    follows: bool = False  # the database's value becomes that of the code when it is defined

    @property
    def is_number(self) -> bool:
        return self.kind in (OptionKind.COUNT, OptionKind.SECONDS)

    @property
    def is_tunable(self) -> bool:
        """Whether it may be changed in the database, of a limit the number of places."""
        is_word = self.kind is OptionKind.WORD and Owner.STEP in self.owners
        return self.is_number or self.kind is OptionKind.LIMIT or is_word

    @property
    def is_of_runs(self) -> bool:
        """Whether it says what becomes of whole runs, and nothing about a step."""
        of_runs = (OptionKind.WORD, OptionKind.START)
        return Owner.FLOW in self.owners and self.kind in of_runs

    def in_force(self, step: Mapping[str, Any], flow_options: Mapping[str, Any]) -> Any:
        """The value for a step of a shape: its own, else the flow's, else the default."""
        if self.kind is OptionKind.PATTERN:
            pattern = step.get(self.json_name) or {}
            return dict(pattern["value"]) if pattern.get("defined") else None
        if self.kind is OptionKind.MODE:
            return step.get(self.json_name) or self.default
        value = (step.get("options") or {}).get(self.json_name)
        if value is None and Owner.FLOW in self.owners:
            value = flow_options.get(self.json_name)
        if self.kind is OptionKind.NEEDS:
            return tuple(value) if value else None
        if value is None:
            return self.default
        return int(value) if self.is_number else value


_ALL, _STEPS = frozenset(Owner), frozenset({Owner.STEP, Owner.MAP})
_FLOWS, _OF_US = frozenset({Owner.FLOW, Owner.JOB}), frozenset[Owner]()
_COUNT, _SECONDS, _DEPS = OptionKind.COUNT, OptionKind.SECONDS, OptionKind.DEPS
_MODE, _PATTERN, _WORD = OptionKind.MODE, OptionKind.PATTERN, OptionKind.WORD
_NEEDS, _LIMIT, _START = OptionKind.NEEDS, OptionKind.LIMIT, OptionKind.START
_RUN_ENDS, _TASKS = get_args(RunEnd), _ALL - {Owner.FLOW}

OPTIONS = (
    Option("max_attempts", _COUNT, _ALL, "maxAttempts", 3, least=1, column=Column.ATTEMPTS),
    Option("base_delay", _SECONDS, _ALL, "baseDelay", 5, column=Column.DELAY),
    Option("timeout", _SECONDS, _ALL, "timeout", 60, least=1, column=Column.TIMEOUT),
    Option(
        "start_delay", _SECONDS, _TASKS, "startDelay", 0, column=Column.START, hides_default=True
    ),
    Option("if_", _PATTERN, _STEPS, "requiredInputPattern", column=Column.IF, label="if "),
    Option("if_not", _PATTERN, _STEPS, "forbiddenInputPattern", column=Column.IF, label="if not "),
    Option(
        "when_unmet", _MODE, _STEPS, "whenUnmet", "skip",
        column=Column.IF, label="else ", needs_condition=True,
    ),
    Option("when_exhausted", _MODE, _STEPS, "whenExhausted", "fail", column=Column.EXHAUSTED),
    Option("needs", _NEEDS, _TASKS, "needs", column=Column.NEEDS, follows=True),
    Option("limit", _LIMIT, _TASKS, "limit", column=Column.LIMIT, follows=True),
    Option(
        "crash_limit", _COUNT, _TASKS, "crashLimit", least=1, most=1000,
        column=Column.CRASHES, follows=True,
    ),
    Option(
        "on_crash_limit", _WORD, _TASKS - {Owner.UNDO}, "onCrashLimit",
        words=get_args(CrashEnd), column=Column.CRASHES, label="then ", follows=True,
    ),
    Option(
        "on", _WORD, frozenset({Owner.UNDO}), "undo",
        words=get_args(Undoable), column=Column.UNDO, follows=True,
    ),
    Option("settle", OptionKind.FLAG, _OF_US, "settle", follows=True),
    Option("on_failure", _WORD, _FLOWS, "onFailure", "undo", words=_RUN_ENDS, follows=True),
    Option("on_cancel", _WORD, _FLOWS, "onCancel", "keep", words=_RUN_ENDS, follows=True),
    Option("version", _COUNT, _TASKS, default=1, least=1),
    Option("decode", OptionKind.SWITCH, _FLOWS, default=True),
    Option("title", _START, _FLOWS, "title", follows=True),
    Option("labels", _START, _FLOWS, "labels", follows=True),
    Option("expires", _START, _FLOWS, "expires", follows=True),
    Option("singleton", _START, _FLOWS, "singleton", follows=True),
    Option("cron", OptionKind.SCHEDULE, _FLOWS),
    Option("timezone", OptionKind.SCHEDULE, _FLOWS),
    Option("schedules", OptionKind.SCHEDULE, _FLOWS),
    Option("slug", OptionKind.SLUG, _STEPS),
    Option("depends_on", _DEPS, frozenset({Owner.STEP})),
    Option("after", _DEPS, frozenset({Owner.STEP})),
    Option("over", _DEPS, frozenset({Owner.MAP})),
)  # fmt: skip

GATES = tuple(o for o in OPTIONS if o.kind in (OptionKind.NEEDS, OptionKind.LIMIT))
FOLLOWING = tuple(option for option in OPTIONS if option.follows)
OF_RUNS = tuple(o for o in OPTIONS if o.is_of_runs and o.kind is OptionKind.WORD)
NUMBERS = tuple(o for o in OPTIONS if o.is_number and o.json_name and not o.follows)
MODE_OPTIONS = tuple(option for option in OPTIONS if option.kind is OptionKind.MODE)
PATTERNS = tuple(option for option in OPTIONS if option.kind is OptionKind.PATTERN)


def options_of(owner: Owner) -> list[Option]:
    return [option for option in OPTIONS if owner in option.owners]


def option_names(owner: Owner) -> set[str]:
    return {option.name for option in options_of(owner)}


def used_columns(cells: Collection[Mapping[Column, str]]) -> list[Column]:
    """The columns of the table of steps; some are shown only where a step has one."""
    rare = {option.column for option in FOLLOWING}
    return [one for one in Column if one not in rare or any(each[one] for each in cells)]


def option_cells(in_force: Mapping[str, Any]) -> dict[Column, str]:
    """The row of a step in the table of steps; empty cells for options without effect."""
    has_condition = any(in_force[option.name] is not None for option in PATTERNS)
    words: dict[Column, list[str]] = {column: [] for column in Column}
    for option in OPTIONS:
        value = in_force.get(option.name)
        if option.column is None or value is None or (option.needs_condition and not has_condition):
            continue
        if not option.hides_default or value != option.default:
            text = json.dumps(value) if option.kind is OptionKind.PATTERN else str(value)
            if option.kind is OptionKind.NEEDS:
                text = ", ".join(value)
            elif option.kind is OptionKind.LIMIT:
                per = f" per {'.'.join(value['path'])}" if value.get("path") else ""
                name = f" as {value['name']}" if value.get("name") else ""
                text = f"{value['slots']}{per}{name}"  # such as `2 per item.host as hosts`
            unit = "s" if option.kind is OptionKind.SECONDS else ""
            words[option.column].append(f"{option.label}{text}{unit}")
    return {column: " ".join(texts) for column, texts in words.items()}


def option_problems(
    options: Mapping[str, Any], owner: Owner, name: str, place: str
) -> Iterator[Problem]:
    """Everything that is wrong with the set options of `name`, alone and together."""
    known = {option.name: option for option in options_of(owner)}
    for option_name, value in options.items():
        if option_name not in known:
            text = f"{name}: there is no option '{option_name}'"
            yield Problem("E209", text, place, did_you_mean(option_name, known))
        elif fault := _fault(known[option_name], value, owner):
            code, text, remedy = fault
            yield Problem(code, f"{name}: {text}", place, remedy)
    patterns = {option.name for option in PATTERNS}
    for option in known.values():
        if option.needs_condition and option.name in options and not patterns & options.keys():
            text = f"{name}: {option.name} has no effect without a condition"
            yield Problem("E215", text, place, "add if_= or if_not=, or leave it out")


def _fault(option: Option, value: Any, owner: Owner) -> tuple[str, str, str | None] | None:
    """The code, what is wrong with the value of an option, and what to do."""
    code, rule, remedy = "E209", None, None
    if option.is_number:
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if is_whole and value > option.most:
            rule = f"must be at most {option.most}"
        elif not is_whole or value < option.least:
            unit = " of seconds" if option.kind is OptionKind.SECONDS else ""
            rule = f"must be a whole number{unit}, {option.least} or more"
    elif option.kind is OptionKind.MODE and value not in MODES:
        rule = "must be 'fail', 'skip' or 'skip-cascade'"
        remedy = did_you_mean(value, MODES) if isinstance(value, str) else None
    elif option.kind is OptionKind.WORD and value not in option.words:
        code = "E225" if owner is Owner.UNDO else "E209"
        rule = f"must be {' or '.join(map(repr, option.words))}"
    elif option.kind is OptionKind.SWITCH and not isinstance(value, bool):
        rule = "must be True or False"
    elif option.kind is OptionKind.NEEDS:
        rule = needs_fault(value)
    elif option.kind is OptionKind.LIMIT:
        code, rule = "E226", limit_fault(value, is_map=owner is Owner.MAP)
    elif option.kind is OptionKind.PATTERN and not isinstance(value, dict):
        kind = with_article(type(value).__name__)
        rule = "a pattern is a JSON object, such as {'a': 1}"
        return "E214", f"{option.name} is {kind}; {rule}", None
    elif option.kind is OptionKind.PATTERN:
        try:
            encode(value, what=option.name)
        except OutputError as error:
            return "E214", error.text, error.next
    return (code, f"{option.name} is {repr(value)[:60]}; it {rule}", remedy) if rule else None


# the same as types, for editors and type checkers


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
    title: str | None  # of each run, from its input, such as "{run.customer}: {run.items[0]}"
    labels: Mapping[str, str] | None  # likewise, such as {"customer": "run.customer"}
    expires: Time | None  # after its beginning each run ends, such as "3d"
    singleton: str | None  # one run at a time has this key, such as "order {run.id}"
    cron: str | None  # "0 3 * * *", "@daily", "@every 30s"
    timezone: str | None  # of `cron`; UTC by default
    schedules: Sequence[Schedule] | None
    decode: bool | None  # False: handlers get JSON, whatever their annotations say


class _DelayOptions(TypedDict, total=False):
    start_delay: int | None  # seconds between ready and started
    version: int | None  # of what the handler saves; older code leaves what newer code has saved


class WaitOptions(_RetryOptions, _DelayOptions, total=False):
    """Options of a step that waits; its own `timeout` is that of the wait."""

    if_: (
        Mapping[str, Any] | None
    )  # run only if the input contains this: of a root the run's, else {dep: output}
    if_not: Mapping[str, Any] | None  # run only if the input does not contain this
    when_unmet: Mode | None  # after an unmet condition: "skip", "fail", "skip-cascade"
    when_exhausted: Mode | None  # after the last failed attempt: "fail", "skip", "skip-cascade"


class _TaskOptions(_DelayOptions, total=False):
    needs: Sequence[str] | None  # only workers with all of these among their caps get its tasks
    limit: Limit | None  # how many of its tasks are at work at once, in the whole fleet
    crash_limit: int | None  # so many workers may end in a row while they execute a task


class _CommonOptions(_TryOptions, WaitOptions, _TaskOptions, total=False):
    slug: str | None  # instead of the function's name
    on_crash_limit: CrashEnd | None  # then: "fail" or "quarantine"


class StepOptions(_CommonOptions, total=False):
    """Options of one step; they override the flow's."""

    depends_on: StepName | Sequence[StepName] | None  # deps for `input` and `ctx.step_output`
    after: StepName | Sequence[StepName] | None  # deps without their outputs


class MapOptions(_CommonOptions, total=False):
    """Options of one map."""

    over: StepName | None  # the step whose list is mapped; without it, the run's input


class JobOptions(FlowOptions, _TaskOptions, total=False):
    """Options of a flow with one step."""

    on_crash_limit: CrashEnd | None


class UndoOptions(_TryOptions, _DelayOptions, total=False):
    """Options of one undo handler."""

    on: Undoable  # "attempted": also tasks that did not complete
    needs: Sequence[str] | None
    limit: Limit | None  # without a key
    crash_limit: int | None  # then the task is quarantined


_NAMES = {option.json_name: option.name for option in OPTIONS if option.json_name}
_NAMES |= {"limitName": "name of the limit", "limitPath": "key of the limit"}
TUNABLE = {option.name: option for option in OPTIONS if option.json_name and option.is_tunable}


@dataclass(frozen=True)
class OptionValues:
    """An option of a flow, or of a step of it, whose three values are not all the same."""

    step: Hidden[str]  # empty: of the flow
    key: Hidden[str]  # in a shape
    code: Annotated[Any, "its value in the code"]
    deployed: Annotated[Any, "its value at the last deployment"]
    database: Annotated[Any, "its value in the database, which counts"]
    is_tuned: Annotated[bool, Named("tuned"), "whether somebody has tuned it"]
    tuned_by: str | None = None
    tuned_at: datetime | None = None

    @property
    @shown
    def name(self) -> Annotated[str, Named("option"), "its name"]:
        return _NAMES.get(self.key, self.key)

    @property
    @shown
    def of_step(
        self,
    ) -> Annotated[
        str | None, Named("step"), "the slug of the step; null for an option of the flow"
    ]:
        return self.step or None

    @property
    def differs(self) -> bool:
        """Whether the database has another value than the code."""
        return bool(self.code != self.database)

    @property
    def is_new(self) -> bool:
        """Whether the next deployment changes or notes something."""
        return not self.is_tuned or bool(self.code != self.deployed)

    @property
    def text(self) -> str:
        """What differs, and what applies."""
        code, known = option_text(self.code), option_text(self.database)
        tuned = ""
        if self.is_tuned and self.tuned_by and self.tuned_at:
            tuned = f" (by {self.tuned_by}, {self.tuned_at:%Y-%m-%d %H:%M})"
        values = f"{code} in the code, {known} in the database{tuned}"
        prefix = f"step {self.step}: " if self.step else ""
        return f"{prefix}{self.name} is {values}; the latter applies"

    @property
    def change(self) -> str:
        """What becomes of it where the code's value is written."""
        texts = {"step": self.step, "option": self.key}
        return change_text({**texts, "before": self.database, "after": self.code})

    def remedy(self, flow: str) -> str:
        """What to do about it."""
        if not self.is_tuned:
            return f"run `pgflowd flows deploy {flow}`"
        return f"`pgflowd flows deploy {flow} --take-code` writes that of the code"


def change_text(change: dict[str, Any]) -> str:
    """One of the changes that the SQL's `define` returns: `step a: timeout 20 → 25`."""
    before, after = option_text(change["before"]), option_text(change["after"])
    prefix = f"step {change['step']}: " if change["step"] else ""
    return f"{prefix}{_NAMES.get(change['option'], change['option'])} {before} → {after}"


def option_text(value: Any) -> str:
    """The value of an option, as people read it."""
    if value is None:
        return "unset"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return value if isinstance(value, str) else dumps(value)
