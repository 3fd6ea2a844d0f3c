"""
The supervisor's children as data: the specification, state and history of each.

The position of a child in the start order is that of its kind. Nothing here decides; the
functions of `core.supervision` return changed copies. Times are monotonic. Pure.
"""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from math import inf

from pgflowd.core.messages import Failed, FallingAsleep, Leaving
from pgflowd.core.settings.sections import SupervisorSettings, WorkerSettings
from pgflowd.core.statuses import ChildState
from pgflowd.core.supervision.kinds import EXPORTER, OBSERVER_KINDS, TREE_KINDS, WORKER, ChildKind
from pgflowd.errors import Bug

# Classifies the exit of a child, by the table of exit codes in docs/background/supervision.md,
# section 1.
#
# A 10, 11 or 78 counts only with its message, so user code that calls `os._exit(78)` parks nothing
# by accident. Any other exit that was not asked for is a crash, 0 included.
EXIT_ASKED = 0  # ended as asked
EXIT_REPLACE = 10  # after Leaving: the worker row is deprecated or gone, the worker has drained
EXIT_ASLEEP = 11  # after FallingAsleep: a worker without work
EXIT_UNREACHABLE = 69  # of the daemon: the database
EXIT_BUG = 70  # after Failed: a bug in pgflowd
EXIT_CANNOT = 78  # after Failed, and of the daemon: cannot start, and another try would not help

ExitMessage = Failed | Leaving | FallingAsleep


class ExitKind(Enum):
    """The kinds of exits."""

    CRASH = "crash"
    REPLACE = "replace"
    ASLEEP = "asleep"
    CANNOT_START = "cannot start"


@dataclass(frozen=True)
class ChildExit:
    """The exit of a child: its kind, and the reason, for people."""

    kind: ExitKind
    reason: str
    code: str | None = None  # of the error, such as E306

    @property
    def is_crash(self) -> bool:
        return self.kind is not ExitKind.CANNOT_START

    @property
    def is_orderly(self) -> bool:
        """Whether the child ended by itself and left nothing undone."""
        return self.kind in {ExitKind.REPLACE, ExitKind.ASLEEP}

    @property
    def text(self) -> str:
        """The reason without its code, which stands beside it."""
        return self.reason.removeprefix(f"{self.code} ")


def classify_exit(
    status: int, message: ExitMessage | None, kill_reason: str | None = None
) -> ChildExit:
    """Classify an exit status (or minus the signal) by the message before it, or by the reason
    why the supervisor killed the child."""
    if kill_reason:
        return ChildExit(ExitKind.CRASH, kill_reason)
    if status == EXIT_REPLACE and isinstance(message, Leaving):
        return ChildExit(ExitKind.REPLACE, message.why)
    if status == EXIT_ASLEEP and isinstance(message, FallingAsleep):
        return ChildExit(ExitKind.ASLEEP, "asleep")
    if status == EXIT_CANNOT and isinstance(message, Failed):
        return ChildExit(ExitKind.CANNOT_START, message.text, message.code)
    if status == EXIT_BUG and isinstance(message, Failed):
        return ChildExit(ExitKind.CRASH, message.text, message.code)
    if isinstance(message, Failed):
        return ChildExit(ExitKind.CRASH, f"{describe_status(status)}: {message.text}", message.code)
    return ChildExit(ExitKind.CRASH, describe_status(status))


def label_of(reason: str) -> str:
    """The reason of an exit as a label of metrics: one of few values, never free text."""
    head = reason.split(",")[0].split(":")[0]
    known = ("killed by SIG", "exit code ", "E903", "said nothing", "was not ready")
    return head if head.startswith(known) else "failed"


def describe_status(status: int) -> str:
    """Return how a process ended, for people."""
    if status >= 0:
        return f"exit code {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"killed by {name}" + (", perhaps out of memory" if status == -9 else "")


# The allowed moves between the states of a child; `move` refuses any other with E902.
MOVES: dict[ChildState, set[ChildState]] = {
    ChildState.IDLE: {ChildState.STARTING, ChildState.PARKED, ChildState.DISABLED},
    ChildState.STARTING: {
        ChildState.UP,
        ChildState.IDLE,  # ended while its position is being stopped
        ChildState.RESTARTING,
        ChildState.PARKED,
        ChildState.DRAINING,
        ChildState.STOPPING,
    },
    ChildState.UP: {
        ChildState.IDLE,
        ChildState.ASLEEP,
        ChildState.RESTARTING,
        ChildState.PARKED,
        ChildState.DRAINING,
        ChildState.STOPPING,
    },
    ChildState.RESTARTING: {ChildState.STARTING, ChildState.IDLE, ChildState.PARKED},
    ChildState.DRAINING: {ChildState.STOPPING, ChildState.IDLE},
    ChildState.STOPPING: {ChildState.IDLE},
    ChildState.ASLEEP: {ChildState.IDLE, ChildState.PARKED},
    ChildState.PARKED: {ChildState.STARTING, ChildState.IDLE},
    ChildState.DISABLED: {ChildState.IDLE},
}


def move(state: ChildState, target: ChildState) -> ChildState:
    """Return the target state, or raise if the table has no such move."""
    if target not in MOVES[state]:
        raise Bug(f"a child cannot go from {state.value} to {target.value}", code="E902")
    return target


class ReloadState(Enum):
    """How far a reload is."""

    NONE = "none"
    ASKED = "asked"  # discovery runs
    APPLIED = "applied"  # changed and removed workers drain


class Announcement(Enum):
    """What the daemon reports about itself; the value is part of the name of a log event."""

    READY = "ready"
    DRAINING = "draining"
    STOPPING = "stopping"


class DaemonPhase(Enum):
    """The phase of the whole tree."""

    DISCOVERING = "discovering"  # before there is a tree
    STARTING = "starting"  # position by position, up to `position`
    RUNNING = "running"
    RESTARTING = "restarting"  # positions from `position` on stop, then start again
    STOPPING = "stopping"
    ENDED = "ended"


GROUP = TREE_KINDS.index(WORKER)
LAST = len(TREE_KINDS) - 1
STRATEGY = "rest_for_one"
OBSERVERS = -1  # their position: they start before all others, and stop after them


@dataclass(frozen=True)
class Budget:
    """
    The restarts that are allowed in a sliding window; beyond it the supervisor gives up or parks.

    docs/background/supervision.md, rules 20 and 21: `most` restarts within `period_s` are allowed
    and the next is not. A restart exactly one period old still counts.
    """

    most: int
    period_s: float
    spent: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.most < 0 or self.period_s < 0:
            raise ValueError(f"a budget of {self.most} in {self.period_s} s is negative")

    def count(self, now: float) -> int:
        """Return how many restarts of the window are spent."""
        return sum(now - at <= self.period_s for at in self.spent)

    def spend(self, now: float) -> tuple[Budget, bool]:
        """Return the budget after one more restart, and whether that one is allowed."""
        recent = tuple(at for at in self.spent if now - at <= self.period_s)
        return replace(self, spent=(*recent, now)), len(recent) < self.most


NOTHING = Budget(0, 0.0)


@dataclass(frozen=True)
class Policy(SupervisorSettings):
    """The settings of [supervisor], and a few limits."""

    startup_wait_s: float = 300.0
    max_connections: int = 0  # 0: by what the server has left


@dataclass(frozen=True)
class ChildSpec:
    """What a child is, and its limits."""

    kind: ChildKind
    name: str = ""  # a worker's flow, or a broken entry
    entry: str = ""  # the entry of the config
    undoes: str | None = None  # the flow whose runs a worker's flow undoes
    fingerprint: str = ""
    enabled: bool = True
    limits: WorkerSettings = field(default=WorkerSettings(), compare=False)

    def __post_init__(self) -> None:
        if self.kind not in (*TREE_KINDS, *OBSERVER_KINDS):
            raise ValueError(f"{self.id}: no {self.kind.name} belongs to the tree")

    @property
    def id(self) -> str:
        return self.kind.child_id(self.name)

    @property
    def position(self) -> int:
        return OBSERVERS if self.kind.is_observer else TREE_KINDS.index(self.kind)

    @property
    def is_worker(self) -> bool:
        return self.kind is WORKER

    @property
    def is_observer(self) -> bool:
        return self.kind.is_observer


@dataclass(frozen=True)
class ChildEntry:
    """One child: its specification, state and history."""

    spec: ChildSpec
    budget: Budget
    state: ChildState = ChildState.IDLE
    is_start_over: bool = False  # its first start in this round has succeeded or failed
    restarts_in_row: int = 0  # for the delays
    restarts: int = 0  # since the daemon started, for `status`
    ready_at: float | None = None
    last_message_at: float = 0.0
    due_at: float | None = None  # RESTARTING, ASLEEP: when to start; PARKED: when to try again
    deadline_at: float | None = None  # of a start or a stop
    start_left_s: float = 0.0  # what is left of start_timeout while the child waits
    waiting_for: str | None = None
    kill_reason: str | None = None  # why the supervisor killed it
    sleep: FallingAsleep | None = None  # what it said before it fell asleep
    asleep_at: float | None = None
    is_woken: bool = False  # there may be work for it: it falls asleep, or wakes up
    queued_at: float | None = None  # since when it waits for a place
    asked_at: float | None = None  # when it was last asked for its place, or has answered
    is_asked: bool = False  # it has not answered yet
    wants_second: bool = False  # another connection
    has_second: bool = False
    error: ChildExit | None = None  # why it is parked
    parked_at: float | None = None
    exits: tuple[str, ...] = ()  # the last reasons, newest last
    is_last_try: bool = False  # retried after it was parked for crashing: the next crash parks it
    next_spec: ChildSpec | None = None  # reload: its specification after the drain
    is_leaving: bool = False  # reload: removed after the drain

    @property
    def id(self) -> str:
        return self.spec.id

    @property
    def ask_at(self) -> float:
        """When a worker may be asked for its place, again or for the first time."""
        if self.asked_at is None:
            return 0.0
        return self.asked_at + (ANSWER_S if self.is_asked else ASK_AGAIN_S)


# The budget of connections: which worker may have one, and which is asked for its own.
#
# A *place* is the right to one connection. Listener, sweeper and exporter always have theirs. A
# worker has one from its start until it is reaped, and a second one while it has long work. Workers
# that find no place wait in line, first come first served. Meanwhile the workers that are up are
# asked for theirs, some at once: one without work falls asleep, one with work gives its second
# connection back and says that it stays awake (docs/background/supervision.md, rule 56).
SINGLES = 2  # listener and sweeper
MAX_ASKED = 8  # workers that are asked for their places at once: as many as may start at once
ASK_AGAIN_S = 0.5  # a worker that stayed awake, so that a place is free within a second
ANSWER_S = 2.0  # a worker that has not answered by then is not waited for
LONG_S = 10.0  # to wait in line for so long is a problem


@dataclass(frozen=True)
class Tree:
    """All children, and the state of the tree as a whole."""

    policy: Policy
    children: tuple[ChildEntry, ...] = ()
    phase: DaemonPhase = DaemonPhase.DISCOVERING
    position: int = 0  # STARTING: the position that starts; RESTARTING: the lowest that stops
    due_at: float | None = None  # RESTARTING: when the start may begin
    budget: Budget = NOTHING
    is_first_start: bool = True  # until the last child was up for the first time
    was_ready: bool = False
    drain_s: float | None = None  # STOPPING: limit of the drain; None: no limit
    is_draining: bool = False
    exit_code: int = 0  # STOPPING: the exit code
    waiting_from: float | None = None
    waited_s: float = 0.0  # in the first start, for the database
    max_connections: int | None = None  # the budget; None: not known yet
    granted_at: float = 0.0  # when the line of waiting workers began, or last moved
    ask_at: float | None = None  # when to ask again for places
    reload: ReloadState = ReloadState.NONE
    reload_again: bool = False

    def child(self, id: str) -> ChildEntry | None:
        """Return a child, or None if it is not in the tree."""
        return next((child for child in self.children if child.id == id), None)

    def at_position(self, position: int) -> list[ChildEntry]:
        return [child for child in self.children if child.spec.position == position]

    @property
    def workers(self) -> list[ChildEntry]:
        return [child for child in self.children if child.spec.kind is WORKER]

    @property
    def observers(self) -> list[ChildEntry]:
        return self.at_position(OBSERVERS)

    @property
    def is_ending(self) -> bool:
        return self.phase in {DaemonPhase.STOPPING, DaemonPhase.ENDED}

    def put(self, changed: ChildEntry) -> Tree:
        """Return the tree with one child changed."""
        children = tuple(changed if child.id == changed.id else child for child in self.children)
        return replace(self, children=children)

    @property
    def taken(self) -> int:
        """How many connections the daemon has, or may open at any time."""
        exports = any(each.spec.kind is EXPORTER and each.spec.enabled for each in self.observers)
        of_workers = sum(1 + each.has_second for each in self.workers if each.state.is_alive)
        return SINGLES + exports + of_workers

    @property
    def has_place(self) -> bool:
        """Whether one more connection may be opened; always, as long as the budget is not known."""
        return self.max_connections is None or self.taken < self.max_connections

    @property
    def line(self) -> list[ChildEntry]:
        """The workers that would start now, in the order in which they came."""
        idle = [each for each in self.workers if each.state is ChildState.IDLE]
        waiting = [each for each in idle if each.spec.position <= self.free_up_to]
        return sorted(waiting, key=lambda each: inf if each.queued_at is None else each.queued_at)

    @property
    def waiting(self) -> list[ChildEntry]:
        """The workers that wait for a connection, and not only for the start of others."""
        return [] if self.has_place else self.line

    def to_ask(self, now: float) -> list[ChildEntry]:
        """The workers to be asked for their places: those that were not asked for longest."""
        up = [each for each in self.workers if each.state is ChildState.UP and each.sleep is None]
        answering = sum(each.is_asked and now < each.ask_at for each in up)
        leaving = sum(each.sleep is not None for each in self.workers if each.state.is_alive)
        count = min(len(self.waiting), MAX_ASKED) - answering - leaving
        candidates = [each for each in up if now >= each.ask_at]
        candidates.sort(key=lambda each: each.asked_at or 0.0)
        return candidates[: max(0, count)]

    def to_grant(self) -> ChildEntry | None:
        """The worker that gets a second connection, if nobody waits for a first one."""
        if self.line or not self.has_place:
            return None
        wanting = (each for each in self.workers if each.wants_second and each.state.is_alive)
        return next(wanting, None)

    def stands_still(self, now: float) -> bool:
        """Whether the line has not moved for long. Then the start of the others goes on without."""
        return not self.has_place and now >= self.granted_at + LONG_S

    def long_waiting(self, now: float) -> list[ChildEntry]:
        """The workers for which the budget is too small. While all start, the line may be long."""
        if self.phase is not DaemonPhase.RUNNING and not self.stands_still(now):
            return []
        queued = [each for each in self.waiting if each.queued_at is not None]
        return [each for each in queued if now >= (each.queued_at or now) + LONG_S]

    @property
    def free_up_to(self) -> int:
        """The last position whose children may be started at any time; of observers always."""
        return {
            DaemonPhase.RUNNING: LAST,
            DaemonPhase.STARTING: self.position,
            DaemonPhase.RESTARTING: self.position - 1,
            DaemonPhase.ENDED: OBSERVERS - 1,
        }.get(self.phase, OBSERVERS)


def new_child(spec: ChildSpec, period_s: float) -> ChildEntry:
    """Return a child that was not started yet."""
    state = ChildState.IDLE if spec.enabled else ChildState.DISABLED
    return ChildEntry(
        spec, Budget(spec.limits.max_restarts, period_s), state, is_start_over=not spec.enabled
    )


def new_tree(policy: Policy, specs: Iterable[ChildSpec] = ()) -> Tree:
    """Return a tree before its start, or raise ValueError for an impossible one."""
    specs = list(specs)
    ids = [spec.id for spec in specs]
    twice = sorted({id for id in ids if ids.count(id) > 1})
    if twice:
        raise ValueError(f"there are two children {', '.join(twice)}")
    specs.sort(key=lambda spec: spec.position)
    children = tuple(new_child(spec, policy.max_period_s) for spec in specs)
    budget = Budget(policy.max_restarts, policy.max_period_s)
    return Tree(policy, children, budget=budget, max_connections=policy.max_connections or None)


# One flow that the daemon serves, as discovery found it; a worker is started with it.
#
# The supervisor never imports user code: these texts are all it has of a flow. The worker's zygote
# imports `module` and takes the flow with this name. Each version of a flow whose shape has changed
# is a flow of the database, and has a worker of its own with the same code.
@dataclass(frozen=True)
class ServedFlow:
    """A flow: where it is, and its fingerprint."""

    slug: str  # in the database
    module: str
    entry: str  # of the config: "module" or "module:name"
    fingerprint: str = ""  # of the module's files and the flow's shape
    undoes: str | None = None  # the flow whose runs it undoes, if it was derived from one
    of_name: str = ""  # its name in the code, unless it is the same

    @property
    def name(self) -> str:
        """Its name in the code, and in the config."""
        return self.of_name or self.slug

    @property
    def queue(self) -> str:
        """The name of its queue, which notifications carry."""
        return self.slug.lower()


def with_versions(
    flows: Iterable[ServedFlow], versions: Mapping[str, Collection[str]]
) -> list[ServedFlow]:
    """The flows of the code, each replaced by those of its versions that are to be served."""
    flows = list(flows)
    names = {flow.slug for flow in flows}
    return [
        flow if slug == flow.slug else replace(flow, slug=slug, of_name=flow.slug)
        for flow in flows
        for slug in versions.get(flow.slug, (flow.slug,))
        if slug == flow.slug or slug not in names
    ]
