"""
Dispatches messages from child processes to supervision, reload and the workers.

Most are events for `core.supervision`. Wake and Follow are passed on to the workers, a Wake also
starts one that sleeps, and what the sweeper reads for a worker goes to that one. A message that its
sender may not send counts as its crash (docs/background/supervision.md, rule 47). The ids of ended
workers are kept until the sweeper has confirmed that their tasks are released, also while the
sweeper restarts (rule 12).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pgflowd.core import messages as msg
from pgflowd.core.messages import Message, UnreadableMessage
from pgflowd.core.metrics.counters import merged
from pgflowd.core.supervision.decide import (
    WakeCause,
    on_connection_returned,
    on_connection_wanted,
    on_connections_left,
    on_falling_asleep,
    on_message,
    on_next_due,
    on_ready,
    on_staying_awake,
    on_waiting,
    on_wake,
)
from pgflowd.core.supervision.kinds import LISTENER, WORKER
from pgflowd.core.supervision.tree import ChildEntry, ChildState, DaemonPhase
from pgflowd.core.text import did_you_mean
from pgflowd.processes.supervisor.children import ChildProcess

if TYPE_CHECKING:
    from pgflowd.processes.supervisor.loop import SupervisorLoop


_OF_PLACES = {
    msg.ConnectionWanted: on_connection_wanted,
    msg.ConnectionReturned: on_connection_returned,
    msg.StayingAwake: on_staying_awake,
}

_FOR_THE_SWEEPER = (
    msg.ConnectionRefused,
    msg.LookAtDaemons,
    msg.LookAtDue,
    msg.LookAtVersions,
)


class Inbox:
    """Handles messages, and keeps the ids of ended workers."""

    def __init__(self, supervisor: SupervisorLoop) -> None:
        self._supervisor = supervisor
        self._ended_workers: dict[str, None] = {}  # worker ids, in the order of their ends

    def receive(self, process: ChildProcess, messages: list[Message | UnreadableMessage]) -> None:
        for message in messages:
            if self._supervisor.children.alive.get(process.id) not in (process, None):
                return
            if isinstance(message, UnreadableMessage):
                self._reject(process, message.why)
            elif not isinstance(message, process.kind.sends):
                self._reject(process, f"{type(message).__name__} from it")
            elif isinstance(message, msg.Found):
                self._supervisor.reloader.receive(process, message)
            else:
                self._on_message(process, message)

    def _on_message(self, process: ChildProcess, message: Message) -> None:
        supervisor = self._supervisor
        id, now = process.id, supervisor.now()
        if isinstance(message, msg.Ready):
            process.worker_id = message.worker_id
            supervisor.log_child("info", "child.ready", process, took_s=now - process.started_at)
            supervisor.do(on_ready(supervisor.tree, id, now))
            self._on_ready(process)
            return
        if isinstance(message, msg.Waiting):
            if message.what:
                text = f"{id} waits for the {message.what}"
                supervisor.log_child(
                    "warning", "child.waiting", process, what=message.what, error=text
                )
            supervisor.do(on_waiting(supervisor.tree, id, message.what, now))
            return
        if isinstance(message, msg.Heartbeat):
            process.numbers = merged(process.numbers, message.numbers)
            process.heard_at = now
        elif isinstance(message, msg.Failed | msg.Leaving):
            process.exit_message = message
        elif isinstance(message, msg.FallingAsleep):
            process.exit_message = message
            supervisor.do(on_falling_asleep(supervisor.tree, id, message, now))
        elif isinstance(message, msg.StatusWanted):
            supervisor.status.send_to(process)
        elif isinstance(message, msg.NextDue):
            supervisor.sleeping.next_due(message)
        elif isinstance(message, msg.ConnectionsLeft):
            supervisor.do(on_connections_left(supervisor.tree, message.count, now))
        elif type(message) in _OF_PLACES:
            supervisor.do(_OF_PLACES[type(message)](supervisor.tree, id, now))
        elif isinstance(message, msg.Released):
            self._ended_workers.pop(message.worker_id, None)
        else:
            self._on_message_for_others(process, message)
        supervisor.do(on_message(supervisor.tree, id, now))

    def _on_message_for_others(self, process: ChildProcess, message: Message) -> None:
        """A message that the supervisor passes on to other children."""
        supervisor = self._supervisor
        if isinstance(message, msg.Wake | msg.Follow):
            self._pass_on(message)
            if isinstance(message, msg.Wake):
                is_announced = process.kind is LISTENER
                cause = WakeCause.NOTIFICATION if is_announced else WakeCause.FOUND
                supervisor.sleeping.wake(message.slug, cause)
        elif isinstance(message, msg.ServeVersions):
            supervisor.reloader.serve_versions(message.name, message.flows)
        elif isinstance(message, _FOR_THE_SWEEPER):
            self._send_to_sweeper([message], supervisor.children.alive.values())
        elif isinstance(message, msg.WorkerStanding):
            self._pass_on_standing(message)
        elif isinstance(message, msg.MakeRoom | msg.HaveRoom):
            supervisor.children.tell_others(process, message)

    def _pass_on(self, message: msg.Wake | msg.Follow) -> None:
        """Send it to the workers: a wake to those of its queue, a Follow to all, since the
        supervisor does not know which has tasks of the run. A full channel has a wake already."""
        for process in self._supervisor.children.alive.values():
            if type(message) not in process.kind.receives or process.served is None:
                continue
            if isinstance(message, msg.Follow) or message.slug in {None, process.served.queue}:
                process.child.channel.send(message)

    def _pass_on_standing(self, message: msg.WorkerStanding) -> None:
        for process in self._supervisor.children.alive.values():
            if process.worker_id == message.worker_id:
                process.child.channel.send(message)

    def _reject(self, process: ChildProcess, why: str) -> None:
        self._supervisor.log_child("error", "child.garbage", process, code="E903", error=why)
        if process.id in self._supervisor.children.alive:
            self._supervisor.children.kill(process, f"E903 garbage on its pipe: {why}")

    def _on_ready(self, process: ChildProcess) -> None:
        """A worker is up, and the sweeper renews its row; or the sweeper is up, and learns all."""
        alive = self._supervisor.children.alive.values()
        if process.worker_id is not None:
            self._send_to_sweeper([msg.WorkerStarted(process.worker_id)], alive)
            return
        started = [msg.WorkerStarted(each.worker_id) for each in alive if each.worker_id]
        ended = [msg.WorkerEnded(worker_id) for worker_id in self._ended_workers]
        self._send_to_sweeper([*started, *ended], [process])

    def on_worker_ended(self, worker_id: str, *, is_clean: bool) -> None:
        """A worker is reaped: let its tasks be released, if it has left any."""
        alive = self._supervisor.children.alive.values()
        if is_clean:
            self._send_to_sweeper([msg.WorkerStopped(worker_id)], alive)
        else:
            self._ended_workers[worker_id] = None
            self._send_to_sweeper([msg.WorkerEnded(worker_id)], alive)

    def _send_to_sweeper(
        self, messages: Iterable[Message], processes: Iterable[ChildProcess]
    ) -> None:
        """Send these to those of the processes that release tasks and are up."""
        for process in processes:
            child = self._supervisor.tree.child(process.id)
            if (
                msg.WorkerEnded in process.kind.receives
                and child is not None
                and child.state is ChildState.UP
            ):
                for message in messages:
                    self._supervisor.children.send(process, message)


# Wakes sleeping workers, and tells the sweeper which workers sleep.
#
# The tree knows who sleeps; the sweeper is told of each change. A sweeper that has just started is
# told of all, so it looks at their queues at once, and nothing is missed while there was none.
class SleepingWorkers:
    """The workers that sleep, as the sweeper was told of them."""

    def __init__(self, supervisor: SupervisorLoop) -> None:
        self._supervisor = supervisor
        self._worker_ids: dict[str, str] = {}  # of the last process of each worker
        self._sweeper: ChildProcess | None = None  # that was told
        self._told: dict[str, tuple[float | None, msg.Asleep]] = {}  # by the id of the child

    def note(self, process: ChildProcess) -> None:
        """A worker has ended, perhaps in order to sleep."""
        if process.worker_id:
            self._worker_ids[process.id] = process.worker_id

    def worker_id(self, id: str) -> str | None:
        """The id of the worker that has slept: it keeps its row, so that rows do not heap up."""
        return self._worker_ids.get(id)

    def tick(self) -> None:
        """Tell the sweeper what has changed."""
        supervisor = self._supervisor
        sweeper = next(iter(self._up(msg.Asleep)), None)
        if sweeper is None:
            return
        if sweeper is not self._sweeper:
            self._sweeper, self._told = sweeper, {}
        asleep = {
            child.id: child
            for child in supervisor.tree.workers
            if child.state is ChildState.ASLEEP and child.sleep is not None
        }
        for id, (since, order) in list(self._told.items()):
            if id not in asleep or asleep[id].asleep_at != since:
                supervisor.children.send(sweeper, msg.Awake(order.queue))
                del self._told[id]
        for id in asleep.keys() - self._told.keys():
            order = self._order(asleep[id])
            supervisor.children.send(sweeper, order)
            self._told[id] = asleep[id].asleep_at, order

    def _order(self, child: ChildEntry) -> msg.Asleep:
        assert child.sleep is not None
        queue = self._supervisor.served[child.id].queue
        return msg.Asleep(queue, self._worker_ids[child.id], child.sleep.look_every_s)

    def wake(self, queue: str | None, cause: WakeCause) -> None:
        """There may be a message in this queue; None: in any, so let the sweeper look."""
        if queue is None:
            for sweeper in self._up(msg.LookAtQueues):
                self._supervisor.children.send(sweeper, msg.LookAtQueues())
            return
        for id in self._ids(queue):
            supervisor = self._supervisor
            supervisor.do(on_wake(supervisor.tree, id, cause, supervisor.now()))

    def next_due(self, message: msg.NextDue) -> None:
        for id in self._ids(message.queue):
            supervisor = self._supervisor
            supervisor.do(on_next_due(supervisor.tree, id, message.at, supervisor.now()))

    def on_command(self, flow: object) -> dict[str, Any]:
        """Wake a flow for `pgflowd wake`; return the answer."""
        supervisor = self._supervisor
        if supervisor.tree.phase is DaemonPhase.STOPPING:
            return {"error": "the daemon is stopping", "code": "E411", "next": None}
        slugs = [child.spec.name for child in supervisor.tree.workers]
        child = supervisor.tree.child(WORKER.child_id(str(flow))) or self._version_of(flow)
        if child is None:
            text = f"the daemon serves no flow {flow}"
            return {"error": text, "code": "E415", "next": did_you_mean(str(flow), slugs)}
        was_asleep = child.state is ChildState.ASLEEP or child.sleep is not None
        supervisor.do(on_wake(supervisor.tree, child.id, WakeCause.COMMAND, supervisor.now()))
        now = supervisor.tree.child(child.id) or child
        state = ChildState.STARTING if now.state is ChildState.IDLE else now.state
        return {"flow": child.spec.name, "state": state.value, "was_asleep": was_asleep}

    def _version_of(self, name: object) -> ChildEntry | None:
        """The worker of the newest version of this name, where another one than the first."""
        served = self._supervisor.served
        found = [child for child in self._supervisor.tree.workers if child.id in served]
        named = [child for child in found if served[child.id].name == name]
        return named[-1] if named else None

    def _up(self, message: type[msg.Message]) -> Iterator[ChildProcess]:
        """The processes that are up and receive this message."""
        for process in self._supervisor.children.alive.values():
            child = self._supervisor.tree.child(process.id)
            is_up = child is not None and child.state is ChildState.UP
            if is_up and message in process.kind.receives:
                yield process

    def _ids(self, queue: str) -> list[str]:
        return [id for id, served in self._supervisor.served.items() if served.queue == queue]
