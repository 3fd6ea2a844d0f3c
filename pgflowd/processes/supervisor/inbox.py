"""
Dispatches messages from child processes to supervision, reload and the workers.

Most are events for `core.supervision`. Wake and Follow are passed on to the workers, a Wake also
starts one that sleeps, and what the sweeper reads for a worker goes to that one. A message that its
sender may not send counts as its crash (docs/background/supervision.md, rule 47). The ids of ended
workers are kept until the sweeper has confirmed that their tasks are released, also while the
sweeper restarts (rule 12).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pgflowd.core import messages as msg
from pgflowd.core.messages import Message, UnreadableMessage
from pgflowd.core.metrics.definitions import merged
from pgflowd.core.statuses import ChildState
from pgflowd.core.supervision.decide import (
    WakeCause,
    on_connection,
    on_connections_left,
    on_falling_asleep,
    on_message,
    on_next_due,
    on_ready,
    on_waiting,
    on_wake,
)
from pgflowd.core.supervision.kinds import LISTENER, WORKER
from pgflowd.core.supervision.tree import ChildEntry, DaemonPhase
from pgflowd.core.text import did_you_mean
from pgflowd.processes.supervisor.children import ChildProcess
from pgflowd.processes.supervisor.discover import keep_found

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
            if isinstance(message, UnreadableMessage):
                self._reject(process, message.why)
            elif not isinstance(message, process.kind.sends):
                self._reject(process, f"{type(message).__name__} from it")
            elif isinstance(message, msg.Found):
                keep_found(self._supervisor.children, process, message)
            else:
                self._on_message(process, message)

    def _on_message(self, process: ChildProcess, message: Message) -> None:
        """Obey a message; one that is for other children alone is passed on."""
        supervisor, id = self._supervisor, process.id
        now, children = supervisor.now(), supervisor.children
        match message:
            case msg.Ready():
                process.worker_id = message.worker_id
                took_s = now - process.started_at
                supervisor.log_child("info", "child.ready", process, took_s=took_s)
                supervisor.happen(on_ready, id)
                self._on_ready(process)
            case msg.Waiting():
                if what := message.what:
                    fields = {"what": what, "error": f"{id} waits for the {what}"}
                    supervisor.log_child("warning", "child.waiting", process, **fields)
                supervisor.happen(on_waiting, id, message.what)
            case msg.Heartbeat():
                process.numbers = merged(process.numbers, message.numbers)
                process.heard_at = now
            case msg.Failed() | msg.Leaving():
                process.exit_message = message
            case msg.FallingAsleep():
                process.exit_message = message
                supervisor.happen(on_falling_asleep, id, message)
            case msg.StatusWanted():
                supervisor.status.send_to(process)
            case msg.NextDue():
                supervisor.sleeping.next_due(message)
            case msg.ConnectionsLeft():
                supervisor.happen(on_connections_left, message.count)
            case msg.ConnectionWanted() | msg.ConnectionReturned() | msg.StayingAwake():
                supervisor.happen(on_connection, id, message)
            case msg.Released():
                self._ended_workers.pop(message.worker_id, None)
            case msg.ServeVersions():
                supervisor.reloader.serve_versions(message.name, message.flows)
            case msg.Wake():
                for worker in self._workers(message):
                    if message.slug in {None, worker.served and worker.served.queue}:
                        worker.child.channel.send(message)  # a full channel has a wake already
                is_announced = process.kind is LISTENER
                cause = WakeCause.NOTIFICATION if is_announced else WakeCause.FOUND
                supervisor.sleeping.wake(message.slug, cause)
            case msg.Follow():  # nobody knows here which worker has tasks of the run
                for worker in self._workers(message):
                    worker.child.channel.send(message)
            case msg.WorkerStanding():
                for worker in self._workers(message):
                    if worker.worker_id == message.worker_id:
                        worker.child.channel.send(message)
            case msg.MakeRoom() | msg.HaveRoom():
                children.tell_others(process, message)
            case _:
                self._tell_sweeper(message)
        supervisor.happen(on_message, id)

    def _reject(self, process: ChildProcess, why: str) -> None:
        self._supervisor.log_child("error", "child.garbage", process, code="E903", error=why)
        if process.id in self._supervisor.children.alive:
            self._supervisor.children.kill(process, f"E903 garbage on its pipe: {why}")

    def _on_ready(self, process: ChildProcess) -> None:
        """A worker is up, and the sweeper renews its row; or the sweeper is up, and learns all."""
        if process.worker_id is not None:
            self._tell_sweeper(msg.WorkerStarted(process.worker_id))
        elif process in self._supervisor.up(msg.WorkerEnded):
            children = self._supervisor.children
            started = [each.worker_id for each in children.alive.values() if each.worker_id]
            for message in [
                *map(msg.WorkerStarted, started),
                *map(msg.WorkerEnded, self._ended_workers),
            ]:
                children.send(process, message)

    def on_worker_ended(self, worker_id: str, *, is_clean: bool) -> None:
        """A worker is reaped: let its tasks be released, if it has left any."""
        if not is_clean:
            self._ended_workers[worker_id] = None
        kind = msg.WorkerStopped if is_clean else msg.WorkerEnded
        self._tell_sweeper(kind(worker_id))

    def _tell_sweeper(self, message: Message) -> None:
        """Send it to the sweeper, if that is up."""
        for process in self._supervisor.up(type(message)):
            self._supervisor.children.send(process, message)

    def _workers(self, message: Message) -> list[ChildProcess]:
        """The processes that receive this message, whether they are up or not."""
        alive = self._supervisor.children.alive.values()
        return [each for each in alive if type(message) in each.kind.receives]


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
        self._told: dict[str, tuple[float | None, str]] = {}  # by child: since when; its queue

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
        sweeper = next(supervisor.up(msg.Asleep), None)
        if sweeper is None:
            return
        if sweeper is not self._sweeper:
            self._sweeper, self._told = sweeper, {}
        asleep = {
            child.id: child
            for child in supervisor.tree.workers
            if child.state is ChildState.ASLEEP and child.sleep is not None
        }
        for id, (since, queue) in list(self._told.items()):
            if id not in asleep or asleep[id].asleep_at != since:
                supervisor.children.send(sweeper, msg.Awake(queue))
                del self._told[id]
        for id in asleep.keys() - self._told.keys():
            queue, said = supervisor.served[id].queue, asleep[id].sleep
            assert said is not None
            order = msg.Asleep(queue, self._worker_ids[id], said.look_every_s)
            supervisor.children.send(sweeper, order)
            self._told[id] = asleep[id].asleep_at, queue

    def wake(self, queue: str | None, cause: WakeCause) -> None:
        """There may be a message in this queue; None: in any, so let the sweeper look."""
        if queue is None:
            for sweeper in self._supervisor.up(msg.LookAtQueues):
                self._supervisor.children.send(sweeper, msg.LookAtQueues())
            return
        for id in self._ids(queue):
            self._supervisor.happen(on_wake, id, cause)

    def next_due(self, message: msg.NextDue) -> None:
        for id in self._ids(message.queue):
            self._supervisor.happen(on_next_due, id, message.at)

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
        supervisor.happen(on_wake, child.id, WakeCause.COMMAND)
        now = supervisor.tree.child(child.id) or child
        state = ChildState.STARTING if now.state is ChildState.IDLE else now.state
        return {"flow": child.spec.name, "state": state.value, "was_asleep": was_asleep}

    def _version_of(self, name: object) -> ChildEntry | None:
        """The worker of the newest version of this name, where another one than the first."""
        workers, served = self._supervisor.tree.workers, self._supervisor.served
        named = [each for each in workers if each.id in served and served[each.id].name == name]
        return named[-1] if named else None

    def _ids(self, queue: str) -> list[str]:
        return [id for id, served in self._supervisor.served.items() if served.queue == queue]
