"""
Lifecycle: the states of a child and of the daemon, with the moves that are allowed.

A state machine is data: `MOVES` says where a child may go, `move` refuses the rest as E902.
What `status` shows of a child is the state's value. Pure.
"""

from __future__ import annotations

from enum import Enum

from pgflowd.errors import Bug


class ChildState(Enum):
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
        return self in {
            ChildState.STARTING,
            ChildState.UP,
            ChildState.DRAINING,
            ChildState.STOPPING,
        }


MOVES: dict[ChildState, set[ChildState]] = {
    ChildState.IDLE: {ChildState.STARTING, ChildState.PARKED, ChildState.DISABLED},
    ChildState.STARTING: {
        ChildState.UP,
        ChildState.IDLE,  # ended while others are wound down, or as part of the stop
        ChildState.RESTARTING,
        ChildState.PARKED,
        ChildState.DRAINING,
        ChildState.STOPPING,
    },
    ChildState.UP: {
        ChildState.IDLE,
        ChildState.RESTARTING,
        ChildState.PARKED,
        ChildState.DRAINING,
        ChildState.STOPPING,
    },
    ChildState.RESTARTING: {ChildState.STARTING, ChildState.IDLE, ChildState.PARKED},
    ChildState.DRAINING: {ChildState.STOPPING, ChildState.IDLE},
    ChildState.STOPPING: {ChildState.IDLE},
    ChildState.PARKED: {ChildState.STARTING, ChildState.IDLE},
    ChildState.DISABLED: {ChildState.IDLE},
}


def move(state: ChildState, target: ChildState) -> ChildState:
    """Return the target state, or raise if the table has no such move."""
    if target not in MOVES[state]:
        raise Bug(f"a child cannot go from {state.value} to {target.value}", code="E902")
    return target


class DaemonPhase(Enum):
    """What the whole tree is doing."""

    DISCOVERING = "discovering"  # before there is a tree
    STARTING = "starting"  # position by position, up to `at`
    RUNNING = "running"
    WINDING = "winding"  # positions from `at` on go down, then come back
    STOPPING = "stopping"
    ENDED = "ended"
