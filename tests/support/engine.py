"""A worker's engine for tests: a state, a clock, and what was decided last; asked in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pgflowd.core import messages
from pgflowd.core.statuses import Outcome, RunStatus
from pgflowd.core.waiting import Wait
from pgflowd.core.worker import actions, events
from pgflowd.core.worker.decide import decide, next_deadline
from pgflowd.core.worker.doorbell import UNARMED, Doorbell, DoorbellRow
from pgflowd.core.worker.runners import SHORT_S
from pgflowd.core.worker.state import (
    ConnectionName,
    RunnerPhase,
    RunnerPool,
    TaskPhase,
    WorkerMode,
    WorkerOptions,
    WorkerState,
)
from pgflowd.core.worker.task import NEVER, Task, TaskReport, Turns

ARMED = Doorbell(DoorbellRow.UP, armed_at=100.0, usefulness=1.0)
MAIN, SECOND = ConnectionName.MAIN, ConnectionName.SECOND
ASK_FOR_SECOND = actions.SendMessage(messages.ConnectionWanted())
OPTIONS = WorkerOptions(max_concurrency=4, steps=frozenset({"a"}), sleep_after_s=0.0)


def task(token: int, step: str = "a", timeout_s: float = 60.0) -> Task:
    return Task(f"run{token}", step, 0, token, 1, 3, timeout_s, b"{}", None)


class Engine:
    """A worker's engine, asked in words."""

    def __init__(
        self,
        options: WorkerOptions,
        pace_s: float,
        began_at: float = 0.0,
        doorbell: Doorbell = UNARMED,
    ) -> None:
        pool = RunnerPool(pace_s=pace_s)
        self._state = WorkerState(options, pool, worked_at=began_at, doorbell=doorbell)
        self._kept: set[int] = set()  # the tokens of tasks whose output came as they were ended

    def decide(self, arrived: Sequence[events.Event], now: float) -> list[actions.WorkerAction]:
        self._state, wanted = decide(self._state, arrived, now)
        return wanted

    def next_deadline(self) -> float:
        return next_deadline(self._state)

    def is_changed_by_time(self, now: float) -> bool:
        """Whether a Tick at that moment would change or do anything."""
        return decide(self._state, [events.Tick()], now) != (self._state, [])

    def contradictions(self) -> list[str]:
        """What is wrong with the state in itself."""
        pool = self._state.runners
        phases = [(each.id, each.phase, each.tasks) for each in pool.by_id.values()]
        spare = [id for id, phase, tasks in phases if phase is RunnerPhase.STARTING and not tasks]
        leased = self.leases()
        found = {
            "there are too many runners": len(phases) > self._state.options.max_concurrency,
            "there are too many tasks": pool.count_running() > self._state.options.max_concurrency,
            "a task stands in two places": len(leased) != len(set(leased)),
            "the list of idle runners is wrong": set(pool.idle)
            != {id for id, phase, _ in phases if phase is RunnerPhase.IDLE},
            "the number of spare runners is wrong": pool.spare != len(spare),
        }
        return [text for text, is_so in found.items() if is_so]

    def claims_ahead(self) -> bool:
        """Whether tasks are so short that more are claimed than runners are free."""
        return self._state.runners.pace_s < SHORT_S

    def rests(self) -> bool:
        """Whether its doorbell is up, and it waits for a message."""
        is_due = self._state.schedule.is_due or self._state.schedule.question.value != "no"
        return self._state.doorbell.row is DoorbellRow.UP and not is_due

    def leaves_at(self) -> float:
        return self._state.leave_at

    def unassigned(self) -> list[int]:
        """The tokens of tasks that wait for a runner, the starting one's included."""
        runners = self._state.runners.by_id.values()
        starting = [t for r in runners if r.phase is RunnerPhase.STARTING for t in r.tasks]
        return [*starting, *(each.task.token for each in self._state.unassigned)]

    def leases(self) -> list[int]:
        return [each.token for each in self._state.leases()]

    def outputs(self) -> list[int]:
        """The sizes of all outputs in memory or being read, but for those of tasks being ended."""
        outbox = self._state.outbox
        runners = self._state.runners.by_id.values()
        tasks = [each for runner in runners for each in runner.tasks.values()]
        self._kept |= {each.task.token for each in tasks if each.output}
        reading = [each.result_bytes for each in tasks if each.phase is TaskPhase.SENDING]
        reports = [*outbox.sending, *outbox.reports]
        counted = [each for each in reports if each.task.token not in self._kept]
        return reading + [len(each.output) for each in counted if each.output]

    def runner_of(self, token: int) -> tuple[int, Task]:
        """The runner that has a task, and the task."""
        for runner in self._state.runners.by_id.values():
            if token in runner.tasks:
                return runner.id, runner.tasks[token].task
        raise AssertionError(f"no runner has task {token}")

    def phases(self) -> list[RunnerPhase]:
        return [runner.phase for runner in self._state.runners.by_id.values()]

    def task_phases(self) -> list[TaskPhase]:
        runners = self._state.runners.by_id.values()
        return [each.phase for runner in runners for each in runner.tasks.values()]

    def mode(self) -> WorkerMode:
        return self._state.mode

    def exit_code(self) -> int:
        return self._state.exit.code

    def turns(self) -> Turns:
        return self._state.turns

    def remembered(self) -> int:
        """How many texts the log will not say again."""
        return len(self._state.logged)


class Play(Engine):
    """Plays the world around a worker's engine."""

    def __init__(self, *, pace_s: float = 1.0, **options: object) -> None:
        self.now = 100.0
        super().__init__(replace(OPTIONS, **options), pace_s, self.now, ARMED)  # type: ignore[arg-type]
        self.grants = True  # a second connection, as soon as it is asked for
        self.actions: list[actions.WorkerAction] = []
        self._call: actions.WorkerAction | None = None  # the turn under way
        self.feed(events.Tick())

    def feed(self, *arrived: events.Event, after_s: float = 0.0) -> list[actions.WorkerAction]:
        self.now += after_s
        self.actions = self.decide(arrived, self.now)
        for event in arrived:
            is_lost = isinstance(event, events.ConnectionLost) and event.connection is MAIN
            if is_lost or isinstance(event, events.ReportAndClaimDone | events.NextDueRead):
                self._call = None
        for action in self.actions:
            if isinstance(action, actions.ReportAndClaim | actions.ReadNextDue):
                self._call = action
            elif isinstance(action, actions.RenewLeases) and action.connection is MAIN:
                return self._renew(action)
            elif action == ASK_FOR_SECOND and self.grants:
                done = self.actions
                self.actions = [*done, *self.feed(messages.ConnectionGranted())]
        return self.actions

    def _renew(self, action: actions.RenewLeases) -> list[actions.WorkerAction]:
        """The main connection has turns to take: let a renewal there end at once."""
        done = self.actions
        self.actions = [*done, *self.feed(events.LeasesRenewed(MAIN, ()))]
        return self.actions

    # what happens

    def claim(self, *tokens: int, timeout_s: float = 60.0) -> None:
        """Let the call under way end with these tasks, its reports recorded."""
        tasks = tuple(task(token, timeout_s=timeout_s) for token in tokens)
        answers = tuple(events.ReportAnswer(events.Verdict.COMPLETED) for _ in self.sending())
        self.feed(events.ReportAndClaimDone(answers, tasks))

    def answer(
        self,
        verdict: events.Verdict = events.Verdict.COMPLETED,
        *changes: events.RunChange,
        sqlstate: str | None = None,
        message: str | None = None,
        run_status: RunStatus | None = None,
    ) -> list[actions.WorkerAction]:
        """Let the call under way end: this verdict on each of its reports, and no task."""
        answer = events.ReportAnswer(verdict, sqlstate, message, run_status)
        answers = tuple(answer for _ in self.sending())
        return self.feed(events.ReportAndClaimDone(answers, (), changes))

    def renewed(
        self,
        *verdicts: tuple[int, events.LeaseVerdict],
        standing: events.Standing = events.GOOD_STANDING,
        cancelled: tuple[events.RunCancelled, ...] = (),
    ) -> list[actions.WorkerAction]:
        """Let a renewal of leases, on a second connection, end with these verdicts."""
        return self.feed(events.LeasesRenewed(SECOND, verdicts, standing, cancelled))

    def ready(self) -> None:
        """Let every runner that was asked for be ready."""
        for fork in self.did(actions.ForkRunner):
            self.feed(events.Forked(fork.id, 1000 + fork.id))
            self.feed(events.RunnerReady(fork.id))

    def busy(self, *tokens: int, timeout_s: float = 60.0) -> None:
        """Have runners that work on these."""
        self.claim(*tokens, timeout_s=timeout_s)
        self.ready()

    def done(
        self,
        token: int,
        *,
        output: bytes = b"1",
        children: tuple[str, ...] = (),
        after_s: float = 0.0,
    ) -> list[actions.WorkerAction]:
        runner, given = self.runner_of(token)
        report = TaskReport(given, Outcome.COMPLETED, output)
        return self.feed(events.Done(runner, report, events.LeftBehind(children)), after_s=after_s)

    def announced(
        self, token: int, size: int, *, after_s: float = 0.0
    ) -> list[actions.WorkerAction]:
        """The runner's handler has finished, with a large result; return what is to be read."""
        runner, _ = self.runner_of(token)
        self.feed(events.ResultAnnounced(runner, token, size), after_s=after_s)
        return self.did(actions.TakeResult)

    def failed(self, token: int) -> list[actions.WorkerAction]:
        runner, given = self.runner_of(token)
        report = TaskReport(given, Outcome.FAILED, error_message="no such page")
        return self.feed(events.Done(runner, report))

    def suspended(self, token: int, wait: Wait) -> list[actions.WorkerAction]:
        runner, given = self.runner_of(token)
        report = TaskReport(given, Outcome.SUSPENDED, wait=wait)
        return self.feed(events.Done(runner, report))

    def wait(self) -> list[actions.WorkerAction]:
        """Let time pass until the next deadline."""
        return self.feed(events.Tick(), after_s=self.waits_s())

    # what was decided

    def did(self, kind: type) -> list:  # type: ignore[type-arg]
        """The actions of this kind, or the messages for the supervisor."""
        done = [getattr(action, "message", action) for action in self.actions]
        return [each for each in done if isinstance(each, kind)]

    def sending(self) -> tuple[TaskReport, ...]:
        """The reports of the call under way."""
        return getattr(self._call, "reports", ())

    def claiming(self) -> int:
        """How many tasks the call under way claims."""
        return getattr(self._call, "claim", 0)

    def waiting_reports(self) -> list[TaskReport]:
        """The reports that no call has taken along yet."""
        return list(self._state.outbox.reports)

    def waits_s(self) -> float:
        """How long nothing happens by itself."""
        until = self.next_deadline()
        return NEVER if until == NEVER else max(0.0, until - self.now)

    def counted(self, metric: object) -> list[tuple[object, ...]]:
        """Labels and number of each count of this metric in the last decisions."""
        counts = [each for each in self.did(actions.Count) if each.metric is metric]
        return [(*each.labels, each.count) for each in counts]
