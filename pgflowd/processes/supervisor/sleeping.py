"""
Wakes sleeping workers, and tells the sweeper which workers sleep.

The tree knows who sleeps; the sweeper is told of each change. A sweeper that has just started is
told of all, so it looks at their queues at once, and nothing is missed while there was none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pgflowd.core import messages as msg
from pgflowd.core.suggest import did_you_mean
from pgflowd.core.supervision.decide import WakeCause, on_next_due, on_wake
from pgflowd.core.supervision.kinds import WORKER
from pgflowd.core.supervision.tree import ChildEntry, ChildState, DaemonPhase
from pgflowd.processes.supervisor.children import ChildProcess

if TYPE_CHECKING:
    from pgflowd.processes.supervisor.loop import SupervisorLoop


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
