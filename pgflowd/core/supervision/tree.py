"""
Tree: the supervisor's children as data: what each is, does, and has been through.

Positions in start order are listener, workers (a group), sweeper. Nothing here decides; the
functions of `core.supervision` return changed copies. Times are monotonic. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pgflowd.core.supervision.budget import Budget
from pgflowd.core.supervision.lifecycle import ChildState, DaemonPhase

POSITIONS = ("listener", "worker", "sweeper")  # kinds in start order
GROUP = POSITIONS.index("worker")
LAST = len(POSITIONS) - 1
STRATEGIES = ("rest_for_one",)
NOTHING = Budget(0, 0.0)


@dataclass(frozen=True)
class Policy:
    """How the root behaves: settings of [supervisor] and a few limits."""

    max_restarts: int = 20
    max_period_s: float = 60.0
    backoff_min_s: float = 0.1
    backoff_max_s: float = 2.0
    start_timeout_s: float = 60.0
    hang_timeout_s: float = 60.0
    drain_timeout_s: float = 60.0
    startup_wait_s: float = 300.0
    strategy: str = "rest_for_one"

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise ValueError(f"there is no strategy {self.strategy!r}")
        numbers = {name: value for name, value in vars(self).items() if name != "strategy"}
        _refuse_negative("the supervisor", numbers)


@dataclass(frozen=True)
class ChildSpec:
    """What a child is, and how patient we are with it."""

    id: str
    kind: str  # one of POSITIONS
    name: str = ""  # a worker's flow, or the entry that could not be read
    entry: str = ""  # a worker's line in the config
    fingerprint: str = ""
    enabled: bool = True
    max_restarts: int = 5
    backoff_min_s: float = 0.1
    backoff_max_s: float = 30.0
    parked_retry_s: float = 300.0
    kill_grace_s: float = 2.0

    def __post_init__(self) -> None:
        if self.kind not in POSITIONS:
            raise ValueError(f"{self.id}: there is no kind {self.kind!r}")
        numbers = {key: value for key, value in vars(self).items() if isinstance(value, float)}
        _refuse_negative(self.id, {**numbers, "max_restarts": self.max_restarts})

    @property
    def position(self) -> int:
        return POSITIONS.index(self.kind)

    @property
    def is_worker(self) -> bool:
        return self.kind == "worker"


@dataclass(frozen=True)
class ChildEntry:
    """One child: its specification and what has happened to it."""

    spec: ChildSpec
    budget: Budget
    state: ChildState = ChildState.IDLE
    settled: bool = False  # its start in the present round has ended, well or badly
    streak: int = 0  # restarts in a row, for the delays
    restarts: int = 0  # ever, for `status`
    up_since: float | None = None
    heard: float = 0.0  # when it last said something
    due: float | None = None  # RESTARTING: when to start; PARKED: when to try again
    deadline: float | None = None  # of a start or a stop
    left_s: float = 0.0  # of the start's time, while it stands still
    waiting_for: str | None = None
    killed: str | None = None  # why we killed it
    parked_for: str | None = None  # "definition" or "crashing"
    error: tuple[str, str] | None = None  # code and text, while parked
    parked_at: float | None = None
    exits: tuple[str, ...] = ()  # the last reasons, newest last
    on_trial: bool = False  # tried again after it was parked for crashing
    successor: ChildSpec | None = None  # reload: what takes its place after the drain
    removed: bool = False  # reload: it goes after the drain

    @property
    def id(self) -> str:
        return self.spec.id


@dataclass(frozen=True)
class Tree:
    """All children, and what the tree as a whole is doing."""

    policy: Policy
    children: tuple[ChildEntry, ...] = ()
    phase: DaemonPhase = DaemonPhase.DISCOVERING
    at: int = 0  # STARTING: the position being started; WINDING: the lowest that goes down
    due: float | None = None  # WINDING: when the start may begin
    budget: Budget = NOTHING
    first: bool = True  # until the last child was up for the first time
    was_ready: bool = False
    drain_s: float | None = None  # STOPPING: patience of the drain; None: as long as it takes
    is_draining: bool = False
    ending: int = 0  # STOPPING: the exit code
    waiting_since: float | None = None
    waited_s: float = 0.0  # in the first start, for the database
    reload: str = ""  # "asked": discovery runs; "applied": drains are on their way
    reload_again: bool = False

    def child(self, id: str) -> ChildEntry | None:
        """Return a child, or None for one that is no part of the tree."""
        return next((child for child in self.children if child.id == id), None)

    def at_position(self, position: int) -> list[ChildEntry]:
        return [child for child in self.children if child.spec.position == position]

    @property
    def workers(self) -> list[ChildEntry]:
        return self.at_position(GROUP)

    def put(self, changed: ChildEntry) -> Tree:
        """Return the tree with one child changed."""
        children = tuple(changed if child.id == changed.id else child for child in self.children)
        return replace(self, children=children)

    @property
    def free_up_to(self) -> int:
        """The last position whose children may be started at any time."""
        return {
            DaemonPhase.RUNNING: LAST,
            DaemonPhase.STARTING: self.at,
            DaemonPhase.WINDING: self.at - 1,
        }.get(self.phase, -1)


def new_child(spec: ChildSpec, period_s: float) -> ChildEntry:
    """Return a child that has not begun."""
    state = ChildState.IDLE if spec.enabled else ChildState.DISABLED
    return ChildEntry(spec, Budget(spec.max_restarts, period_s), state, settled=not spec.enabled)


def new_tree(policy: Policy, specs: Iterable[ChildSpec] = ()) -> Tree:
    """Return a tree before its start, or raise ValueError for what cannot be (rule 1)."""
    specs = list(specs)
    ids = [spec.id for spec in specs]
    twice = sorted({id for id in ids if ids.count(id) > 1})
    if twice:
        raise ValueError(f"there are two children {', '.join(twice)}")
    specs.sort(key=lambda spec: spec.position)
    children = tuple(new_child(spec, policy.max_period_s) for spec in specs)
    return Tree(policy, children, budget=Budget(policy.max_restarts, policy.max_period_s))


def _refuse_negative(who: str, numbers: dict[str, float]) -> None:
    for name, value in numbers.items():
        if value < 0:
            raise ValueError(f"{who}: {name} is negative: {value}")
