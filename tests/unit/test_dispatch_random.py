"""
Dispatch under thousands of random lives: whatever happens in whatever order, the promises hold.

`World` plays everything around the worker: it keeps what was asked for, and lets chance choose
what comes next, how it ends, and how much time passes. Each list of numbers is one life, so
hypothesis can shorten it.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from pgflowd.core import happenings as on
from pgflowd.core.dispatch import decide
from pgflowd.core.dispatch_runners import CHILDREN
from pgflowd.core.mind import Knobs, Mind, Phase, Report, Task

KNOBS = Knobs(
    max_concurrency=3,
    batch_size=10,
    heartbeat_interval_s=0.5,
    max_tasks_per_runner=5,
    runner_idle_s=2.0,
    kill_grace_s=0.5,
    reconnect_min_s=0.1,
    reconnect_max_s=1.0,
    call_limit_s=7.0,
    steps=frozenset({"a"}),
)


class World:
    """Everything but the worker."""

    def __init__(self, pace_s: float) -> None:
        self.now = 0.0
        self.mind = Mind(KNOBS, pace_s=pace_s)
        self.calls: dict[str, object] = {}
        self.forks: list[int] = []
        self.alive: dict[int, str] = {}  # runner: starting, idle, busy, closed, dead
        self.tasks: dict[int, Task] = {}  # by runner
        self.reaping: list[int] = []
        self.peeks: list[on.Peek] = []
        self.claimed: Counter[int] = Counter()
        self.told: Counter[int] = Counter()  # endings the database took, by token
        self.dropped: set[int] = set()  # tokens whose lease was lost, or whose report is refused
        self.killed: set[int] = set()  # runners signalled, not reaped
        self.tokens = 0
        self.zygote_is_dead = False
        self.left: on.Leave | None = None
        self.is_hurried = False  # it had to leave before it could tell everything
        self.claims_after_stop = 0
        self.is_stopping = False
        self.doomed: set[int] = set()  # to be killed once they are forked
        self.soon: list[object] = []  # what follows at once
        self.mailbox: list[object] = []  # what the worker was not told yet

    def tell(self, event: object, waits: bool = False) -> None:
        """Tell the worker what happened, at once or along with what happens next."""
        self.mailbox.append(event)
        if not waits:
            self.deliver()

    def deliver(self) -> None:
        if any(isinstance(e, on.DrainAsked | on.StopAsked | on.ZygoteEnded) for e in self.mailbox):
            self.is_stopping = True
        events, self.mailbox = self.mailbox, []
        self.mind, actions = decide(self.mind, events, self.now)
        for action in actions:
            self.perform(action)
        self.check()

    # what may happen next

    def possible(self) -> list[object]:
        events: list[object] = [on.Tick(), on.Woken()]
        events += [on.DrainAsked(3.0), on.StopAsked()] if self.now > 5 else []
        if "main" in self.calls:
            events += [*self.ends_of_main() * 3, on.Broken("main", "again", "lost", 0.3)]
        if "beats" in self.calls:
            events += [*self.ends_of_beats() * 2, on.Broken("beats", "again", "lost", 0.9)]
        events += self.of_the_zygote()
        events += [event for runner in self.alive for event in self.of_runner(runner)]
        return events

    def of_the_zygote(self) -> list[object]:
        if self.zygote_is_dead:
            return [Reaping(runner) for runner in self.reaping]
        events: list[object] = [Forking(runner) for runner in self.forks]
        events += [on.Refused(runner, "no memory") for runner in self.forks]
        events += [Reaping(runner) for runner in self.reaping] * 3
        return events + ([Dying()] if self.now > 8 else [])

    def ends_of_main(self) -> list[object]:
        call = self.calls["main"]
        if isinstance(call, on.Connect):
            return [on.Connected("main")]
        if isinstance(call, on.AskDue):
            return [on.NextDue(None), on.NextDue(0.5), on.NextDue(None, 3)]
        assert isinstance(call, on.Turn)
        return [Turning(n, verdict) for n in (0, 1, call.wanted) for verdict in VERDICTS]

    def ends_of_beats(self) -> list[object]:
        call = self.calls["beats"]
        if isinstance(call, on.Connect):
            return [on.Connected("beats")]
        if isinstance(call, on.Fetch):
            return [on.Fetched()]
        if isinstance(call, on.Goodbye):
            return [on.SaidGoodbye()]
        assert isinstance(call, on.Beat)
        return [
            on.Beaten(
                tuple((token, verdict) for token in call.tokens),
                standing,
                cancelled=tuple(
                    on.Cancelled(f"run{token}", "me", "enough")
                    for token in call.tokens
                    if verdict == "cancel"
                ),
            )
            for verdict in ("ok", "ok", "cancel", "lost")
            for standing in ("ok", "ok", "deprecated")
        ]

    def of_runner(self, runner: int) -> list[object]:
        state = self.alive[runner]
        if state == "starting":
            return [on.RunnerReady(runner), Ending(runner)]
        if state == "busy":
            report = Report(self.tasks[runner], "completed", b"1")
            wrong = on.Spoilt(runner, "E903", "noise")
            asking = on.Asked(runner, report.task.token, "input")
            lost = on.Undelivered(runner, report.task.token)
            done = [on.Done(runner, report, left) for left in ((), ("threads",), (CHILDREN,))]
            return [*done, on.Done(runner, report), wrong, asking, lost, Ending(runner)]
        return [Ending(runner)] if state in ("idle", "closed") else []

    # what the worker does

    def perform(self, action: object) -> None:
        if isinstance(action, on.Turn):
            assert "main" not in self.calls, "one call at a time"
            if self.is_stopping and action.wanted:
                self.claims_after_stop += 1
            self.check_claim(action.wanted)
            self.calls["main"] = action
        elif isinstance(action, on.AskDue):
            assert "main" not in self.calls
            self.calls["main"] = action
        elif isinstance(action, on.Beat | on.Fetch | on.Goodbye):
            assert "beats" not in self.calls, "one call at a time"
            self.calls["beats"] = action
        elif isinstance(action, on.Connect):
            assert action.line not in self.calls
            self.calls[action.line] = action
        elif isinstance(action, on.Cut):
            self.soon.append(on.Broken(action.line, "again", "cut", 0.5))
        elif isinstance(action, on.Fork):
            self.forks.append(action.id)
        elif isinstance(action, on.Send):
            assert self.alive[action.id] == "idle", "one task in a runner, and only in a ready one"
            self.alive[action.id], self.tasks[action.id] = "busy", action.task
        elif isinstance(action, on.Peek):
            self.soon.append(on.Silent(action.id, action.token))
        elif isinstance(action, on.Term | on.Kill):
            self.killed.add(action.id)
            if isinstance(action, on.Kill) and action.id in self.forks:
                self.doomed.add(action.id)
            elif isinstance(action, on.Kill) and self.alive.get(action.id) not in (None, "dead"):
                self.alive[action.id] = "dying"
                self.soon.append(Ending(action.id))
        elif isinstance(action, on.Close) and self.alive[action.id] != "dead":
            self.alive[action.id] = "closed"
        elif isinstance(action, on.Reap):
            self.reaping.append(action.id)
        elif isinstance(action, on.Say) and "run" in action.fields:
            text = action.fields["error"] or ""
            if action.fields.get("code") == "E407" or "was refused" in text:
                self.dropped.add(int(action.fields["run"].removeprefix("run")))
        elif isinstance(action, on.Leave):
            self.left = action

    def check_claim(self, wanted: int) -> None:
        """Never more than there are free runners, but for what they take up in 20 ms."""
        busy = sum(state != "starting" and state != "idle" for state in self.alive.values())
        free = KNOBS.max_concurrency - busy - len(self.mind.held)
        if wanted and self.mind.pace_s >= 0.02:
            assert wanted <= free
        assert wanted <= KNOBS.batch_size

    def check(self) -> None:
        assert len(self.mind.runners) <= KNOBS.max_concurrency
        leased = [task.token for task in self.mind.leases()]
        assert len(leased) == len(set(leased)), "a task stands in two places"
        assert set(self.mind.idle) == {
            r.id for r in self.mind.runners.values() if r.phase is Phase.IDLE
        }
        assert self.mind.starting == sum(
            r.phase is Phase.STARTING for r in self.mind.runners.values()
        )


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
        return on.Forked(self.runner, 1000 + self.runner)


class Ending(Act):
    def into(self, world: World) -> object:
        world.alive[self.runner] = "dead"
        return on.RunnerEnded(self.runner)


class Reaping(Act):
    def into(self, world: World) -> object:
        world.reaping.remove(self.runner)
        world.killed.discard(self.runner)
        world.tasks.pop(self.runner, None)
        del world.alive[self.runner]
        return on.Reaped(self.runner, 9)


class Dying(Act):
    def into(self, world: World) -> object:
        world.zygote_is_dead = True
        world.forks.clear()
        for runner, state in world.alive.items():
            if state not in ("dead", "dying"):
                world.alive[runner] = "dying"
                world.soon.append(Ending(runner))
        return on.ZygoteEnded("killed by signal 9")


VERDICTS = ("completed", "lost", "55P03", "22P02")


class Turning(Act):
    def __init__(self, got: int, verdict: str) -> None:
        self.got, self.verdict = got, verdict

    def into(self, world: World) -> object:
        call = world.calls["main"]
        assert isinstance(call, on.Turn)
        answers = [self.answer(world, report) for report in call.reports]
        tasks = []
        for _ in range(min(self.got, call.wanted)):
            world.tokens += 1
            step = "a" if world.tokens % 7 else "unknown"
            tasks.append(Task(f"run{world.tokens}", step, 0, world.tokens, 1, 3, 1.0, b"{}", b"1"))
            world.claimed[world.tokens] += 1
        assert set(call.about) <= {report.task.run_id for report in call.reports}
        ends = ("completed", "failed", "skipped", "started")
        news = [
            on.News(run, step, end) for run in call.about for step in ("a", None) for end in ends
        ]
        return on.Turned(tuple(answers), tuple(tasks), 0.5, tuple(news))

    def answer(self, world: World, report: Report) -> on.Answer:
        holder = [r for r, task in world.tasks.items() if task.token == report.task.token]
        assert not set(holder) & world.killed, "reported before it was reaped"
        if self.verdict == "completed":
            world.told[report.task.token] += 1
            return on.Answer("completed")
        if self.verdict == "lost":
            return on.Answer("lost", "PF001")
        return on.Answer("error", self.verdict, "no")


def happen(world: World, event: object, waits: bool = False) -> None:
    """Let an event happen, and what follows from it at once."""
    pending = [event]
    while pending:
        told = into_world(world, pending.pop(0))
        if told is not None:
            world.tell(told, waits)
        pending += world.soon
        world.soon = []


def into_world(world: World, event: object) -> object | None:
    """Change the world as the event does; None if it cannot happen any more."""
    if isinstance(event, Ending) and world.alive.get(event.runner) in (None, "dead"):
        return None
    if isinstance(event, on.Broken | on.Connected):
        return event if world.calls.pop(event.line, None) else None
    told = event.into(world) if isinstance(event, Act) else event
    if isinstance(told, on.Done) and world.alive.get(told.id) == "busy":
        world.alive[told.id] = "idle"
        del world.tasks[told.id]
    elif isinstance(told, on.Undelivered):
        world.alive[told.id] = "dying"
        del world.tasks[told.id]
        world.soon.append(Ending(told.id))
    elif isinstance(told, on.RunnerReady):
        world.alive[told.id] = "idle"
    elif isinstance(told, on.Turned | on.NextDue):
        del world.calls["main"]
    elif isinstance(told, on.Beaten | on.Fetched | on.SaidGoodbye):
        del world.calls["beats"]
    elif isinstance(told, on.Refused):
        world.forks.remove(told.id)
    return told


pauses = st.sampled_from([0.0, 0.001, 0.1, 0.6, 2.0])
steps = st.tuples(st.integers(0, 200), pauses, st.booleans())  # what, when, whether it waits


@settings(max_examples=1000, deadline=None)
@given(st.lists(steps, min_size=30, max_size=120), st.sampled_from([1.0, 0.001]))
def test_rules_36_to_41_hold_in_every_life(life: list[tuple[int, float, bool]], pace_s: float):
    world = World(pace_s)

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
    unfinished = {task.token for task in world.mind.leases()}
    assert set(world.claimed) == set(world.told) | world.dropped | unfinished
    assert not unfinished or world.zygote_is_dead or world.is_hurried
    assert not unfinished or world.left.code not in (0, 10), "it pretends to have ended as asked"


def finish(world: World) -> None:
    """Stop, and let everything end well, as it does within the limits."""
    if world.mailbox:
        world.deliver()
    world.is_hurried = world.mind.leave_at < world.now + 1
    if not world.left:
        happen(world, on.StopAsked())
    for _ in range(2000):
        if world.left:
            return
        event = next_good(world)
        if event is None:
            nap_s = world.mind.nap_s(world.now)
            assert nap_s is not None, "it waits for nothing"
            world.now += nap_s + 0.0001
            event = on.Tick()
        happen(world, event)


def next_good(world: World) -> object | None:
    call = world.calls.get("main")
    if isinstance(call, on.Turn):
        return Turning(0, "completed")
    if call is not None:
        return world.ends_of_main()[0]
    if "beats" in world.calls:
        return world.ends_of_beats()[0]
    if world.forks and not world.zygote_is_dead:
        return Forking(world.forks[0])
    if world.reaping:
        return Reaping(world.reaping[0])
    closed = [runner for runner, state in world.alive.items() if state == "closed"]
    if closed:
        return Ending(closed[0])
    waiting = [runner for runner, state in world.alive.items() if state == "starting"]
    return on.RunnerReady(waiting[0]) if waiting else None
