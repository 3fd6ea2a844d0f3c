"""
Reception: the supervisor's end of the control socket.

It answers the fixed set of commands (`host.control.COMMANDS`). A reload is answered when it has
been applied or refused, everything else at once; nobody can hold up the loop.
"""

from __future__ import annotations

import os
import selectors
from typing import TYPE_CHECKING, Any

from pgflowd.core.supervision.lifecycle import DaemonPhase
from pgflowd.host.control import ControlClient, ControlSocket, Request

if TYPE_CHECKING:
    from pgflowd.processes.supervisor.loop import SupervisorLoop

STOPPING = {"error": "the daemon is stopping", "code": "E411"}


class ControlServer:
    """Those who knock, ask, and wait for an answer."""

    def __init__(self, supervisor: SupervisorLoop, control: ControlSocket) -> None:
        self._supervisor = supervisor
        self._control = control
        self._selector = supervisor.selector
        self._waiting: list[ControlClient] = []  # for the answer to a reload
        self._selector.register(control, selectors.EVENT_READ, ("knock", None))

    @property
    def due(self) -> float | None:
        """When the next client has used up its time."""
        return min((client.until for client in self._control.clients.values()), default=None)

    @property
    def awaits_reload(self) -> bool:
        return bool(self._waiting)

    def turn(self, now: float) -> None:
        """Let those go whose time is over."""
        for client in list(self._control.overdue(now)):
            self._let_go(client)

    def notice(self, what: str, whom: object) -> None:
        """Somebody knocks, asks, or takes more of the answer."""
        if what == "knock":
            for client in self._control.accept():
                self._selector.register(client.socket, selectors.EVENT_READ, ("client", client))
        elif isinstance(whom, ControlClient):
            if whom.answer:
                self._control.write(whom)
            else:
                request = self._control.read(whom)
                if request is not None:
                    self._serve(request)
            self._attend(whom)

    def _serve(self, request: Request) -> None:
        supervisor = self._supervisor
        if request.command == "reload":
            self._waiting.append(request.client)
            request.client.until = float("inf")
            supervisor.reload()
            if supervisor.tree.phase in {DaemonPhase.STOPPING, DaemonPhase.ENDED}:
                self.answer_reload(STOPPING)
            return
        if request.command == "drain":
            supervisor.stop(drain=True, patient=True)
        elif request.command == "stop":
            supervisor.stop(drain=not request.arguments.get("now"))
        said: dict[str, Any] = {"pid": os.getpid()}
        if request.command == "status":
            said = supervisor.vitals.status()
        elif request.command == "metrics":
            said = {"metrics": supervisor.vitals.metrics()}
        self._control.answer(request.client, said)

    def _attend(self, client: ControlClient) -> None:
        """Wait for what this client needs next; a closed one is waited for no more."""
        number = client.socket.fileno()
        if number < 0:
            for key in [k for k in self._selector.get_map().values() if k.data[1] is client]:
                self._selector.unregister(key.fileobj)
            return
        event = selectors.EVENT_WRITE if client.answer else selectors.EVENT_READ
        self._selector.modify(client.socket, event, ("client", client))

    def _let_go(self, client: ControlClient) -> None:
        self._selector.unregister(client.socket)
        self._control.drop(client)

    def answer_reload(self, said: dict[str, Any]) -> None:
        waiting, self._waiting = self._waiting, []
        for client in waiting:
            self._control.answer(client, said)
            self._attend(client)

    def close(self) -> None:
        self._control.close()
