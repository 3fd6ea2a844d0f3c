"""
The supervisor's children as data: the specification, state and history of each.

The position of a child in the start order is that of its kind. Nothing here decides; the
functions of `core.supervision` return changed copies. Times are monotonic. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pgflowd.core.messages import FallingAsleep
from pgflowd.core.supervision.exits import ChildExit
from pgflowd.core.supervision.kinds import OBSERVER_KINDS, TREE_KINDS, WORKER, ChildKind
from pgflowd.core.supervision.lifecycle import ChildState, DaemonPhase, ReloadState

GROUP = TREE_KINDS.index(WORKER)
LAST = len(TREE_KINDS) - 1
OBSERVERS = -1  # their position: they start before all others, and stop after them
STRATEGIES = ("rest_for_one",)


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
class Policy:
    """Settings of [supervisor] that decide about restarts, and a few limits."""

    max_restarts: int = 20
    max_period_s: float = 60.0
    backoff_min_s: float = 0.1
    backoff_max_s: float = 2.0
    start_timeout_s: float = 60.0
    hang_timeout_s: float = 60.0
    drain_timeout_s: float = 60.0
    startup_wait_s: float = 300.0
    max_connections: int = 0  # 0: by what the server has left
    strategy: str = "rest_for_one"

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise ValueError(f"there is no strategy {self.strategy!r}")
        numbers = {name: value for name, value in vars(self).items() if name != "strategy"}
        _refuse_negative("the supervisor", numbers)


@dataclass(frozen=True)
class ChildSpec:
    """What a child is, and its limits."""

    kind: ChildKind
    name: str = ""  # a worker's flow, or a broken entry
    entry: str = ""  # the entry of the config
    undoes: str | None = None  # the flow whose runs a worker's flow undoes
    fingerprint: str = ""
    enabled: bool = True
    max_restarts: int = 5
    backoff_min_s: float = 0.1
    backoff_max_s: float = 30.0
    kill_grace_s: float = 2.0

    def __post_init__(self) -> None:
        if self.kind not in (*TREE_KINDS, *OBSERVER_KINDS):
            raise ValueError(f"{self.id}: no {self.kind.name} belongs to the tree")
        numbers = {key: value for key, value in vars(self).items() if isinstance(value, float)}
        _refuse_negative(self.id, {**numbers, "max_restarts": self.max_restarts})

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

    def put(self, changed: ChildEntry) -> Tree:
        """Return the tree with one child changed."""
        children = tuple(changed if child.id == changed.id else child for child in self.children)
        return replace(self, children=children)

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
        spec, Budget(spec.max_restarts, period_s), state, is_start_over=not spec.enabled
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


def _refuse_negative(owner: str, numbers: dict[str, float]) -> None:
    for name, value in numbers.items():
        if value < 0:
            raise ValueError(f"{owner}: {name} is negative: {value}")
