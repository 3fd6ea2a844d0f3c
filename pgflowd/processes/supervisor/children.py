"""
The supervisor's children as processes: forks them, receives their messages, kills and reaps them.

The end of a child is handled in the order of docs/background/supervision.md, rules 11 and 12: what
is left in its channel is read; all processes of its Unix session, and strays, are killed; when they
are gone its status is collected; only then is it reported. Nothing here waits: `reap` is called
repeatedly until it returns the child. Children are identified by pidfd (rule 10).
"""

from __future__ import annotations

import hashlib
import os
import selectors
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from types import FrameType
from typing import Any

from pgflowd.core.messages import HaveRoom, MakeRoom, Message, UnreadableMessage
from pgflowd.core.settings.sections import Settings
from pgflowd.core.supervision.kinds import (
    EXPORTER,
    HTTP,
    LISTENER,
    SINGLE_KINDS,
    SWEEPER,
    WORKER,
    ChildKind,
)
from pgflowd.core.supervision.tree import ChildSpec, ExitMessage, Policy, ServedFlow
from pgflowd.host.channel import Channel
from pgflowd.host.fork import NO_ROOM, ForkedChild, fork, stacks
from pgflowd.host.logs import Log
from pgflowd.host.process_tree import (
    ProcessStat,
    all_processes,
    children,
    kill_adopted,
    kill_session,
    read_stat,
    send_signal,
)
from pgflowd.processes import exporter, http, listener
from pgflowd.processes.sweeper import main as sweeper
from pgflowd.processes.worker import main as worker

REAP_POLL_S = 0.005  # the end of a grandchild is not an event, and a restart waits for it
KILL_LIMIT_S = 10.0  # longer than a kill takes; then a process that cannot be killed is given up


@dataclass(eq=False)
class ChildProcess:
    """One process of a child."""

    id: str
    kind: ChildKind
    child: ForkedChild
    started_at: float  # monotonic
    served: ServedFlow | None = None
    exit_message: ExitMessage | None = None
    worker_id: str | None = None
    kill_reason: str | None = None
    until: float = inf  # it is killed for "E211" then
    found: list[str] = field(default_factory=list)  # the parts of what it was started to answer
    numbers: dict[str, Any] = field(default_factory=dict)
    heard_at: float | None = None  # when the last of them came; monotonic
    unread: list[Message | UnreadableMessage] = field(
        default_factory=list
    )  # what was left in the channel at its end
    ended_at: float = 0.0
    status: int = 0

    @property
    def pid(self) -> int:
        return self.child.pid


class Children:
    """All processes that the supervisor has forked and not yet reaped."""

    def __init__(
        self,
        daemon_name: str,
        log: Log,
        selector: selectors.BaseSelector,
        receive: Callable[[ChildProcess, list[Message | UnreadableMessage]], None],
        *,
        adopts: bool = True,
    ) -> None:
        self.alive: dict[str, ChildProcess] = {}
        self.ended: list[ChildProcess] = []
        self._daemon_name = daemon_name
        self._adopts = adopts  # whether descendants that left their session come to this process
        self._strays = 0
        self._logged: set[int] = set()
        self._log = log
        self._selector = selector  # the data of a key is what it calls
        self._receive = receive

    def start(
        self,
        kind: ChildKind,
        name: str,
        main: Callable[[Channel], int],
        served: ServedFlow | None = None,
        *,
        limit_s: float = inf,
    ) -> ChildProcess:
        """Fork a child, which may live so long; OSError if the system refuses."""
        id, keep = kind.child_id(name), [self._log.fileno()]
        title = f"{self._daemon_name}: {id}"
        try:
            child = fork(main, title=title, keep=keep, death_signal=kind.death_signal)
        except OSError as error:
            if error.errno in NO_ROOM:
                self.tell_others(None, MakeRoom())
            raise
        now = time.monotonic()
        process = self.alive[id] = ChildProcess(id, kind, child, now, served, until=now + limit_s)
        self._selector.register(child.pidfd, selectors.EVENT_READ, partial(self.on_end, process))
        self.watch(process)
        return process

    def send(self, process: ChildProcess, message: Message) -> None:
        """Send a message; one that found the channel full is sent as soon as there is room."""
        process.child.channel.send(message)
        self.watch(process)

    def tell_others(self, process: ChildProcess | None, message: MakeRoom | HaveRoom) -> None:
        """Pass a message of one child on to all others that receive it."""
        for other in self.alive.values():
            if other is not process and type(message) in other.kind.receives:
                other.child.channel.send(message)

    def watch(self, process: ChildProcess) -> None:
        """Wait for what the channel needs: reading, and writing while messages are kept."""
        channel = process.child.channel
        if process in self.ended or channel.fileno() < 0:
            return
        events = 0 if channel.at_end else selectors.EVENT_READ
        events |= selectors.EVENT_WRITE if channel.is_waiting and not channel.at_end else 0
        known, call = (
            channel.fileno() in self._selector.get_map(),
            partial(self._on_channel, process),
        )
        if events and known:
            self._selector.modify(channel, events, call)
        elif events:
            self._selector.register(channel, events, call)
        elif known:
            self._selector.unregister(channel)

    def _on_channel(self, process: ChildProcess) -> None:
        """A channel can be read, or has room again."""
        process.child.channel.flush()
        received = process.child.channel.receive()
        self.watch(process)
        self._receive(process, received)

    @property
    def due(self) -> float:
        """When the next of them has lived too long."""
        return min(
            (each.until for each in self.alive.values() if not each.kill_reason), default=inf
        )

    def kill_overdue(self, now: float) -> None:
        for process in self.alive.values():
            if process.until <= now and not process.kill_reason:
                self.kill(process, "E211")

    def kill(self, process: ChildProcess, why: str) -> None:
        """Kill a child with its Unix session; its end is then handled like any other."""
        process.kill_reason = process.kill_reason or why
        kill_session(process.pid)
        send_signal(process.pid, signal.SIGKILL)

    def on_end(self, process: ChildProcess) -> None:
        """A child has ended by its pidfd: read its channel, and prepare to reap it."""
        if process in self.ended:
            return
        self._selector.unregister(process.child.pidfd)
        if process.child.channel.fileno() in self._selector.get_map():
            self._selector.unregister(process.child.channel)
        process.unread = process.child.channel.receive_all()
        process.ended_at = time.monotonic()
        self.alive.pop(process.id, None)
        self.ended.append(process)

    def reap(self) -> Iterator[ChildProcess]:
        """Kill what the ended children left running, then yield each child that is fully gone."""
        if not self.ended:
            return
        left = self._left_behind()
        for process in list(self.ended):
            mine = [seen for seen in left if seen.session == process.pid]
            if (mine or self._strays) and time.monotonic() < process.ended_at + KILL_LIMIT_S:
                continue
            for each in mine:
                text = f"its process {each.pid} ({each.name}) cannot be killed, and goes on"
                self._log.error(
                    "child.unkillable",
                    child=process.id,
                    name=each.name,
                    child_pid=each.pid,
                    error=text,
                )
            process.status = process.child.collect()
            process.child.close()
            self.ended.remove(process)
            self._receive(process, process.unread)
            yield process

    def end_all(self, within_s: float) -> list[ChildProcess]:
        """Kill and reap every process that is left; return those that were reaped in time."""
        reaped: list[ChildProcess] = []
        until = time.monotonic() + within_s
        for process in self.alive.values():
            self.kill(process, "the daemon ends")
        while time.monotonic() < until:
            for process in list(self.alive.values()):
                if process.child.has_ended():
                    self.on_end(process)
            reaped += self.reap()
            if self._adopts:
                self.reap_orphans()
            self._left_behind()
            if not (self.alive or self.ended or self._strays):
                break
            time.sleep(REAP_POLL_S)
        return reaped

    def _left_behind(self) -> list[ProcessStat]:
        """Kill the sessions of the ended children, and strays, which are logged once; return the
        processes of these sessions that are still there."""
        everybody = list(all_processes())
        known = {process.pid for process in [*self.alive.values(), *self.ended]}
        sessions = {process.pid for process in self.ended}
        left = [each for each in everybody if each.session in sessions and not each.is_zombie]
        left = [each for each in left if each.pid not in sessions]
        for session in {each.session for each in left}:
            kill_session(session)
        adopted = [each for each in everybody if self._adopts and each.parent == os.getpid()]
        strays = [each for each in adopted if each.pid not in known and not each.is_zombie]
        self._logged &= {each.pid for each in strays}  # the pid of an ended stray may be used again
        for each in strays:
            if each.session not in sessions and each.pid not in self._logged:
                self._logged.add(each.pid)
                self._log.warning(
                    "child.stray",
                    name=each.name,
                    child_pid=each.pid,
                    session=each.session,
                    error=f"process {each.pid} ({each.name}) left its session, and is killed",
                )
        self._strays = kill_adopted(known) if strays else 0
        return left

    def reap_orphans(self) -> None:
        """Collect adopted processes that have ended."""
        known = {process.pid for process in [*self.alive.values(), *self.ended]}
        for _ in range(1000):
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None or ended.si_pid in known:
                break
            os.waitpid(ended.si_pid, os.WNOHANG)
        for pid in set(children()) - known:
            seen = read_stat(pid)
            if seen and seen.is_zombie:
                os.waitpid(pid, os.WNOHANG)


# The specifications and main functions of the supervisor's children.
#
# A fingerprint covers all settings that a child depends on, so that a reload replaces exactly the
# children that would differ. The main functions are called in the forked child.
#
# called with channel, settings, log, and if it is a worker, its flow and its id if it has slept
MAINS: dict[ChildKind, Callable[..., int]] = {
    LISTENER: listener.main,
    WORKER: worker.main,
    SWEEPER: sweeper.main,
    HTTP: http.main,
    EXPORTER: exporter.main,
}


def policy_of(settings: Settings) -> Policy:
    return Policy(
        **vars(settings.supervisor),
        startup_wait_s=settings.database.startup_wait_s,
        max_connections=settings.database.max_connections,
    )


def single_specs(settings: Settings) -> list[ChildSpec]:
    """Return the specifications of all children that are not in a group. Delays are
    those of [worker], which observers have, too."""
    return [
        ChildSpec(
            kind,
            fingerprint=_fingerprint(settings, kind.depends_on(settings)),
            enabled=kind.is_wanted(settings),
            limits=settings.worker,
        )
        for kind in SINGLE_KINDS
    ]


def worker_spec(settings: Settings, flow: ServedFlow) -> ChildSpec:
    """Return the specification of a flow's worker."""
    keys = settings.worker_for(flow.name)
    daemon = settings.pgflowd
    telemetry = replace(settings.telemetry, trace_url="")
    own = (daemon.name, daemon.python_path, daemon.definitions, telemetry)
    return ChildSpec(
        WORKER,
        name=flow.slug,
        entry=flow.entry,
        undoes=flow.undoes,
        fingerprint=_fingerprint(settings, (flow, keys, own, settings.recovery.lease_s)),
        enabled=settings.is_enabled(flow.name),
        limits=keys,
    )


def main_of(
    kind: ChildKind,
    settings: Settings,
    log: Log,
    served: ServedFlow | None,
    worker_id: str | None = None,
) -> Callable[[Channel], int]:
    """Return the main function of a child in the tree."""
    log = log.bind(process=kind.name, **({"flow": served.slug} if served else {}))

    def main(channel: Channel) -> int:
        log.begin_process()
        _handle_dump_signal(log)
        return MAINS[kind](channel, settings, log, *([served, worker_id] if served else []))

    return main


def _fingerprint(settings: Settings, depends_on: object) -> str:
    """Return a text that changes with the settings that a child depends on."""
    text = repr((depends_on, settings.database, settings.logging))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _handle_dump_signal(log: Log) -> None:
    """Let USR1, sent by the supervisor, write this child's stacks into the log."""

    def dump(number: int, frame: FrameType | None) -> None:
        for thread, stack in stacks().items():
            log.info("child.stack", thread=thread, stack=stack)

    signal.signal(signal.SIGUSR1, dump)
