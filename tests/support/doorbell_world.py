"""
A worker's engine, senders of messages, and a database between them, in any order of their steps.

`Store` is the database: `ModelStore` has the rules of docs/background/doorbells.md and nothing
else, and can stop between any two steps; tests with real sessions bring another one. Nothing but
the doorbell can bring a message to the worker here: the fallback is years away, and no answer of
the database tells how many messages wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pgflowd.core import messages
from pgflowd.core.failure import DatabaseFailure
from pgflowd.core.statuses import Outcome
from pgflowd.core.worker import actions, events
from pgflowd.core.worker.doorbell import DoorbellCall
from pgflowd.core.worker.state import WorkerOptions
from pgflowd.core.worker.task import Task, TaskReport
from support.engine import MAIN, Engine

YEARS_S = 1e9
SENDERS = 3
OPTIONS = WorkerOptions(
    max_concurrency=3,
    notify_fallback_s=YEARS_S,
    heartbeat_interval_s=5.0,
    runner_idle_s=60.0,
    sleep_after_s=0.0,
    steps=frozenset({"a"}),
)


class Store(Protocol):
    """What senders and the worker do with the database, a step at a time."""

    def send(self, sender: int) -> None: ...
    def savepoint(self, sender: int) -> None: ...
    def rollback_to_savepoint(self, sender: int) -> None: ...
    def prepare(self, sender: int) -> None: ...
    def end(self, sender: int, *, commits: bool) -> None: ...
    def go_on(self) -> None: ...
    def arm(self) -> bool: ...
    def disarm(self) -> None: ...
    def writers(self, known: tuple[str, ...] | None) -> tuple[str, ...]: ...
    def claim(self, most: int) -> int: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def take_notifications(self) -> int: ...
    def visible(self) -> int: ...


@dataclass
class Sender:
    """A transaction of a sender in the model."""

    id: str
    holds_lock: bool = False
    messages: int = 0
    rings: bool = False
    is_prepared: bool = False
    saved: list[tuple[bool, int, bool]] = field(default_factory=list)


class ModelStore:
    """The rules of the proof. Sends and commits have two steps each; `go_on` does the second."""

    def __init__(self) -> None:
        self.is_up = False  # the doorbell, as committed
        self.wanted: bool | None = None  # what the worker's transaction makes of it
        self.senders: dict[int, Sender] = {}
        self.reading: list[Sender] = []  # have the lock, and have not looked for doorbells yet
        self.ending: list[int] = []  # have committed, and still hold the lock
        self.messages = self.claimed = self.notifications = self.number = 0

    def _sender(self, sender: int) -> Sender:
        if sender not in self.senders:
            self.number += 1
            self.senders[sender] = Sender(f"v{self.number}")
        return self.senders[sender]

    def _finish(self, sender: int) -> None:
        """A session does one thing after the other."""
        if sender in self.ending:
            self.ending.remove(sender)
            del self.senders[sender]
        elif sender in self.senders and self.senders[sender] in self.reading:
            self._look(self.senders[sender])

    def _look(self, sender: Sender) -> None:
        self.reading.remove(sender)
        sender.messages += 1
        sender.rings = sender.rings or self.is_up

    def send(self, sender: int) -> None:
        self._finish(sender)
        one = self._sender(sender)
        if not one.is_prepared:
            one.holds_lock = True
            self.reading.append(one)

    def savepoint(self, sender: int) -> None:
        self._finish(sender)
        one = self._sender(sender)
        one.saved.append((one.holds_lock, one.messages, one.rings))

    def rollback_to_savepoint(self, sender: int) -> None:
        self._finish(sender)
        one = self._sender(sender)
        if one.saved:
            one.holds_lock, one.messages, one.rings = one.saved.pop()

    def prepare(self, sender: int) -> None:
        self._finish(sender)
        one = self._sender(sender)
        if not one.rings:  # else PostgreSQL refuses
            self.number += 1
            one.is_prepared, one.id = True, f"p{self.number}"

    def end(self, sender: int, *, commits: bool) -> None:
        self._finish(sender)
        if sender not in self.senders:
            return
        if commits:
            one = self.senders[sender]
            self.messages += one.messages
            self.notifications += one.rings
            self.ending.append(sender)
        else:
            del self.senders[sender]

    def go_on(self) -> None:
        if self.reading:
            self._look(self.reading[0])
        elif self.ending:
            self._finish(self.ending[0])

    def arm(self) -> bool:
        self.wanted = True
        return not self.is_up

    def disarm(self) -> None:
        self.wanted = False

    def writers(self, known: tuple[str, ...] | None) -> tuple[str, ...]:
        return tuple(
            each.id
            for each in self.senders.values()
            if each.holds_lock and (known is None or each.is_prepared or each.id in known)
        )

    def claim(self, most: int) -> int:
        count = min(most, self.messages)
        self.messages -= count
        self.claimed += count
        return count

    def commit(self) -> None:
        if self.wanted is not None:
            self.is_up, self.wanted = self.wanted, None
        self.claimed = 0

    def abort(self) -> None:
        self.messages += self.claimed
        self.claimed, self.wanted = 0, None

    def take_notifications(self) -> int:
        count, self.notifications = self.notifications, 0
        return count

    def visible(self) -> int:
        return self.messages


class DoorbellWorld:
    """The worker's engine at such a store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.now = 0.0
        self.engine = Engine(OPTIONS, pace_s=0.001)
        self.calls: dict[object, actions.WorkerAction] = {}
        self.steps: list[str] = []  # of the turn under way, which is one transaction
        self.answer = events.ReportAndClaimDone((), ())
        self.running: list[tuple[int, Task]] = []
        self.armed = self.disarmed = self.tokens = 0
        self.feed(events.Tick())

    def feed(self, *arrived: events.Event) -> None:
        pending = list(arrived)
        while pending:
            event = pending.pop(0)
            for action in self.engine.decide([event], self.now):
                pending += self._perform(action)

    def _perform(self, action: actions.WorkerAction) -> Sequence[events.Event]:
        if isinstance(action, actions.ReportAndClaim):
            self.calls[MAIN] = action
            self.steps = ["doorbell", "claim", "commit", "answer"]
        elif isinstance(action, actions.ReadNextDue):
            self.calls[MAIN] = action
            self.steps = ["answer"]
        elif isinstance(action, actions.RenewLeases):
            tokens = tuple((token, events.LeaseVerdict.OK) for token in action.tokens)
            return [events.LeasesRenewed(action.connection, tokens)]
        elif isinstance(action, actions.Connect):
            return [events.Connected(action.connection)]
        elif isinstance(action, actions.ForkRunner):
            return [events.Forked(action.id, 1000 + action.id), events.RunnerReady(action.id)]
        elif isinstance(action, actions.SendTask):
            self.running.append((action.id, action.task))
        elif isinstance(action, actions.CloseRunner):
            return [events.RunnerEnded(action.id)]
        elif isinstance(action, actions.ReapRunner):
            return [events.Reaped(action.id, 0)]
        return []

    # what may happen

    def step(self) -> None:
        """One step of the turn under way."""
        if not self.steps:
            return
        step, call = self.steps.pop(0), self.calls[MAIN]
        if isinstance(call, actions.ReadNextDue):
            del self.calls[MAIN]
            self.feed(events.NextDueRead(None))
        elif isinstance(call, actions.ReportAndClaim):
            self._step_of_turn(step, call)

    def _step_of_turn(self, step: str, call: actions.ReportAndClaim) -> None:
        if step == "doorbell":
            answers = tuple(events.ReportAnswer(events.Verdict.COMPLETED) for _ in call.reports)
            self.answer = events.ReportAndClaimDone(answers, ())
            if call.doorbell is DoorbellCall.ARM:
                self.answer.is_armed_anew = self.store.arm()
                self.armed += 1
            elif call.doorbell is DoorbellCall.DISARM:
                self.store.disarm()
                self.disarmed += 1
            elif call.doorbell is DoorbellCall.LIST_WRITERS:
                self.answer.writers = self.store.writers(call.writers)
        elif step == "claim":
            tasks = []
            for _ in range(self.store.claim(call.claim) if call.claim else 0):
                self.tokens += 1
                tasks.append(Task(f"run{self.tokens}", "a", 0, self.tokens, 1, 3, 60.0, b"1", None))
            self.answer.tasks = tuple(tasks)
        elif step == "commit":
            self.store.commit()
        else:
            del self.calls[MAIN]
            self.feed(self.answer)

    def lose_connection(self) -> None:
        """The turn under way is undone, or done without an answer."""
        if MAIN not in self.calls:
            return
        if "commit" in self.steps:
            self.store.abort()
        self.steps = []
        del self.calls[MAIN]
        self.feed(events.ConnectionLost(MAIN, DatabaseFailure.RETRY, "lost"))

    def hear(self) -> None:
        """The notifications that are there arrive."""
        if self.store.take_notifications():
            self.feed(messages.Wake("a"))

    def finish_task(self) -> None:
        if self.running:
            runner, task = self.running.pop(0)
            self.feed(events.Done(runner, TaskReport(task, Outcome.COMPLETED, b"1")))

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        if self.now >= self.engine.next_deadline():
            self.feed(events.Tick())

    def work(self) -> None:
        """Let the worker go on alone, for a second or two of its time."""
        until = self.now + 2
        for _ in range(60):
            self.hear()
            if self.steps:
                self.step()
            elif self.running:
                self.finish_task()
            elif self.engine.next_deadline() <= until:
                self.now = max(self.now, self.engine.next_deadline())
                self.feed(events.Tick())
        if self.engine.rests() and not self.steps and not self.running:
            assert self.store.visible() == 0, "it rests, and a message waits"

    def settle(self) -> None:
        """Let everything happen that is going to happen; the senders have ended."""
        for _ in range(5_000):
            self.store.go_on()
            self.hear()
            if self.steps:
                self.step()
            elif self.running:
                self.finish_task()
            else:
                self.now = max(self.now, self.engine.next_deadline())
                self.feed(events.Tick())
            if not self.steps and not self.running and self.engine.rests():
                return
        raise AssertionError("it never comes to rest")


def play(world: DoorbellWorld, life: list[tuple[int, int, float]]) -> None:
    """Let these steps happen: what, by which sender, and how long after the one before."""
    store = world.store
    for choice, sender, pause_s in life:
        world.pass_time(pause_s)
        what = choice % 20
        if what < 4:
            store.send(sender)
        elif what < 6:
            store.end(sender, commits=True)
        elif what == 6:
            store.end(sender, commits=False)
        elif what == 7:
            store.savepoint(sender)
        elif what == 8:
            store.rollback_to_savepoint(sender)
        elif what == 9:
            store.prepare(sender)
        elif what == 10:
            store.go_on()
        elif what == 11:
            world.hear()
        elif what == 12:
            world.finish_task()
        elif what == 13 and choice % 60 == 13:
            world.lose_connection()
        elif what == 13:
            store.prepare(sender)
        elif what < 16:
            world.work()
        else:
            world.step()
    world.work()
    for sender in range(SENDERS):
        store.end(sender, commits=True)
    world.settle()
