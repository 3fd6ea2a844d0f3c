"""
The states of a child and of the daemon, with the allowed moves.

`MOVES` is the table of allowed moves; `move` refuses any other with E902. `status` shows the
value of a child's state. Pure.
"""

from __future__ import annotations

from enum import Enum, StrEnum

from pgflowd.errors import Bug


class ChildState(StrEnum):
    """The state of a child."""

    IDLE = "idle"  # no process; it starts when its position does
    STARTING = "starting"
    UP = "up"
    RESTARTING = "restarting"  # no process; it waits for its delay
    DRAINING = "draining"
    STOPPING = "stopping"
    ASLEEP = "asleep"  # no process: it had nothing to do, and starts when there is work
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
