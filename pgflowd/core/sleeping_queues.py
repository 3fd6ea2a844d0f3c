"""
The queues of sleeping workers, and when the sweeper looks at each again.

Queues that are due at about the same time are looked at together, in one statement. A queue is
looked at as soon as its worker sleeps, for a message may have come while it fell asleep. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from pgflowd.core.messages import Asleep

EARLY = 0.5  # of a pause: so much earlier a queue may be looked at together with others


@dataclass
class _Queue:
    order: Asleep
    look_at: float


class SleepingQueues:
    """The queues by name, and the rows of their workers, which are renewed."""

    def __init__(self) -> None:
        self._queues: dict[str, _Queue] = {}

    @property
    def worker_ids(self) -> list[str]:
        return [queue.order.worker_id for queue in self._queues.values()]

    @property
    def due(self) -> float:
        """When to look next."""
        return min((queue.look_at for queue in self._queues.values()), default=float("inf"))

    def add(self, order: Asleep, now: float) -> None:
        """A worker sleeps: look at its queue at once."""
        self._queues[order.queue] = _Queue(order, now)

    def remove(self, name: str) -> None:
        self._queues.pop(name, None)

    def look_at_all(self, now: float) -> None:
        """Messages may have come that nobody announced."""
        for queue in self._queues.values():
            queue.look_at = now

    def look_by(self, name: str, moment: float) -> None:
        """Look at one of them earlier than planned."""
        self._queues[name].look_at = min(self._queues[name].look_at, moment)

    def take_due(self, now: float) -> list[Asleep]:
        """Return the queues to look at now, and plan the next look at each."""
        if now < self.due:
            return []
        taken = []
        for queue in self._queues.values():
            pause_s = queue.order.look_every_s
            if queue.look_at <= now + EARLY * pause_s:
                queue.look_at = now + pause_s
                taken.append(queue.order)
        return taken
