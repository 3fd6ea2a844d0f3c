"""
Lifecycle: the states of a child and of the daemon, with the moves that are allowed.

A state machine is data: `MOVES` says where a child may go, `move` refuses the rest as E902.
What `status` shows of a child is the state's value. Pure.
"""

from __future__ import annotations

from enum import Enum

from pgflowd.errors import Bug


class State(Enum):
    """What a child is doing."""

    IDLE = "idle"  # no process; it is started in its turn
    STARTING = "starting"
    UP = "up"
    RESTARTING = "restarting"  # no process; its delay runs
    DRAINING = "draining"
    STOPPING = "stopping"
    PARKED = "failed"
    DISABLED = "disabled"

    @property
    def is_alive(self) -> bool:
        """Whether there is a process."""
        return self in {State.STARTING, State.UP, State.DRAINING, State.STOPPING}


MOVES: dict[State, set[State]] = {
    State.IDLE: {State.STARTING, State.PARKED, State.DISABLED},
    State.STARTING: {
        State.UP,
        State.IDLE,  # ended while others are wound down, or as part of the stop
        State.RESTARTING,
        State.PARKED,
        State.DRAINING,
        State.STOPPING,
    },
    State.UP: {State.IDLE, State.RESTARTING, State.PARKED, State.DRAINING, State.STOPPING},
    State.RESTARTING: {State.STARTING, State.IDLE, State.PARKED},
    State.DRAINING: {State.STOPPING, State.IDLE},
    State.STOPPING: {State.IDLE},
    State.PARKED: {State.STARTING, State.IDLE},
    State.DISABLED: {State.IDLE},
}


def move(state: State, target: State) -> State:
    """Return the target state, or raise if the table has no such move."""
    if target not in MOVES[state]:
        raise Bug(f"a child cannot go from {state.value} to {target.value}", code="E902")
    return target


class Phase(Enum):
    """What the whole tree is doing."""

    DISCOVERING = "discovering"  # before there is a tree
    STARTING = "starting"  # position by position, up to `at`
    RUNNING = "running"
    WINDING = "winding"  # positions from `at` on go down, then come back
    STOPPING = "stopping"
    ENDED = "ended"
