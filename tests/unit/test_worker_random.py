"""
The worker's engine under thousands of random lives: its promises hold whatever happens when.

`World` plays everything around the worker: it keeps what was wanted, and lets chance choose what
comes next, how it ends, and how much time passes. Each list of numbers is one life, so hypothesis
can shorten it. After each step, time alone changes nothing before the next deadline, and at the
deadline something.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.covers import covers
from support.engine import MAIN, SECOND, Engine

from pgflowd.core import messages
from pgflowd.core.failure import DatabaseFailure
from pgflowd.core.settings.sections import DatabaseSettings
from pgflowd.core.statuses import Outcome, RunStatus, StepStatus
from pgflowd.core.waiting import Wait, WaitKind
from pgflowd.core.worker import actions, events
from pgflowd.core.worker.events import LeaseVerdict, LeftBehind, Verdict
from pgflowd.core.worker.runners import MAX_HELD_BYTES
from pgflowd.core.worker.state import (
    ConnectionName,
    FetchRequest,
    HandlerRequest,
    RowState,
    Standing,
    WorkerOptions,
)
from pgflowd.core.worker.task import MAX_BYTES, NEVER, Task, TaskReport

RETRY = DatabaseFailure.RETRY
OPTIONS = WorkerOptions(
    max_concurrency=3,
    batch_size=10,
    heartbeat_interval_s=0.5,
    max_tasks_per_runner=5,
    runner_idle_s=2.0,
    kill_grace_s=0.5,
    database=DatabaseSettings(reconnect_min_s=0.1, reconnect_max_s=1.0),
    sleep_after_s=0.0,
    call_limit_s=7.0,
    steps=frozenset({"a"}),
)


SHARED = replace(OPTIONS, max_concurrency=6, tasks_per_runner=3, shared_steps=frozenset({"a"}))


class World:
    """Everything but the worker."""

    def __init__(self, pace_s: float, is_failing: bool, options: WorkerOptions) -> None:
        self.now = 0.0
        self.options = options
        self.engine = Engine(options, pace_s)
        self.calls: dict[ConnectionName, object] = {}
        self.open = {MAIN}
        self.is_wanted = False  # a second connection
        self.has_second = False  # or may open it
        self.forks: list[int] = []
        self.alive: dict[int, str] = {}  # runner: starting, idle, busy, closed, dead
        self.tasks: dict[int, dict[int, Task]] = {}  # by runner and token
        self.deadlines: dict[int, float] = {}  # by token
        self.large: dict[int, str] = {}  # results by token: finished, sending
        self.pinged: set[int] = set()
        self.runner_of: dict[int, int] = {}  # by token
        self.terminated: set[int] = set()  # runners; shared ones that answered nothing in time
        self.reaping: list[int] = []
        self.peeks: list[actions.ReadResult] = []
        self.claimed: Counter[int] = Counter()
        self.told: Counter[int] = Counter()  # endings the database took, by token
        self.recorded: set[int] = set()  # tokens of tasks that their runners have completed
        self.returned: set[int] = set()  # tokens of results that came when the runner was killed
        self.dropped: set[int] = set()  # tokens whose lease was lost, or whose report is refused
        self.killed: set[int] = set()  # runners signalled, not reaped
        self.tokens = 0
        self.zygote_is_dead = False
        self.left: actions.Leave | None = None
        self.is_hurried = False  # it had to leave before it could tell everything
        self.claims_after_stop = 0
        self.is_stopping = False
        self.doomed: set[int] = set()  # to be killed once they are forked
        self.soon: list[object] = []  # what follows at once
        self.failed: actions.ReportAndClaim | None = None  # the last turn, if by no accident
        self.is_failing = is_failing
        self.mailbox: list[object] = []  # what the worker was not told yet

    def feed(self, event: object, waits: bool = False) -> None:
        """Tell the worker what happened, at once or along with what happens next."""
        self.mailbox.append(event)
        if not waits:
            self.deliver()

    def deliver(self) -> None:
        if any(
            isinstance(e, messages.Drain | messages.QuickStop | events.ZygoteEnded)
            for e in self.mailbox
        ):
            self.is_stopping = True
        arrived, self.mailbox = self.mailbox, []
        for action in self.engine.decide(arrived, self.now):
            self.perform(action)
        assert not self.engine.contradictions()
        outputs = self.engine.outputs()
        assert sum(outputs) <= MAX_HELD_BYTES + sum(size for size in outputs if size == 1)
        self.check_deadline()

    def check_deadline(self) -> None:
        """Before the next deadline a Tick changes nothing; at it, something."""
        deadline = self.engine.next_deadline()
        assert deadline > self.now
        before = self.now + min(deadline - self.now, 1000) * 0.999
        assert not self.engine.is_changed_by_time(self.now)
        if before < deadline:  # which may be the next number after now
            assert not self.engine.is_changed_by_time(before)
        if deadline != NEVER:
            assert self.engine.is_changed_by_time(deadline)

    def on_message(self, message: object) -> None:
        """The worker tells the supervisor something."""
        if isinstance(message, messages.FallingAsleep):
            assert not self.engine.leases()
            assert message.next_due_at is None or message.next_due_at >= self.now
            self.is_stopping = True  # it claims nothing more
        elif isinstance(message, messages.ConnectionWanted):
            assert not self.is_wanted
            self.is_wanted = True
        elif isinstance(message, messages.ConnectionReturned):
            assert SECOND not in self.open
            self.has_second = False

    # what may happen next

    def possible(self) -> list[object]:
        found: list[object] = [events.Tick(), messages.Wake("a"), messages.SleepIfIdle()]
        found += [messages.Drain(3.0), messages.QuickStop()] if self.now > 5 else []
        if MAIN in self.calls:
            found += [
                *self.ends_of_main() * 3,
                events.ConnectionLost(MAIN, RETRY, "lost", 0.3),
                *(self.failures_of_main() * 2 if self.is_failing else []),
            ]
        if SECOND in self.calls:
            found += [
                *self.ends_of_side_calls(SECOND) * 2,
                events.ConnectionLost(SECOND, RETRY, "lost", 0.9),
            ]
        found += [messages.ConnectionGranted()] if self.is_wanted else []
        found += self.of_the_zygote()
        found += [event for runner in self.alive for event in self.of_runner(runner)]
        return found

    def of_the_zygote(self) -> list[object]:
        if self.zygote_is_dead:
            return [Reaping(runner) for runner in self.reaping]
        found: list[object] = [Forking(runner) for runner in self.forks] * 3
        found += [events.ForkRefused(runner, "no memory") for runner in self.forks]
        found += [Reaping(runner) for runner in self.reaping] * 3
        return found + ([Dying()] if self.now > 8 else [])

    def ends_of_main(self) -> list[object]:
        call = self.calls[MAIN]
        if isinstance(call, actions.Connect):
            return [events.Connected(MAIN)]
        if isinstance(call, actions.ReadNextDue):
            return [
                events.NextDueRead(None),
                events.NextDueRead(0.5),
                events.NextDueRead(5.0),
                events.NextDueRead(None, 3),
            ]
        if isinstance(call, actions.SideAction):
            return self.ends_of_side_calls(MAIN)
        assert isinstance(call, actions.ReportAndClaim)
        return [Turning(n, verdict) for n in (0, 1, call.claim) for verdict in VERDICTS]

    def failures_of_main(self) -> list[object]:
        """What is no accident: the next turn must be another one."""
        if not isinstance(self.calls[MAIN], actions.ReportAndClaim):
            return []
        return [
            events.ConnectionLost(MAIN, RETRY, "took too long", 0.3, "57014"),
            events.ConnectionLost(MAIN, DatabaseFailure.BROKEN, "too large", 0.3, "54000"),
        ]

    def ends_of_side_calls(self, name: ConnectionName) -> list[object]:
        call = self.calls[name]
        if isinstance(call, actions.Connect):
            return [events.Connected(name)]
        if isinstance(call, actions.Fetch):
            locked = events.Fetched(name, is_locked=True)
            return [events.Fetched(name), *[locked] * (call.request.kind is HandlerRequest.SAVE)]
        if isinstance(call, actions.PublishOutput):
            return [events.SideCallDone(name)]
        if isinstance(call, actions.SignOff):
            return [events.SignedOff(name)]
        assert isinstance(call, actions.RenewLeases)
        return [
            events.LeasesRenewed(
                name,
                tuple((token, verdict) for token in call.tokens),
                Standing(row),
                cancelled=tuple(
                    events.RunCancelled(f"run{token}", "me", "enough")
                    for token in call.tokens
                    if verdict is LeaseVerdict.CANCEL
                ),
            )
            for verdict in (LeaseVerdict.OK, *LeaseVerdict)
            for row in (RowState.OK, RowState.OK, RowState.DEPRECATED)
        ]

    def of_runner(self, runner: int) -> list[object]:
        state = self.alive[runner]
        if state == "starting":
            return [*[events.RunnerReady(runner)] * 3, Ending(runner)]
        if state == "busy":
            tasks = self.tasks[runner].values()
            found = [event for task in tasks for event in self.of_task(runner, task)]
            found += [events.Ponged(runner)] * 3 * (runner in self.pinged)
            return [*found, Ending(runner)]
        return [Ending(runner)] if state in ("idle", "closed") else []

    def of_task(self, runner: int, task: Task) -> list[object]:
        state, output = self.large.get(task.token), OUTPUTS[task.token % 3]
        if state == "finished":
            return []
        report = TaskReport(task, Outcome.COMPLETED, output)
        done: list[object] = [events.Done(runner, report, left) for left in LEFT]
        wrong = events.BadFrameReceived(runner, "E903", "noise")
        if state == "sending":
            return [*done, wrong]
        if len(output) > 1:
            done = [Finishing(runner, task.token, len(output))] * len(LEFT)
        kind = (HandlerRequest.RUN_INPUT, HandlerRequest.SAVE)[task.token % 2]
        asked = events.HandlerAsked(FetchRequest(runner, task.token, kind))
        suspended = TaskReport(task, Outcome.SUSPENDED, wait=Wait(WaitKind.SLEEP, in_s=1.0))
        waits = [events.Done(runner, suspended, left) for left in LEFT]
        found = [*done, *waits, done[0], wrong, asked, events.OutputWaiting()]
        answer = events.Recorded(events.ReportAnswer(Verdict.COMPLETED))
        recorded = [events.Done(runner, report, left, recorded=answer) for left in LEFT]
        found += [Recording(runner, each, dies=False) for each in recorded]
        found += [Recording(runner, recorded[0], dies=True)]
        is_alone = len(self.tasks[runner]) == 1
        return found + [events.Undelivered(runner, task.token)] * is_alone

    # what the worker does

    def perform(self, action: object) -> None:
        if isinstance(action, actions.ReportAndClaim):
            assert MAIN not in self.calls, "one call at a time"
            if self.is_stopping and action.claim:
                self.claims_after_stop += 1
            self.check_claim(action.claim)
            self.check_turn(action)
            self.calls[MAIN] = action
        elif isinstance(action, actions.ReadNextDue):
            assert MAIN not in self.calls
            self.calls[MAIN] = action
        elif isinstance(action, actions.SideAction):
            assert action.connection not in self.calls, "one call at a time"
            assert action.connection in self.open, "it is closed"
            assert action.connection is SECOND or SECOND not in self.open, "it is for turns"
            self.calls[action.connection] = action
        elif isinstance(action, actions.SendMessage):
            self.on_message(action.message)
        elif isinstance(action, actions.Connect):
            assert action.connection not in self.calls
            assert action.connection not in self.open
            assert action.connection is MAIN or self.has_second
            self.calls[action.connection] = action
        elif isinstance(action, actions.CloseConnection):
            assert action.connection is SECOND and SECOND not in self.calls
            self.open.remove(SECOND)
        elif isinstance(action, actions.CutConnection):
            self.soon.append(events.ConnectionLost(action.connection, RETRY, "cut", 0.5))
        elif isinstance(action, actions.ForkRunner):
            self.forks.append(action.id)
        elif isinstance(action, actions.SendTask):
            self.send(action)
        elif isinstance(action, actions.PingRunner):
            self.pinged.add(action.id)
        elif isinstance(action, actions.TakeResult):
            if action.token in self.large:
                self.large[action.token] = "sending"
        elif isinstance(action, actions.ReadResult) and action.token == events.PING:
            self.soon.append(events.NoResultYet(action.id, action.token))
        elif isinstance(action, actions.ReadResult):
            if action.token not in self.large:  # else it was announced
                self.soon.append(events.NoResultYet(action.id, action.token))
        elif isinstance(action, actions.TerminateRunner | actions.KillRunner):
            self.killed.add(action.id)
            if isinstance(action, actions.TerminateRunner):
                self.terminated.add(action.id)
            if isinstance(action, actions.KillRunner) and action.id in self.forks:
                self.doomed.add(action.id)
            elif isinstance(action, actions.KillRunner) and self.alive.get(action.id) not in (
                None,
                "dead",
            ):
                self.alive[action.id] = "dying"
                self.soon += [*self.last_words(action.id), Ending(action.id)]
        elif isinstance(action, actions.CloseRunner) and self.alive[action.id] != "dead":
            self.alive[action.id] = "closed"
        elif isinstance(action, actions.ReapRunner):
            self.reaping.append(action.id)
        elif isinstance(action, actions.WriteLog) and "run" in action.fields:
            text = action.fields["error"] or ""
            if action.fields.get("code") == "E407" or "was refused" in text:
                self.dropped.add(int(action.fields["run"].removeprefix("run")))
        elif isinstance(action, actions.Leave):
            self.left = action

    def last_words(self, runner: int) -> list[object]:
        """Results that are whole in the socket of a runner that was killed."""
        tasks = self.tasks.get(runner, {}).values()
        found = [each for each in tasks if each.token % 2 and each.token not in self.recorded]
        self.returned |= {each.token for each in found}
        reports = [TaskReport(each, Outcome.COMPLETED, b"1") for each in found]
        return [events.Done(runner, report, LEFT[0]) for report in reports]

    def send(self, action: actions.SendTask) -> None:
        """A runner that is ready gets one task, or as many as may share it."""
        tasks = self.tasks.setdefault(action.id, {})
        assert self.alive[action.id] == ("busy" if tasks else "idle")
        assert not tasks or (action.is_shared and len(tasks) < self.options.tasks_per_runner)
        tasks[action.task.token] = action.task
        self.alive[action.id] = "busy"
        self.deadlines[action.task.token] = self.now + action.task.timeout_s
        self.runner_of[action.task.token] = action.id
        assert sum(map(len, self.tasks.values())) <= self.options.max_concurrency

    def check_claim(self, wanted: int) -> None:
        """Never more than there are free places, but for what they take up in 20 ms."""
        ready = [each for each, state in self.alive.items() if state not in ("starting", "idle")]
        busy = sum(max(1, len(self.tasks.get(each, ()))) for each in ready)
        free = self.options.max_concurrency - busy - len(self.engine.unassigned())
        if wanted and not self.engine.claims_ahead():
            assert wanted <= free
        assert wanted <= self.options.batch_size

    def check_blame(self, report: TaskReport) -> None:
        """A task times out at its deadline, or because it blocks its runner."""
        if report.outcome is Outcome.TIMED_OUT and report.error_type != "Blocked":
            assert self.now >= self.deadlines[report.task.token]
        elif report.error_type == "Blocked":
            assert self.runner_of[report.task.token] in self.terminated

    def check_turn(self, turn: actions.ReportAndClaim) -> None:
        """Bounded in bytes; and after a failure reports and claims go alone, by less and less."""
        size = sum(len(report.output or b"") for report in turn.reports)
        assert size <= MAX_BYTES or len(turn.reports) == 1
        if self.failed is not None:
            assert not (turn.reports and turn.claim)
            if self.failed.reports and turn.reports:
                assert len(turn.reports) <= max(1, len(self.failed.reports) // 2)
            if not self.failed.reports and not turn.reports:
                assert turn.claim == 1


OUTPUTS = [b"1", b"x" * (MAX_BYTES // 3), b"x" * (MAX_HELD_BYTES * 2 // 3)]
LEFT = (LeftBehind(), LeftBehind(reset=("threads",)), LeftBehind(children=("sleep",)))


class Act:
    """An event that changes the world as it happens."""

    def __init__(self, runner: int = 0) -> None:
        self.runner = runner


class Forking(Act):
    def into(self, world: World) -> object:
        world.forks.remove(self.runner)
        world.alive[self.runner] = "dying" if self.runner in world.doomed else "starting"
        if self.runner in world.doomed:
            world.soon.append(Ending(self.runner))
        return events.Forked(self.runner, 1000 + self.runner)


class Ending(Act):
    def into(self, world: World) -> object:
        world.alive[self.runner] = "dead"
        return events.RunnerEnded(self.runner)


class Finishing(Act):
    """The runner announces a large result, and then waits until that is read."""

    def __init__(self, runner: int, token: int, size: int) -> None:
        super().__init__(runner)
        self.token, self.size = token, size

    def into(self, world: World) -> object:
        world.large[self.token] = "finished"
        return events.ResultAnnounced(self.runner, self.token, self.size)


class Recording(Act):
    """The runner completes the task by itself. It may die before it can tell that."""

    def __init__(self, runner: int, done: events.Done, *, dies: bool) -> None:
        super().__init__(runner)
        self.done, self.dies = done, dies

    def into(self, world: World) -> object:
        token = self.done.report.task.token
        world.recorded.add(token)
        world.told[token] += 1
        world.soon.append(Ending(self.runner) if self.dies else self.done)
        return events.Committing(self.runner, token)


class Reaping(Act):
    def into(self, world: World) -> object:
        world.reaping.remove(self.runner)
        world.killed.discard(self.runner)
        tasks = world.tasks.pop(self.runner, {})
        del world.alive[self.runner]
        executing = next(iter(tasks), 0) if self.runner % 3 else 0
        stacks = {token: "" for token in tasks if token % 2}
        return events.Reaped(self.runner, 9, executing=executing, stacks=stacks)


class Dying(Act):
    def into(self, world: World) -> object:
        world.zygote_is_dead = True
        world.forks.clear()
        for runner, state in world.alive.items():
            if state not in ("dead", "dying"):
                world.alive[runner] = "dying"
                world.soon.append(Ending(runner))
        return events.ZygoteEnded("killed by signal 9")


VERDICTS = ("completed", "lost", "55P03", "22P02")


class Turning(Act):
    def __init__(self, got: int, verdict: str) -> None:
        self.got, self.verdict = got, verdict

    def into(self, world: World) -> object:
        call = world.calls[MAIN]
        assert isinstance(call, actions.ReportAndClaim)
        answers = [self.answer(world, report) for report in call.reports]
        tasks = []
        for _ in range(min(self.got, call.claim)):
            world.tokens += 1
            step = "a" if world.tokens % 7 else "unknown"
            tasks.append(Task(f"run{world.tokens}", step, 0, world.tokens, 1, 3, 1.0, b"{}", b"1"))
            world.claimed[world.tokens] += 1
        assert set(call.changes_of) <= {report.task.run_id for report in call.reports}
        changes = [
            events.RunChange(run, step, status)
            for run in call.changes_of
            for step, statuses in (("a", StepStatus), (None, RunStatus))
            for status in statuses
        ]
        return events.ReportAndClaimDone(tuple(answers), tuple(tasks), tuple(changes))

    def answer(self, world: World, report: TaskReport) -> events.ReportAnswer:
        holder = [r for r, tasks in world.tasks.items() if report.task.token in tasks]
        assert not set(holder) & world.killed, "reported before it was reaped"
        world.check_blame(report)
        if report.task.token in world.recorded:
            assert report.may_be_recorded
            return events.ReportAnswer(Verdict.LOST, "PF001")
        assert report.output or report.task.token not in world.returned, "a result is thrown away"
        if self.verdict not in ("completed", "lost"):
            world.returned.discard(report.task.token)  # it may be sent without it
        if self.verdict == "completed":
            world.told[report.task.token] += 1
            is_suspended = report.outcome is Outcome.SUSPENDED
            assert is_suspended == (report.wait is not None)
            return events.ReportAnswer(Verdict.QUEUED if is_suspended else Verdict.COMPLETED)
        if self.verdict == "lost":
            return events.ReportAnswer(Verdict.LOST, "PF001")
        return events.ReportAnswer(Verdict.ERROR, self.verdict, "no")


def happen(world: World, event: object, waits: bool = False) -> None:
    """Let an event happen, and what follows from it at once."""
    pending = [event]
    while pending:
        told = into_world(world, pending.pop(0))
        if told is not None:
            world.feed(told, waits)
        pending += world.soon
        world.soon = []


def into_world(world: World, event: object) -> object | None:
    """Change the world as the event does; None if it cannot happen any more."""
    if isinstance(event, Ending) and world.alive.get(event.runner) in (None, "dead"):
        return None
    if isinstance(event, events.ConnectionLost | events.Connected):
        call = world.calls.pop(event.connection, None)
        world.open.discard(event.connection)
        if call and isinstance(event, events.Connected):
            world.open.add(event.connection)
        if isinstance(call, actions.ReportAndClaim):
            assert isinstance(event, events.ConnectionLost)
            world.failed = call if event.sqlstate else None
        return event if call else None
    told = event.into(world) if isinstance(event, Act) else event
    if isinstance(told, events.Done) and world.alive.get(told.id) == "busy":
        del world.tasks[told.id][told.report.task.token]
        if not world.tasks[told.id]:
            world.alive[told.id] = "idle"
    elif isinstance(told, events.Ponged):
        world.pinged.discard(told.id)
    elif isinstance(told, events.Undelivered):
        world.alive[told.id] = "dying"
        del world.tasks[told.id]
        world.soon.append(Ending(told.id))
    elif isinstance(told, events.RunnerReady):
        world.alive[told.id] = "idle"
    elif isinstance(told, events.ReportAndClaimDone | events.NextDueRead):
        if isinstance(told, events.ReportAndClaimDone):
            world.failed = None
        del world.calls[MAIN]
    elif isinstance(told, messages.ConnectionGranted):
        world.is_wanted, world.has_second = False, True
    elif isinstance(told, events.SideCallDone):
        del world.calls[told.connection]
    elif isinstance(told, events.ForkRefused):
        world.forks.remove(told.id)
    return told


pauses = st.sampled_from([0.0, 0.001, 0.1, 0.6, 2.0])
steps = st.tuples(st.integers(0, 200), pauses, st.booleans())  # what, when, whether it waits


lives = st.lists(steps, min_size=30, max_size=120)
paces = st.sampled_from([1.0, 0.001])


@covers("rule 36", "rule 37", "rule 38", "rule 39", "rule 40", "rule 41")
@settings(max_examples=500, deadline=None)
@given(lives, paces, st.booleans(), st.sampled_from([0.0, 0.3, 1.0]))
def test_hold_in_every_life(
    life: list[tuple[int, float, bool]], pace_s: float, is_failing: bool, sleep_after_s: float
):
    live(World(pace_s, is_failing, replace(OPTIONS, sleep_after_s=sleep_after_s)), life)


# cancelled while its runner completes it by itself, with its result on the way
RECORDED_AT_THE_END = [
    *[(0, 0.0, False)] * 23, (91, 0.0, False), (3, 0.0, False), (3, 0.6, True), (3, 0.0, False),
    (108, 0.0, False), (0, 0.6, False), (65, 0.0, False),
]  # fmt: skip


@covers("rule 58", "rule 59", "G3")
@settings(max_examples=250, deadline=None)
@given(lives, paces, st.booleans())
@example(RECORDED_AT_THE_END, 1.0, False)
def test_hold_in_every_life_of_tasks_that_share_runners(
    life: list[tuple[int, float, bool]], pace_s: float, is_failing: bool
):
    live(World(pace_s, is_failing, SHARED), life)


def live(world: World, life: list[tuple[int, float, bool]]) -> None:
    for choice, pause_s, waits in life:
        if world.left:
            break
        world.now += pause_s
        possible = world.possible()
        happen(world, possible[choice % len(possible)], waits)
    finish(world)

    assert world.left is not None, "it ends within the limits"
    assert world.claims_after_stop == 0
    assert all(count == 1 for count in world.told.values()), "an outcome was taken twice"
    unfinished = set(world.engine.leases())
    assert set(world.claimed) == set(world.told) | world.dropped | unfinished
    assert not unfinished or world.zygote_is_dead or world.is_hurried
    is_orderly = world.left.code in (0, 10, 11)
    assert not unfinished or not is_orderly, "it pretends to have ended as asked"


def finish(world: World) -> None:
    """Stop, and let everything end well, as it does within the limits."""
    if world.mailbox:
        world.deliver()
    world.is_hurried = world.engine.leaves_at() < world.now + 1
    if not world.left:
        happen(world, messages.QuickStop())
    for _ in range(2000):
        if world.left:
            return
        event = next_good(world)
        if event is None:
            deadline = world.engine.next_deadline()
            assert deadline != NEVER, "it waits for nothing"
            world.now = deadline
            event = events.Tick()
        happen(world, event)


def next_good(world: World) -> object | None:
    call = world.calls.get(MAIN)
    if isinstance(call, actions.ReportAndClaim):
        return Turning(0, "completed")
    if call is not None:
        return world.ends_of_main()[0]
    if SECOND in world.calls:
        return world.ends_of_side_calls(SECOND)[0]
    if world.forks and not world.zygote_is_dead:
        return Forking(world.forks[0])
    if world.reaping:
        return Reaping(world.reaping[0])
    for runner, tasks in world.tasks.items():
        for task in tasks.values():
            if world.alive[runner] == "busy" and world.large.get(task.token) == "sending":
                return world.of_task(runner, task)[0]
    closed = [runner for runner, state in world.alive.items() if state == "closed"]
    if closed:
        return Ending(closed[0])
    waiting = [runner for runner, state in world.alive.items() if state == "starting"]
    return events.RunnerReady(waiting[0]) if waiting else None
