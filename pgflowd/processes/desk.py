"""
Desk: where the supervisor deals with people: control socket, service manager, log, status.

It answers the fixed set of commands, writes the records that actions ask for (rule 49), tells
the service manager how things go, feeds its watchdog once per turn of the loop (rule 48), and
keeps what metrics need. It decides nothing and never waits.
"""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pgflowd import __version__
from pgflowd.core import actions as act
from pgflowd.core.lifecycle import Phase
from pgflowd.core.numbers import added, counters_of
from pgflowd.core.openmetrics import exposition
from pgflowd.core.reloading import Broken
from pgflowd.core.served import Served
from pgflowd.core.settings import Settings
from pgflowd.core.status import Fact, Facts, document, state_of
from pgflowd.errors import Problem
from pgflowd.host.control import Client, ControlSocket, Request
from pgflowd.host.logs import Log
from pgflowd.host.sessions import send
from pgflowd.host.signals import stacks
from pgflowd.host.systemd import Notifier
from pgflowd.processes.offspring import Process

if TYPE_CHECKING:
    from pgflowd.processes.supervisor import Supervisor

EXTEND_EVERY_S = 5.0
EXTENSION_S = 20.0
LOOK_S = 1.0


class Desk:
    """What the supervisor says to whom."""

    def __init__(self, log: Log, control: ControlSocket, notifier: Notifier) -> None:
        self.log = log
        self.warnings: list[Problem] = []
        self._control = control
        self._notifier = notifier
        self._waiting: list[Client] = []  # for the answer to a reload
        self._counters: dict[str, dict[str, Any]] = {}
        self._restarts: dict[tuple[str, str], int] = {}
        self._reloads: dict[str, int] = {}
        self._started = time.time()
        self._feed_at = 0.0
        self._extend_at = 0.0
        self._said = ""

    def open(self, supervisor: Supervisor, selector: selectors.BaseSelector) -> None:
        """Begin to listen."""
        self._supervisor = supervisor
        self._selector = selector
        selector.register(self._control, selectors.EVENT_READ, ("knock", None))

    @property
    def due(self) -> float:
        """When the next turn must come, whatever happens."""
        moments = [client.until for client in self._control.clients.values()]
        moments.append(time.monotonic() + LOOK_S if self._is_busy() else self._feed_at)
        if self._notifier.watchdog_s is None and not self._is_busy():
            moments[-1] = time.monotonic() + 3600
        return min(moments)

    def turn(self, now: float) -> None:
        """The loop has just looked at every child: say so to those who want to know."""
        self._notifier.flush()
        watchdog_s = self._notifier.watchdog_s
        if watchdog_s is not None and self._feed_at <= now:
            self._notifier.alive()
            self._feed_at = now + watchdog_s / 3
        if self._is_busy() and self._extend_at <= now:
            self._notifier.extend(EXTENSION_S)
            self._extend_at = now + EXTEND_EVERY_S
        self._say_status()
        for client in list(self._control.overdue(now)):
            if client not in self._waiting:
                self._let_go(client)

    # The control socket

    def notice(self, what: str, whom: object) -> None:
        """Somebody knocks, asks, or takes more of the answer."""
        if what == "knock":
            for client in self._control.accept():
                self._selector.register(client.socket, selectors.EVENT_READ, ("client", client))
        elif isinstance(whom, Client):
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
            if supervisor.tree.phase in {Phase.STOPPING, Phase.ENDED}:
                self._answer_reload({"error": "the daemon is stopping", "code": "E411"})
            return
        if request.command == "drain":
            supervisor.stop(drain=True, patient=True)
        elif request.command == "stop":
            supervisor.stop(drain=not request.arguments.get("now"))
        said: dict[str, Any] = {"pid": os.getpid()}
        if request.command == "status":
            said = self.status()
        elif request.command == "metrics":
            said = {"metrics": self.metrics()}
        self._control.answer(request.client, said)

    def _attend(self, client: Client) -> None:
        """Wait for what this client needs next; a closed one is waited for no more."""
        number = client.socket.fileno()
        if number < 0:
            for key in [k for k in self._selector.get_map().values() if k.data[1] is client]:
                self._selector.unregister(key.fileobj)
            return
        event = selectors.EVENT_WRITE if client.answer else selectors.EVENT_READ
        self._selector.modify(client.socket, event, ("client", client))

    def _let_go(self, client: Client) -> None:
        self._selector.unregister(client.socket)
        self._control.drop(client)

    def _answer_reload(self, said: dict[str, Any]) -> None:
        waiting, self._waiting = self._waiting, []
        for client in waiting:
            self._control.answer(client, said)
            self._attend(client)

    # Status

    def status(self) -> dict[str, Any]:
        return document(self._supervisor.tree, self._facts())

    def metrics(self) -> str:
        counters = {id: dict(kept) for id, kept in self._counters.items()}
        for id, process in self._supervisor.offspring.alive.items():
            counters[id] = added(counters.get(id, {}), counters_of(process.numbers))
        more = {"restarts": self._restarts, "reloads": self._reloads}
        return exposition(self.status(), counters, more)

    def keep_counters(self, process: Process) -> None:
        """Remember what a dead process had counted."""
        counted = counters_of(process.numbers)
        self._counters[process.id] = added(self._counters.get(process.id, {}), counted)

    def _facts(self) -> Facts:
        settings = self._supervisor.settings
        children = {}
        for id, process in self._supervisor.offspring.alive.items():
            slug = process.served.slug if process.served else None
            most = settings.worker_for(slug).max_concurrency if slug else None
            children[id] = Fact(
                process.pid, process.since, process.worker_id, most, process.numbers
            )
        return Facts(
            settings.pgflowd.name,
            __version__,
            os.getpid(),
            self._started,
            time.time(),
            time.monotonic(),
            children,
            [_shown(problem) for problem in self.warnings],
        )

    # Records

    def record(self, action: act.Action) -> None:
        """Write the record that an action is, and tell who waits for it."""
        if isinstance(action, act.Restarting):
            key = (action.id, _kind(action.reason))
            self._restarts[key] = self._restarts.get(key, 0) + 1
            self.log.warning(
                "child.restarted",
                child=action.id,
                reason=action.reason,
                count=action.count,
                delay_s=action.delay_s,
            )
        elif isinstance(action, act.Parked):
            self.log.error("child.parked", child=action.id, code=action.code, error=action.text)
        elif isinstance(action, act.GaveUp):
            self.log.error(
                "supervisor.gave_up",
                child=action.id,
                code="E413",
                reason=action.reason,
                exits=list(action.exits),
            )
        elif isinstance(action, act.Reloaded):
            self._on_reloaded(action)
        elif isinstance(action, act.Announce):
            self._announce(action.what)

    def _announce(self, what: str) -> None:
        self._extend_at = 0.0
        if what == "ready":
            took_s = time.time() - self._started
            self.log.info("supervisor.ready", took_s=took_s)
            self._notifier.ready(self._summary())
            return
        self.log.info(f"supervisor.{what}")
        self._notifier.stopping(what)
        self._answer_reload({"error": "the daemon is stopping", "code": "E411"})

    def _on_reloaded(self, action: act.Reloaded) -> None:
        said = {name: list(names) for name, names in asdict(action).items()}
        self._reloads["done"] = self._reloads.get("done", 0) + 1
        self.log.info("supervisor.reloaded", **said)
        warnings = [_shown(problem) for problem in self.warnings]
        self._answer_reload({**said, "problems": warnings})
        self._notifier.ready(self._summary())

    def refused(self, problems: Sequence[Problem]) -> None:
        """A reload has changed nothing."""
        self._reloads["refused"] = self._reloads.get("refused", 0) + 1
        self._answer_reload({"error": "refused", "problems": [_shown(each) for each in problems]})
        self._notifier.ready(self._summary())

    def reloading(self) -> None:
        self._notifier.reloading()

    def complain(self, problem: Problem) -> None:
        """Log one problem."""
        level = "warning" if problem.is_warning else "error"
        self.log.write(
            level,
            "supervisor.problem",
            code=problem.code,
            error=problem.text,
            place=problem.place,
            next=problem.next,
        )

    def strangers_in(
        self,
        settings: Settings,
        flows: Sequence[Served],
        broken: Sequence[Broken],
        only: Collection[str],
    ) -> list[Problem]:
        """Flows that somebody names and nobody serves, as far as that can be known."""
        known = {flow.slug.lower() for flow in flows}
        if broken:
            return []
        strange = [
            Problem("E108", f"[flows.{each.slug}] is no served flow", settings.file)
            for slug, each in settings.flows.items()
            if slug not in known and not only
        ]
        missing = sorted(slug for slug in only if slug.lower() not in known)
        strange += [Problem("E415", f"there is no flow {slug} to serve") for slug in missing]
        return strange

    def dump(self, number: signal.Signals) -> None:
        """Put the tree and all stacks into the log; children are asked for theirs (USR1, QUIT)."""
        status = self.status()
        self.log.info("supervisor.dump", signal=number.name, state=status["state"])
        for part in [*status["flows"], {"slug": None, **status["listener"]}, status["sweeper"]]:
            self.log.info("supervisor.tree", **{k: v for k, v in part.items() if k != "pid"})
        for thread, stack in stacks().items():
            self.log.info("supervisor.stack", thread=thread, stack=stack)
        for process in self._supervisor.offspring.alive.values():
            send(process.pid, signal.SIGUSR1)

    def close(self) -> None:
        self._control.close()

    def _is_busy(self) -> bool:
        """Whether the service manager waits for us to start or stop."""
        tree = self._supervisor.tree
        return not tree.was_ready or tree.phase is Phase.STOPPING or bool(self._waiting)

    def _say_status(self) -> None:
        summary = self._summary()
        if summary != self._said:
            self._said = summary
            self._notifier.status(summary)

    def _summary(self) -> str:
        tree = self._supervisor.tree
        waiting = [child.waiting_for for child in tree.children if child.waiting_for]
        if waiting:
            return f"{state_of(tree)}: waiting for the {waiting[0]}"
        up = sum(child.state.value == "up" for child in tree.workers)
        return f"{state_of(tree)}: {up} of {len(tree.workers)} workers up"


def _kind(reason: str) -> str:
    """The reason of a restart as a label: few values, never a stranger's text."""
    head = reason.split(",")[0].split(":")[0]
    known = ("killed by SIG", "exit code ", "E903", "said nothing", "was not ready")
    return head if head.startswith(known) else "failed"


def _shown(problem: Problem) -> dict[str, Any]:
    return {
        "code": problem.code,
        "flow": None,
        "text": problem.text,
        "place": problem.place,
        "next": problem.next,
    }
