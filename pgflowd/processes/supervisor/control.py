"""
The supervisor's end of the control socket.

It answers the fixed set of commands (`host.control.COMMANDS`). A reload is answered when it was
refused, or when its drains and starts have ended; every other command at once. No client can block
the loop.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import inf
from typing import TYPE_CHECKING, Any

from pgflowd.core.documents import encoded
from pgflowd.core.supervision.reload import is_over, on_reload, reloaded_flows
from pgflowd.core.supervision.transition import ReportReload
from pgflowd.core.supervision.tree import DaemonPhase
from pgflowd.errors import Problem
from pgflowd.host.control import ControlClient, ControlSocket, SocketInUse, SocketPathError
from pgflowd.processes.supervisor.status import STOPPING

if TYPE_CHECKING:
    from pgflowd.processes.supervisor.loop import SupervisorLoop


class ControlServer:
    """The clients, and those that wait for a reload."""

    def __init__(self, supervisor: SupervisorLoop, socket: ControlSocket) -> None:
        self.socket = socket
        self._supervisor = supervisor
        self._is_lost = False  # somebody else has its path, as the log says
        self._waiting: list[ControlClient] = []  # for a reload to begin
        self._reloading: list[ControlClient] = []  # for the answer to the one that goes on
        self._report: ReportReload | None = None  # of the one that was applied last
        socket.attend(supervisor.selector, self._serve)

    def keep_socket(self) -> None:
        """Make the socket again if it was removed."""
        if self.socket.place.is_intact:
            return
        try:
            self.socket.renew()
        except (SocketInUse, SocketPathError) as error:
            why = f"another daemon has {error}" if isinstance(error, SocketInUse) else str(error)
            if not self._is_lost:
                self._supervisor.log.error("control.lost", error=f"no command gets here: {why}")
            self._is_lost = True
        else:
            text = f"{self.socket.path} was removed, and is made again"
            self._supervisor.log.warning("control.renewed", error=text)
            self._is_lost = False

    @property
    def awaits_reload(self) -> bool:
        return bool(self._waiting or self._reloading)

    def tick(self, now: float) -> None:
        """Close the clients that have used up their time, and answer those of a reload."""
        self._answer_if_over()
        self.socket.drop_overdue(now)

    def _serve(self, client: ControlClient, command: str, arguments: dict[str, Any]) -> None:
        supervisor = self._supervisor
        if command == "reload":
            self._waiting.append(client)
            client.until = inf
            supervisor.happen(on_reload)
            if supervisor.tree.is_ending:
                self.answer_all_reloads(STOPPING)
            return
        if command == "drain":
            supervisor.stop(drain=True, without_limit=True)
        elif command == "stop":
            supervisor.stop(drain=not arguments.get("now"))
        answer: Mapping[str, Any] = {"pid": os.getpid()}
        if command == "status":
            answer = supervisor.status.document()
        elif command == "metrics":
            answer = supervisor.status.metrics()
        elif command == "wake":
            answer = supervisor.sleeping.on_command(arguments.get("flow"))
        self.socket.answer(client, answer)

    def begin_reload(self) -> None:
        """The clients that wait get the answer of this reload; those of one before get theirs."""
        self._answer_if_over(at_once=True)
        self._reloading, self._waiting = self._waiting, []

    def report_reload(self, report: ReportReload) -> None:
        """A reload was applied; it is answered when its drains and starts have ended."""
        self._supervisor.status.reloads["done"] += 1
        self._supervisor.log.info("supervisor.reloaded", **asdict(report))
        self._report = report
        self._answer_if_over()
        self._supervisor.manager.on_reloaded()

    def report_refused(self, problems: Sequence[Problem]) -> None:
        """A reload was refused and has changed nothing."""
        self._supervisor.status.reloads["refused"] += 1
        answer = {"error": "refused", "problems": [_shown(each) for each in problems]}
        if self._supervisor.tree.phase is DaemonPhase.DISCOVERING:  # no reload will follow
            self.answer_all_reloads(answer)
        else:
            self._answer_reload(answer)
        self._supervisor.manager.on_reloaded()

    def answer_all_reloads(self, answer: dict[str, Any]) -> None:
        """Answer every client of a reload: no other one will begin."""
        self._reloading, self._waiting = self._reloading + self._waiting, []
        self._answer_reload(answer)

    def _answer_if_over(self, *, at_once: bool = False) -> None:
        if self._report is None:
            return
        flows = reloaded_flows(self._supervisor.tree, self._report)
        if at_once or is_over(flows):
            problems = [_shown(problem) for problem in self._supervisor.status.answer]
            answer = {"flows": [encoded(flow) for flow in flows], "problems": problems}
            self._answer_reload({**asdict(self._report), **answer})

    def _answer_reload(self, answer: dict[str, Any]) -> None:
        """Answer the clients of the reload that goes on."""
        self._report = None
        clients, self._reloading = self._reloading, []
        for client in clients:
            self.socket.answer(client, answer)


def _shown(problem: Problem) -> dict[str, Any]:
    """A problem as answers show it."""
    return {**asdict(problem), "flow": None}
