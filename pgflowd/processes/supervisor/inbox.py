"""
Dispatches messages from child processes to supervision, reload and the workers.

Most are events for `core.supervision`. Wake and Follow are passed on to the workers. A message
that its sender may not send counts as its crash (docs/design/supervision.md, rule 47). The ids of
ended workers are kept until the sweeper has confirmed that their tasks are released, also while
the sweeper restarts (rule 12).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pgflowd.core import messages as msg
from pgflowd.core.messages import Message, UnreadableMessage
from pgflowd.core.metrics.counters import merged
from pgflowd.core.supervision.decide import on_message, on_ready
from pgflowd.core.supervision.lifecycle import ChildState
from pgflowd.core.supervision.timeouts import on_waiting
from pgflowd.processes.supervisor.children import ChildProcess
from pgflowd.processes.supervisor.discover import ID as DISCOVERY

if TYPE_CHECKING:
    from pgflowd.processes.supervisor.loop import SupervisorLoop


class Inbox:
    """Handles messages, and keeps the ids of ended workers."""

    def __init__(self, supervisor: SupervisorLoop) -> None:
        self._supervisor = supervisor
        self._ended_workers: dict[str, None] = {}  # worker ids, in the order of their ends

    def receive(self, process: ChildProcess, messages: list[Message | UnreadableMessage]) -> None:
        for message in messages:
            if self._supervisor.children.alive.get(process.id) not in (process, None):
                return
            if not _may_send(process, message):
                self._reject(process, message)
            elif isinstance(message, msg.Found):
                self._supervisor.reloader.receive(process, message)
            elif isinstance(message, Message):
                self._on_message(process, message)

    def _on_message(self, process: ChildProcess, message: Message) -> None:
        id, now = process.id, self._supervisor.now()
        if isinstance(message, msg.Ready):
            process.worker_id = message.worker_id
            self._supervisor.log_child(
                "info", "child.ready", process, took_s=now - process.started_at
            )
            self._supervisor.do(on_ready(self._supervisor.tree, id, now))
            if id == "sweeper":
                self.resend_ended_workers()
            return
        if isinstance(message, msg.Waiting):
            if message.what:
                self._supervisor.log_child("warning", "child.waiting", process, what=message.what)
            self._supervisor.do(on_waiting(self._supervisor.tree, id, message.what, now))
            return
        if isinstance(message, msg.Heartbeat):
            process.numbers = merged(process.numbers, message.numbers)
        elif isinstance(message, msg.Failed | msg.Leaving):
            process.exit_message = message
        elif isinstance(message, msg.Wake):
            self._wake(message)
        elif isinstance(message, msg.Follow):
            self._follow(message)
        elif isinstance(message, msg.Released):
            self._ended_workers.pop(message.worker_id, None)
        self._supervisor.do(on_message(self._supervisor.tree, id, now))

    def _wake(self, message: msg.Wake) -> None:
        """Pass a wake on. On a full channel it is dropped, since a wake waits there already."""
        for process in list(self._supervisor.children.alive.values()):
            served = process.served
            if served is not None and message.slug in {None, served.queue}:
                process.child.channel.send(msg.Wake(served.slug))

    def _follow(self, message: msg.Follow) -> None:
        """Pass it on to all workers: the supervisor does not know which has tasks of this run."""
        for process in self._supervisor.children.alive.values():
            if process.served is not None:
                process.child.channel.send(message)

    def _reject(self, process: ChildProcess, message: Message | UnreadableMessage) -> None:
        why = (
            message.why
            if isinstance(message, UnreadableMessage)
            else f"{type(message).__name__} from it"
        )
        self._supervisor.log_child("error", "child.garbage", process, code="E903", error=why)
        if process.id in self._supervisor.children.alive:
            self._supervisor.children.kill(process, f"E903 garbage on its pipe: {why}")

    def on_worker_ended(self, worker_id: str) -> None:
        """A worker is reaped: let the sweeper release its tasks."""
        self._ended_workers[worker_id] = None
        self._send_to_sweeper([worker_id])

    def resend_ended_workers(self) -> None:
        """Send a new sweeper the ended workers that are not confirmed."""
        self._send_to_sweeper(self._ended_workers)

    def _send_to_sweeper(self, worker_ids: Iterable[str]) -> None:
        sweeper = self._supervisor.children.alive.get("sweeper")
        child = self._supervisor.tree.child("sweeper")
        if sweeper is not None and child is not None and child.state is ChildState.UP:
            for worker_id in worker_ids:
                self._supervisor.children.send(sweeper, msg.WorkerEnded(worker_id))


def _may_send(process: ChildProcess, message: Message | UnreadableMessage) -> bool:
    """Whether this is a message, and its sender may send it."""
    if process.id.startswith(DISCOVERY):
        return isinstance(message, msg.Found)
    if isinstance(message, msg.Wake | msg.Follow):
        return process.id == "listener"
    if isinstance(message, msg.Released):
        return process.id == "sweeper"
    allowed = msg.Ready | msg.Waiting | msg.Heartbeat | msg.Failed | msg.Leaving
    return isinstance(message, allowed)
