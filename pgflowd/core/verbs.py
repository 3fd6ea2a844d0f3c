"""
What people and programs do to runs, tasks, flows, schedules and workers: a row for each verb.

`db.operations.perform` calls the SQL function of a row and reads its answer. The commands
(`cli.verbs`), the forms and actions of the dashboard (`web.actions`) and the role that a refusal
names (`db.connection`) come from the rows; each client has a method that performs one. To add a
verb, see CONTRIBUTING.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from pgflowd.core.statuses import RunStatus

if TYPE_CHECKING:
    from pgflowd.core.documents.runs import Run
    from pgflowd.core.documents.schedules import Fired

T = TypeVar("T")

OPEN = tuple(one for one in RunStatus if not one.is_end and one is not RunStatus.UNDOING)
ENDED = tuple(one for one in RunStatus if one.is_end)
DAY_S = 86400.0
MAX_LEASE_S = 30 * DAY_S  # as pgflowd.task_claim and task_extend allow
STARTER, OPERATOR = "pgflow_starter", "pgflow_operator"
WORKER, OWNER = "pgflow_worker", "pgflow_owner"


class Kind(Enum):
    """What the values of an argument are."""

    FLAG = auto()
    TEXT = auto()
    NUMBER = auto()
    DURATION = auto()  # in seconds
    MOMENT = auto()  # a `core.wishes.Moment`
    JSON = auto()  # its text
    WORDS = auto()
    RUNS = auto()  # ids


class Argument(NamedTuple):
    """An argument of a verb's SQL function, besides its target and the actor."""

    name: str
    kind: Kind
    help: str = ""  # of its option; commands that are made from rows have no option without
    option: str = ""  # if it is not named as the argument
    label: str = ""  # of its field in a form of the dashboard, which has none without
    is_required: bool = False  # a word of the command, not an option; the form wants it too
    of: tuple[RunStatus, ...] = ()  # the runs that a command chooses if this flag is set

    @property
    def flag(self) -> str:
        return f"--{(self.option or self.name).replace('_', '-')}"


class Target(Enum):
    """To what something is done: the arguments of the function that name it."""

    RUN = ("run_id",)
    TASK = ("run_id", "step_slug", "task_index")
    FLOW = ("flow_slug",)
    SCHEDULE = ("name",)
    WORKER = ("worker_id",)


class Returned(Enum):
    """What a performed verb returns."""

    VALUE = auto()  # what its function returns
    CHANGED = auto()  # False if it was so before
    RUN = auto()  # the run, as it is afterwards
    SIGNAL = auto()
    FIRED = auto()


class SignalReceipt(NamedTuple):
    """A signal that was sent; before, if there was one with its key."""

    signal_id: int
    at: datetime  # now, by the database's clock; a new signal was sent then


@dataclass(frozen=True)
class Verb(Generic[T]):
    """Something that can be done; T is what `perform` returns."""

    command: str  # such as `runs cancel`
    function: str  # of schema pgflowd
    target: Target
    answer: Returned
    role: str  # the least that may call the function
    arguments: tuple[Argument, ...] = ()
    help: str = ""
    examples: tuple[str, ...] = ()
    done: str = ""  # "run 7f3a9c12 …"
    is_so: str = ""  # likewise, of what was so before
    # of verbs on runs
    allowed: tuple[RunStatus, ...] = ()  # runs with another status refuse, or have nothing to do
    already: tuple[RunStatus, ...] = ()  # runs to which this has been done
    chosen: tuple[RunStatus, ...] = ()  # by filters without a status; empty: all that are allowed
    leads_to: tuple[RunStatus, ...] = ()  # with another status afterwards it was ended before
    is_many: bool = False  # filters may choose runs; without, they are named
    asks: bool = False  # there is no way back, so people are asked
    follow: str = ""  # help of --follow
    good: RunStatus = RunStatus.COMPLETED  # the end that --follow hopes for
    # of the dashboard
    path: str = ""  # the last word of the action's address; empty: it is not offered
    label: str = ""  # of the button
    sends: str = ""  # of the button that sends the form; empty: one button does it at once
    is_danger: bool = False

    @property
    def name(self) -> str:
        """The last word of the command."""
        return self.command.partition(" ")[2]

    def with_options(self, text: str) -> str:
        """A text for people who use the command, with its options in place of arguments."""
        for each in self.arguments:
            text = re.sub(rf"\b{each.name}\b", each.flag, text) if each.kind is Kind.FLAG else text
        return text


_WHY = "Why; it is stored with the action."
REASON = Argument("reason", Kind.TEXT, _WHY, label="Why")
TOKEN = Argument("token", Kind.NUMBER, "Only with this token, which a claim printed.")
_THRESHOLD = Argument("stale_threshold", Kind.DURATION)

CANCEL: Verb[Run] = Verb(
    "runs cancel", "cancel", Target.RUN, Returned.RUN, STARTER,
    (
        REASON,
        Argument("undo", Kind.FLAG, "Then undo them, whatever their flow says.",
                 label="then undo what it did"),
    ),
    help="Cancel runs, and stop their running tasks. Filters choose many.",
    examples=(
        'pgflowd runs cancel 7f3a9c12 --reason "wrong customer"',
        "pgflowd runs cancel 7f3a9c12 --undo",
        "pgflowd runs cancel --flow import_orders --since 1h",
    ),
    done="cancelled",
    allowed=OPEN, already=(RunStatus.CANCELLED,), is_many=True,
    path="cancel", label="Cancel", sends="Cancel the run", is_danger=True,
)  # fmt: skip
RETRY: Verb[Run] = Verb(
    "runs retry", "retry", Target.RUN, Returned.RUN, OPERATOR,
    (
        Argument("even_if_cancelled", Kind.FLAG, "Also retry cancelled runs.",
                 of=(RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.EXPIRED)),
        REASON,
    ),
    help="Retry the failed steps of runs; completed work stays. Filters choose many.",
    examples=(
        "pgflowd runs retry @last --follow",
        "pgflowd runs retry --flow send_email --since 1d",
    ),
    done="retried", follow="Then print their events.",
    allowed=(RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.EXPIRED),
    already=(RunStatus.STARTED,), chosen=(RunStatus.FAILED,), is_many=True,
    path="retry", label="Retry",
)  # fmt: skip
UNDO: Verb[Run] = Verb(
    "runs undo", "undo", Target.RUN, Returned.RUN, STARTER,
    (
        REASON,
        Argument("again", Kind.FLAG, "Undo what an undo that failed has left.",
                 of=(RunStatus.UNDO_FAILED,)),
    ),
    help="""\
Undo what the steps of runs did, in reverse order, by their undo handlers.

The runs must have ended, completed ones too; `runs cancel --undo` ends one first. Filters
choose many. With --follow the exit code is 0 if all of them are undone, else 1.""",
    examples=(
        'pgflowd runs undo 7f3a9c12 --reason "customer withdrew" --follow',
        "pgflowd runs undo 7f3a9c12 --again",
        "pgflowd runs undo --flow book_trip --status failed --since 1d",
    ),
    done="is being undone", follow="Then print what is undone.", good=RunStatus.UNDONE,
    allowed=(RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.EXPIRED,
             RunStatus.UNDO_FAILED),
    already=(RunStatus.UNDOING, RunStatus.UNDONE), chosen=(RunStatus.FAILED,),
    leads_to=(RunStatus.UNDOING,), is_many=True,
    path="undo", label="Undo", sends="Undo what it did", is_danger=True,
)  # fmt: skip
PAUSE: Verb[Run] = Verb(
    "runs pause", "pause", Target.RUN, Returned.RUN, STARTER, (REASON,),
    help="""\
Pause runs: none of their tasks begins, and their timers stand still. Filters choose many.

Running tasks end normally. A run expires all the same.""",
    examples=('pgflowd runs pause 7f3a9c12 --reason "the supplier is down"',),
    done="paused",
    allowed=(RunStatus.STARTED, RunStatus.WAITING, RunStatus.QUARANTINED),
    already=(RunStatus.PAUSED,), is_many=True,
    path="pause", label="Pause", sends="Pause the run",
)  # fmt: skip
RESUME: Verb[Run] = Verb(
    "runs resume", "resume", Target.RUN, Returned.RUN, STARTER, (REASON,),
    help="Let paused runs go on. Filters choose many.",
    examples=("pgflowd runs resume 7f3a9c12",),
    done="resumed",
    allowed=(RunStatus.PAUSED,),
    already=(RunStatus.STARTED, RunStatus.WAITING, RunStatus.QUARANTINED),
    leads_to=OPEN, is_many=True,
    path="resume", label="Resume",
)  # fmt: skip
RESCHEDULE: Verb[Run] = Verb(
    "runs reschedule", "reschedule", Target.RUN, Returned.RUN, STARTER,
    (
        Argument("start_at", Kind.MOMENT), Argument("expires_at", Kind.MOMENT), REASON,
        Argument("after", Kind.RUNS), Argument("after_mode", Kind.TEXT),
        Argument("singleton_key", Kind.TEXT),
    ),
    done="rescheduled", allowed=OPEN,
)  # fmt: skip
DELETE: Verb[int] = Verb(
    "runs delete", "delete_run", Target.RUN, Returned.VALUE, OPERATOR,
    help="""\
Delete runs that have ended, with all that belongs to them, and their children.

Filters choose many; `runs prune` deletes old ones.""",
    examples=(
        "pgflowd runs delete 7f3a9c12",
        "pgflowd runs delete --flow send_email --status cancelled",
    ),
    done="deleted",
    allowed=ENDED, is_many=True, asks=True,
    path="delete", label="Delete", sends="Delete the run for ever", is_danger=True,
)  # fmt: skip
_DEDUP = Argument("dedup", Kind.TEXT)
SIGNAL: Verb[SignalReceipt] = Verb(
    "runs signal", "signal", Target.RUN, Returned.SIGNAL, STARTER,
    (Argument("name", Kind.TEXT), Argument("payload", Kind.JSON), _DEDUP),
)  # fmt: skip
ANSWER: Verb[SignalReceipt] = Verb(
    "runs approve", "answer", Target.RUN, Returned.SIGNAL, STARTER,
    (Argument("step_slug", Kind.TEXT), Argument("is_approved", Kind.FLAG),
     Argument("note", Kind.TEXT), _DEDUP),
)  # fmt: skip

WAKE: Verb[str] = Verb(
    "tasks wake", "task_wake", Target.TASK, Returned.VALUE, OPERATOR,
    (REASON._replace(help="Why."),),
    help="End the wait of a task now: its sleep is over, or its signal did not come.",
    examples=('pgflowd tasks wake 7f3a9c12/remind#0 --reason "the customer called"',),
    path="wake", label="End the wait", sends="End the wait now",
)  # fmt: skip
EXTEND: Verb[datetime] = Verb(
    "tasks extend", "task_extend", Target.TASK, Returned.VALUE, OPERATOR,
    (Argument("lease", Kind.DURATION), TOKEN),
)  # fmt: skip
COMPLETE: Verb[str] = Verb(
    "tasks complete", "task_complete", Target.TASK, Returned.VALUE, OPERATOR,
    (Argument("output", Kind.JSON, label="Output, JSON", is_required=True), TOKEN),
    help="""\
Complete a task that is claimed, or that nobody has, with OUTPUT.

OUTPUT is JSON; - reads it from standard input, @FILE from a file.""",
    examples=("pgflowd tasks complete 7f3a9c12/review#0 '{\"ok\": true}' --as jane",),
    path="complete", label="Complete", sends="Complete the task",
)  # fmt: skip
FAIL: Verb[str] = Verb(
    "tasks fail", "task_fail", Target.TASK, Returned.VALUE, OPERATOR,
    (
        REASON._replace(help="Why; it is added to the error."),
        Argument("final", Kind.FLAG, "Without another attempt.", label="without another attempt"),
        TOKEN,
    ),
    help="Fail a task that is claimed, or that nobody has; it is tried again if attempts are left.",
    examples=('pgflowd tasks fail 7f3a9c12/review#0 --reason "the scan is empty" --final',),
    path="fail", label="Fail", sends="Fail this attempt", is_danger=True,
)  # fmt: skip
RELEASE: Verb[str] = Verb(
    "tasks release", "task_release", Target.TASK, Returned.VALUE, OPERATOR,
    (
        Argument("delay", Kind.DURATION, "Not before this time."),
        Argument("needs", Kind.WORDS, "For somebody who has these caps."),
        TOKEN,
    ),
    help="Give a task back, its attempt unspent; postpone or hand on one that nobody has.",
    examples=(
        "pgflowd tasks release 7f3a9c12/review#0 --delay 2h --as jane",
        "pgflowd tasks release 7f3a9c12/review#0 --needs human.lawyer --as jane",
    ),
    path="release", label="Release",
)  # fmt: skip
REQUEUE: Verb[bool] = Verb(
    "stalled requeue", "requeue_task", Target.TASK, Returned.VALUE, OPERATOR, (_THRESHOLD, REASON),
    help="Put stalled tasks back into their queues; this costs no attempt.",
    examples=("pgflowd stalled requeue 7f3a9c12/summary#0",),
    done="requeued", path="requeue", label="Requeue", sends="Put it back into its queue",
)  # fmt: skip
GIVE_UP: Verb[bool] = Verb(
    "stalled fail", "give_up_task", Target.TASK, Returned.VALUE, OPERATOR,
    (_THRESHOLD, REASON._replace(help="Why; it is added to the error.")),
    help="Fail stalled tasks without a retry, as their last failed attempt would.",
    examples=('pgflowd stalled fail 7f3a9c12/summary#0 --reason "the file is gone"',),
    done="failed", path="give-up", label="Fail", sends="Fail it for good", is_danger=True,
)  # fmt: skip

PAUSE_FLOW: Verb[bool] = Verb(
    "flows pause", "pause_flow", Target.FLOW, Returned.CHANGED, OPERATOR,
    (REASON._replace(help="Why; `flows show` prints it."),),
    help="""\
Pause a flow: none of its tasks begins, on any daemon. Its runs may be started.

Running tasks end normally; timers go on.""",
    examples=('pgflowd flows pause send_email --reason "the mail server is down"',),
    done="paused", is_so="is paused already",
    path="pause", label="Pause", sends="Pause the flow",
)  # fmt: skip
RESUME_FLOW: Verb[bool] = Verb(
    "flows resume", "resume_flow", Target.FLOW, Returned.CHANGED, OPERATOR, (REASON,),
    help="Let a paused flow go on.",
    examples=("pgflowd flows resume send_email",),
    done="resumed", is_so="is not paused",
    path="resume", label="Resume",
)  # fmt: skip
DELETE_FLOW: Verb[Any] = Verb(
    "flows delete", "delete_flow", Target.FLOW, Returned.VALUE, OWNER, (REASON,)
)

PAUSE_SCHEDULE: Verb[bool] = Verb(
    "schedules pause", "pause_schedule", Target.SCHEDULE, Returned.CHANGED, OPERATOR,
    help="Let a schedule have no ticks until it is resumed. Its runs go on.",
    examples=("pgflowd schedules pause nightly",),
    done="paused", is_so="is paused already",
    path="pause", label="Pause",
)  # fmt: skip
RESUME_SCHEDULE: Verb[bool] = Verb(
    "schedules resume", "resume_schedule", Target.SCHEDULE, Returned.CHANGED, OPERATOR,
    help="Let a paused schedule tick from now on. Ticks of the pause are not run.",
    examples=("pgflowd schedules resume nightly",),
    done="resumed", is_so="is not paused",
    path="resume", label="Resume",
)  # fmt: skip
FIRE: Verb[Fired] = Verb(
    "schedules fire", "fire_schedule", Target.SCHEDULE, Returned.FIRED, OPERATOR,
    path="fire", label="Fire now",
)  # fmt: skip
ADD_SCHEDULE: Verb[bool] = Verb(
    "schedules add", "set_schedule", Target.SCHEDULE, Returned.CHANGED, WORKER,
    (
        Argument("flow_slug", Kind.TEXT), Argument("cron", Kind.TEXT),
        Argument("input", Kind.JSON), Argument("timezone", Kind.TEXT),
        Argument("overlap", Kind.TEXT), Argument("catchup", Kind.TEXT),
    ),
)  # fmt: skip
REMOVE_SCHEDULE: Verb[str] = Verb(
    "schedules remove", "remove_schedule", Target.SCHEDULE, Returned.VALUE, WORKER
)
RESTART_WORKER: Verb[str] = Verb(
    "daemons restart", "restart_worker", Target.WORKER, Returned.VALUE, OPERATOR, (REASON,),
    path="restart", label="Restart", sends="Restart the worker",
)  # fmt: skip

VERBS: tuple[Verb[Any], ...] = (
    CANCEL, RETRY, UNDO, PAUSE, RESUME, RESCHEDULE, SIGNAL, ANSWER, DELETE,
    WAKE, EXTEND, COMPLETE, FAIL, RELEASE, REQUEUE, GIVE_UP,
    PAUSE_FLOW, RESUME_FLOW, DELETE_FLOW,
    PAUSE_SCHEDULE, RESUME_SCHEDULE, FIRE, ADD_SCHEDULE, REMOVE_SCHEDULE, RESTART_WORKER,
)  # fmt: skip
RUN_VERBS = tuple(verb for verb in VERBS if verb.target is Target.RUN)
