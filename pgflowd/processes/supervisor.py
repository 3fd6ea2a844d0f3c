"""
Supervisor: starts, watches and stops everything else, and never blocks.

One loop waits in one place: for signals, for the ends and words of its children, for the control
socket and for the nearest deadline. What happens becomes an event for `core.supervision`, and
its actions are performed here. It imports no user code and holds no database connection, so
neither can bring it down. Talks to `processes.offspring` (its children), `processes.survey`
(discovery), `processes.desk` (control socket, service manager, status).
"""

from __future__ import annotations

import selectors
import signal
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from pgflowd.core import actions as act
from pgflowd.core import messages as say
from pgflowd.core.lifecycle import Phase, State
from pgflowd.core.messages import Garbage, Message
from pgflowd.core.reloading import (
    needs_restart,
    on_discovered,
    on_reload,
    on_reload_refused,
    with_policy,
)
from pgflowd.core.served import Served
from pgflowd.core.settings import Settings
from pgflowd.core.supervision import (
    next_due,
    on_exit,
    on_heard,
    on_ready,
    on_stop,
    on_tick,
    on_waiting,
)
from pgflowd.core.tree import Tree, new_tree
from pgflowd.core.verdicts import Exit, Kind, judge
from pgflowd.errors import ConfigError, Problem
from pgflowd.host.logs import Log
from pgflowd.host.sessions import Remembered
from pgflowd.host.signals import SignalPipe
from pgflowd.processes.children import entry_point, policy_of, root_specs, worker_spec
from pgflowd.processes.desk import Desk
from pgflowd.processes.offspring import Offspring, Process
from pgflowd.processes.survey import ID as DISCOVERY
from pgflowd.processes.survey import Survey

BURIAL_POLL_S = 0.005
REMEMBER_S = 2.0
REMEMBER_SOON_S = 0.5  # after a start, when the child has forked in its turn


@dataclass
class Start:
    """What a supervisor is started with."""

    settings: Settings
    reread: Callable[[], Settings]  # raises ConfigError
    log: Log
    signals: SignalPipe
    desk: Desk
    remembered: Remembered
    only: frozenset[str] = frozenset()  # serve these flows alone; empty: all


class Supervisor:
    """The loop, and what it remembers."""

    def __init__(self, start: Start) -> None:
        self.settings = start.settings
        self.log = start.log
        self.desk = start.desk
        self.tree: Tree = new_tree(policy_of(start.settings), root_specs(start.settings))
        self.served: dict[str, Served] = {}
        self.dead: dict[str, None] = {}  # worker ids that the sweeper has not confirmed
        self.code: int | None = None
        self._start = start
        self._selector = selectors.DefaultSelector()
        self._selector.register(start.signals, selectors.EVENT_READ, ("signals", None))
        self.offspring = Offspring(self.log, self._selector)
        self._survey: Survey | None = None
        self._next_settings = start.settings
        self._was_told_to_stop = False
        self._remember_at = 0.0
        self._todo: deque[act.Action] = deque()
        start.desk.open(self, self._selector)

    def run(self) -> int:
        """Live; return the exit code."""
        self._discover()
        while self.code is None:
            for key, _ in self._selector.select(self._nap_s()):
                self._notice(*key.data)
            self._look_after_all()
        self._leave()
        return self.code

    def now(self) -> float:
        return time.monotonic()

    # What happens

    def _notice(self, what: str, whom: object) -> None:
        if what == "signals":
            for number in self._start.signals.received():
                self._on_signal(number)
        elif what == "heard" and isinstance(whom, Process):
            self._hear(whom, self.offspring.hear(whom))
        elif what == "ended" and isinstance(whom, Process):
            self.offspring.ended(whom)
        else:
            self.desk.notice(what, whom)

    def _on_signal(self, number: signal.Signals) -> None:
        if number in {signal.SIGTERM, signal.SIGINT}:
            self.stop(drain=not self._was_told_to_stop)
            self._was_told_to_stop = True
        elif number == signal.SIGHUP:
            self.reload()
        elif number == signal.SIGUSR1:
            self.desk.dump(number)
        elif number == signal.SIGQUIT:
            self.desk.dump(number)
            self.stop(drain=False)
        elif number == signal.SIGCHLD:
            self.offspring.reap_strangers()

    def stop(self, *, drain: bool, patient: bool = False) -> None:
        """Stop: drain within `drain_timeout` (or, patient, without a limit), or at once."""
        within_s = None if patient else self.settings.supervisor.drain_timeout_s
        if self._survey is not None:
            self._survey.stop()
        self._do(on_stop(self.tree, self.now(), drain=drain, within_s=within_s if drain else None))

    def reload(self) -> None:
        self._do(on_reload(self.tree, self.now()))

    def _hear(self, process: Process, came: list[Message | Garbage]) -> None:
        for message in came:
            if self.offspring.alive.get(process.id) not in (process, None):
                return
            if isinstance(message, Garbage | say.Drain | say.QuickStop | say.Dead):
                self._garbage(process, message)
            elif process.id.startswith(DISCOVERY):
                if self._survey is not None:
                    self._survey.hear(process, message)
            else:
                self._on_message(process, message)

    def _on_message(self, process: Process, message: Message) -> None:
        id, now = process.id, self.now()
        if isinstance(message, say.Ready):
            process.worker_id = message.worker_id
            self._log_child("info", "child.ready", process, took_s=now - process.started)
            self._do(on_ready(self.tree, id, now))
            if id == "sweeper":
                self._tell_of_the_dead()
            return
        if isinstance(message, say.Waiting):
            if message.what:
                self._log_child("warning", "child.waiting", process, what=message.what)
            self._do(on_waiting(self.tree, id, message.what, now))
            return
        if isinstance(message, say.Beat):
            process.numbers.update(message.numbers)
        elif isinstance(message, say.Failed | say.Leaving):
            process.said = message
        elif isinstance(message, say.Wake) and id == "listener":
            self._wake(message)
        elif isinstance(message, say.Released):
            self.dead.pop(message.worker_id, None)
        self._do(on_heard(self.tree, id, now))

    def _wake(self, message: say.Wake) -> None:
        """Pass a wake on; one that finds a full pipe is dropped, for one is waiting there."""
        for process in list(self.offspring.alive.values()):
            served = process.served
            if served is not None and message.slug in {None, served.queue}:
                process.child.channel.send(say.Wake(served.slug))

    def _garbage(self, process: Process, message: Message | Garbage) -> None:
        why = message.why if isinstance(message, Garbage) else f"{type(message).__name__} from it"
        self._log_child("error", "child.garbage", process, code="E903", error=why)
        if process.id in self.offspring.alive:
            self.offspring.kill(process, f"E903 garbage on its pipe: {why}")

    def _look_after_all(self) -> None:
        """Do what every turn does: bury the dead, begin what is due, and tell how we are."""
        for process in self.offspring.bury():
            self._on_buried(process)
        now = self.now()
        due = next_due(self.tree)
        if due is not None and due <= now:
            self._do(on_tick(self.tree, now))
        if self._survey is not None:
            self._survey.go_on()
            if self._survey.is_done:
                self._on_surveyed(self._survey)
        if self._remember_at <= now:
            self._start.remembered.write()
            self._remember_at = now + REMEMBER_S
        self.desk.turn(now)

    def _on_buried(self, process: Process) -> None:
        self._hear(process, process.messages)
        self.desk.keep_counters(process)
        if process.id.startswith(DISCOVERY):
            if self._survey is not None:
                self._survey.ended(process)
            return
        child = self.tree.child(process.id)
        asked = child is not None and child.state in {State.DRAINING, State.STOPPING}
        exit = judge(process.status, process.said, process.killed)
        clean = process.status == 0 and asked
        level = "info" if clean or exit.kind is Kind.REPLACE else "warning"
        self._log_child(
            level,
            "child.exited",
            process,
            reason="as asked" if clean else exit.reason,
            status=process.status,
            code=exit.code,
            lived_s=self.now() - process.started,
        )
        if process.worker_id and not clean and exit.kind is not Kind.REPLACE:
            self.dead[process.worker_id] = None
            self._tell_of_the_dead()
        self._do(on_exit(self.tree, process.id, exit, self.now()))

    def _tell_of_the_dead(self) -> None:
        sweeper = self.offspring.alive.get("sweeper")
        child = self.tree.child("sweeper")
        if sweeper is not None and child is not None and child.state is State.UP:
            for worker_id in self.dead:
                self.offspring.tell(sweeper, say.Dead(worker_id))

    # What is done

    def _do(self, result: tuple[Tree, list[act.Action]]) -> None:
        """Take the new tree, and perform the actions, in order."""
        self.tree, actions = result
        self._todo.extend(actions)
        while self._todo:
            self._perform(self._todo.popleft())

    def _perform(self, action: act.Action) -> None:
        if isinstance(action, act.Start):
            self._fork(action.id)
        elif isinstance(action, act.Ask) and action.id in self.offspring.alive:
            self.offspring.tell(self.offspring.alive[action.id], action.how)
        elif isinstance(action, act.Kill) and action.id in self.offspring.alive:
            process = self.offspring.alive[action.id]
            self._log_child("warning", "child.killed", process, reason=action.why)
            self.offspring.kill(process, action.why)
        elif isinstance(action, act.Discover):
            self._discover()
        elif isinstance(action, act.End):
            self.code = action.code
        else:
            self.desk.record(action)

    def _fork(self, id: str) -> None:
        """Start a child; if the system refuses, that is a crash like any other."""
        served = self.served.get(id)
        title = f"{self.settings.pgflowd.name}: {id}"
        main = entry_point(id, self.settings, self.log, served)
        signal_of_death = signal.SIGTERM if served else signal.SIGKILL
        try:
            process = self.offspring.start(
                id, main, title, served=served, death_signal=signal_of_death
            )
        except OSError as error:
            self.log.error("child.refused", child=id, error=str(error))
            exit = Exit(Kind.CRASH, f"no process could be started: {error}")
            self.tree, actions = on_exit(self.tree, id, exit, self.now())
            self._todo.extend(actions)
            return
        self._remember_at = min(self._remember_at, self.now() + REMEMBER_SOON_S)
        self._log_child("info", "child.started", process)

    # Discovery

    def _discover(self) -> None:
        """Read the file (again), and ask what is in the flows' modules."""
        if self.tree.phase is not Phase.DISCOVERING:
            self.desk.reloading()
            try:
                self._next_settings = self._kept(self._start.reread())
            except ConfigError as error:
                self._refuse(error.problems)
                return
        self._survey = Survey(self._next_settings, self.offspring, self.log)
        self._survey.go_on()

    def _kept(self, new: Settings) -> Settings:
        """Keep what cannot be reloaded, and say so (rule 44)."""
        old = self.settings
        text = "changed, and needs a restart of the daemon"
        changed = needs_restart(old, new)
        self.desk.warnings = [Problem("E113", f"{key} {text}") for key in changed]
        return replace(
            new,
            database=old.database,
            pgflowd=replace(new.pgflowd, name=old.pgflowd.name),
            supervisor=replace(new.supervisor, control=old.supervisor.control),
        )

    def _on_surveyed(self, survey: Survey) -> None:
        self._survey = None
        if self.tree.phase in {Phase.STOPPING, Phase.ENDED}:
            return
        flows, broken, problems = survey.result()
        if self._start.only:
            flows = [flow for flow in flows if flow.slug in self._start.only]
        problems += self.desk.strangers_in(self._next_settings, flows, broken, self._start.only)
        fatal = [each for each in problems if each.code in {"E108", "E415"}]
        if fatal:
            self._refuse(fatal)
            return
        for problem in problems:
            self.desk.complain(problem)
        self.settings = self._next_settings
        specs = [worker_spec(self.settings, flow) for flow in flows]
        self.served |= {spec.id: flow for spec, flow in zip(specs, flows, strict=True)}
        self.tree = with_policy(self.tree, policy_of(self.settings))
        self.log.retune(self.settings.logging)
        wanted = [*root_specs(self.settings), *specs]
        self._do(on_discovered(self.tree, wanted, broken, self.now()))

    def _refuse(self, problems: list[Problem]) -> None:
        """Nothing is changed; at the start, nothing is begun."""
        for problem in problems:
            self.desk.complain(problem)
        self.desk.refused(problems)
        if self.tree.phase is Phase.DISCOVERING:
            self.code = 78
        else:
            self._do(on_reload_refused(self.tree, self.now()))

    # Time, words, and the end

    def _nap_s(self) -> float:
        moments = [next_due(self.tree), self.desk.due, self._remember_at]
        if self._survey is not None:
            moments.append(self._survey.due)
        if self.offspring.dying:
            moments.append(self.now() + BURIAL_POLL_S)
        nearest = min(moment for moment in moments if moment is not None)
        return max(0.0, nearest - self.now())

    def _log_child(self, level: str, event: str, process: Process, **fields: object) -> None:
        flow = process.served.slug if process.served else None
        self.log.write(level, event, child=process.id, flow=flow, child_pid=process.pid, **fields)

    def _leave(self) -> None:
        """All children are gone: leave nobody and nothing behind (rule 34)."""
        until = self.now() + 2.0
        for process in self.offspring.alive.values():
            self.offspring.kill(process, "the daemon ends")
        while self.now() < until:
            for process in list(self.offspring.alive.values()):
                if process.child.has_ended():
                    self.offspring.ended(process)
            for process in self.offspring.bury():
                self._log_child("info", "child.exited", process, reason="the daemon ends")
            self.offspring.reap_strangers()
            strays = self.offspring.kill_strays()
            if not (self.offspring.alive or self.offspring.dying or strays):
                break
            self._selector.select(BURIAL_POLL_S)
        self._start.remembered.forget()
        self.log.info("supervisor.stopped", status=self.code)
        self.desk.close()
