"""
Ear: what the supervisor makes of its children's words.

Most of them are events for `core.supervision`. A wake is passed on to the workers, and so is the
wish to follow a run; garbage is its sender's crash (rule 47). The ids of dead workers are kept
until the sweeper has confirmed that their tasks are released, through restarts of the sweeper too
(rule 12).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pgflowd.core import messages as say
from pgflowd.core.messages import Message, UnreadableMessage
from pgflowd.core.metrics.counters import merged
from pgflowd.core.supervision.decide import on_heard, on_ready
from pgflowd.core.supervision.lifecycle import ChildState
from pgflowd.core.supervision.waiting import on_waiting
from pgflowd.processes.supervisor.children import ChildProcess
from pgflowd.processes.supervisor.discover import ID as DISCOVERY

if TYPE_CHECKING:
    from pgflowd.processes.supervisor.loop import SupervisorLoop


class Inbox:
    """Hears children, and remembers the dead."""

    def __init__(self, supervisor: SupervisorLoop) -> None:
        self._supervisor = supervisor
        self._dead: dict[str, None] = {}  # worker ids, in the order of their deaths

    def hear(self, process: ChildProcess, came: list[Message | UnreadableMessage]) -> None:
        for message in came:
            if self._supervisor.offspring.alive.get(process.id) not in (process, None):
                return
            if not _may_say(process, message):
                self._garbage(process, message)
            elif isinstance(message, say.Found):
                self._supervisor.renewal.hear(process, message)
            elif isinstance(message, Message):
                self._on_message(process, message)

    def _on_message(self, process: ChildProcess, message: Message) -> None:
        id, now = process.id, self._supervisor.now()
        if isinstance(message, say.Ready):
            process.worker_id = message.worker_id
            self._supervisor.log_child("info", "child.ready", process, took_s=now - process.started)
            self._supervisor.do(on_ready(self._supervisor.tree, id, now))
            if id == "sweeper":
                self.tell_of_the_dead()
            return
        if isinstance(message, say.Waiting):
            if message.what:
                self._supervisor.log_child("warning", "child.waiting", process, what=message.what)
            self._supervisor.do(on_waiting(self._supervisor.tree, id, message.what, now))
            return
        if isinstance(message, say.Heartbeat):
            process.numbers = merged(process.numbers, message.numbers)
        elif isinstance(message, say.Failed | say.Leaving):
            process.said = message
        elif isinstance(message, say.Wake):
            self._wake(message)
        elif isinstance(message, say.Follow):
            self._follow(message)
        elif isinstance(message, say.Released):
            self._dead.pop(message.worker_id, None)
        self._supervisor.do(on_heard(self._supervisor.tree, id, now))

    def _wake(self, message: say.Wake) -> None:
        """Pass a wake on; one that finds a full pipe is dropped, for one is waiting there."""
        for process in list(self._supervisor.offspring.alive.values()):
            served = process.served
            if served is not None and message.slug in {None, served.queue}:
                process.child.channel.send(say.Wake(served.slug))

    def _follow(self, message: say.Follow) -> None:
        """Tell all workers, since nobody here knows which has tasks of this run."""
        for process in self._supervisor.offspring.alive.values():
            if process.served is not None:
                process.child.channel.send(message)

    def _garbage(self, process: ChildProcess, message: Message | UnreadableMessage) -> None:
        why = (
            message.why
            if isinstance(message, UnreadableMessage)
            else f"{type(message).__name__} from it"
        )
        self._supervisor.log_child("error", "child.garbage", process, code="E903", error=why)
        if process.id in self._supervisor.offspring.alive:
            self._supervisor.offspring.kill(process, f"E903 garbage on its pipe: {why}")

    def mourn(self, worker_id: str) -> None:
        """This worker is dead and reaped: have its tasks released."""
        self._dead[worker_id] = None
        self._tell([worker_id])

    def tell_of_the_dead(self) -> None:
        """A new sweeper knows of nobody."""
        self._tell(self._dead)

    def _tell(self, worker_ids: Iterable[str]) -> None:
        sweeper = self._supervisor.offspring.alive.get("sweeper")
        child = self._supervisor.tree.child("sweeper")
        if sweeper is not None and child is not None and child.state is ChildState.UP:
            for worker_id in worker_ids:
                self._supervisor.offspring.tell(sweeper, say.ConnectionClosed(worker_id))


def _may_say(process: ChildProcess, message: Message | UnreadableMessage) -> bool:
    """Whether this is a message, and one that this child has to say."""
    if process.id.startswith(DISCOVERY):
        return isinstance(message, say.Found)
    if isinstance(message, say.Wake | say.Follow):
        return process.id == "listener"
    if isinstance(message, say.Released):
        return process.id == "sweeper"
    told = say.Ready | say.Waiting | say.Heartbeat | say.Failed | say.Leaving
    return isinstance(message, told)
