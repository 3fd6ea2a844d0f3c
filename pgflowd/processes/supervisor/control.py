"""
The supervisor's end of the control socket.

It answers the fixed set of commands (`host.control.COMMANDS`). A reload is answered when it was
refused, or when its drains and starts have ended; every other command at once. No client can block
the loop.
"""

from __future__ import annotations

import os
import selectors
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pgflowd.core.documents import encoded
from pgflowd.core.supervision.actions import ReportReload
from pgflowd.core.supervision.reload import is_over, reloaded_flows
from pgflowd.core.supervision.tree import DaemonPhase
from pgflowd.host.control import ControlClient, ControlSocket, Request, SocketInUse, SocketPathError
from pgflowd.processes.supervisor.status import problem_json

if TYPE_CHECKING:
    from pgflowd.processes.supervisor.loop import SupervisorLoop

STOPPING = {"error": "the daemon is stopping", "code": "E411"}


class ControlServer:
    """The clients, and those that wait for a reload."""

    def __init__(self, supervisor: SupervisorLoop, control: ControlSocket) -> None:
        self._supervisor = supervisor
        self._control = control
        self._selector = supervisor.selector
        self._is_lost = False  # somebody else has its path, as the log says
        self._waiting: list[ControlClient] = []  # for a reload to begin
        self._reloading: list[ControlClient] = []  # for the answer to the one that goes on
        self._report: ReportReload | None = None  # of the one that was applied last
        self._selector.register(control, selectors.EVENT_READ, ("connect", None))

    @property
    def has_place(self) -> bool:
        """Whether the files next to the socket are ours, and not another daemon's."""
        return self._control.place.is_ours

    def keep_socket(self) -> None:
        """Make the socket again if it was removed."""
        if self._control.place.is_intact:
            return
        self._selector.unregister(self._control)
        try:
            self._control.place.renew()
        except (SocketInUse, SocketPathError) as error:
            why = f"another daemon has {error}" if isinstance(error, SocketInUse) else str(error)
            if not self._is_lost:
                self._supervisor.log.error("control.lost", error=f"no command gets here: {why}")
            self._is_lost = True
        else:
            text = f"{self._control.path} was removed, and is made again"
            self._supervisor.log.warning("control.renewed", error=text)
            self._is_lost = False
        self._selector.register(self._control, selectors.EVENT_READ, ("connect", None))

    @property
    def due(self) -> float | None:
        """When the next client has used up its time."""
        return min((client.until for client in self._control.clients.values()), default=None)

    @property
    def awaits_reload(self) -> bool:
        return bool(self._waiting or self._reloading)

    def tick(self, now: float) -> None:
        """Close the clients that have used up their time, and answer those of a reload."""
        self._answer_if_over()
        for client in list(self._control.overdue(now)):
            self._selector.unregister(client.socket)
            self._control.drop(client)

    def on_event(self, what: str, source: object) -> None:
        """A client connects, sends its request, or takes more of the answer."""
        if what == "connect":
            for client in self._control.accept():
                self._selector.register(client.socket, selectors.EVENT_READ, ("client", client))
        elif isinstance(source, ControlClient):
            if source.answer:
                self._control.write(source)
            else:
                request = self._control.read(source)
                if request is not None:
                    self._serve(request)
            self._watch(source)

    def _serve(self, request: Request) -> None:
        supervisor = self._supervisor
        if request.command == "reload":
            self._waiting.append(request.client)
            request.client.until = float("inf")
            supervisor.reload()
            if supervisor.tree.phase in {DaemonPhase.STOPPING, DaemonPhase.ENDED}:
                self.answer_all_reloads(STOPPING)
            return
        if request.command == "drain":
            supervisor.stop(drain=True, without_limit=True)
        elif request.command == "stop":
            supervisor.stop(drain=not request.arguments.get("now"))
        answer: dict[str, Any] = {"pid": os.getpid()}
        if request.command == "status":
            answer = supervisor.status.document()
        elif request.command == "metrics":
            answer = supervisor.status.metrics()
        elif request.command == "wake":
            answer = supervisor.sleeping.on_command(request.arguments.get("flow"))
        self._control.answer(request.client, answer)

    def _watch(self, client: ControlClient) -> None:
        """Wait for what this client needs next; stop waiting for a closed one."""
        number = client.socket.fileno()
        if number < 0:
            for key in [k for k in self._selector.get_map().values() if k.data[1] is client]:
                self._selector.unregister(key.fileobj)
            return
        event = selectors.EVENT_WRITE if client.answer else selectors.EVENT_READ
        self._selector.modify(client.socket, event, ("client", client))

    def begin_reload(self) -> None:
        """The clients that wait get the answer of this reload; those of one before get theirs."""
        self._answer_if_over(at_once=True)
        self._reloading, self._waiting = self._waiting, []

    def report_reload(self, report: ReportReload) -> None:
        """A reload was applied; it is answered when its drains and starts have ended."""
        self._report = report
        self._answer_if_over()

    def answer_all_reloads(self, answer: dict[str, Any]) -> None:
        """Answer every client of a reload: no other one will begin."""
        self._reloading, self._waiting = self._reloading + self._waiting, []
        self.answer_reload(answer)

    def _answer_if_over(self, *, at_once: bool = False) -> None:
        if self._report is None:
            return
        flows = reloaded_flows(self._supervisor.tree, self._report)
        if at_once or is_over(flows):
            problems = [problem_json(problem) for problem in self._supervisor.status.answer]
            answer = {"flows": [encoded(flow) for flow in flows], "problems": problems}
            self.answer_reload({**asdict(self._report), **answer})

    def answer_reload(self, answer: dict[str, Any]) -> None:
        """Answer the clients of the reload that goes on."""
        self._report = None
        clients, self._reloading = self._reloading, []
        for client in clients:
            self._control.answer(client, answer)
            self._watch(client)

    def close(self) -> None:
        self._control.close()
