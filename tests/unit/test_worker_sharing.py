"""Tasks that share a runner: who does, what ends one of them, and which of them is to blame."""

from __future__ import annotations

import pytest
from support.covers import covers
from support.engine import SECOND, Play

from pgflowd.core import messages
from pgflowd.core.statuses import Outcome
from pgflowd.core.worker import actions, events, sharing
from pgflowd.core.worker.state import RunnerPhase
from pgflowd.core.worker.task import TaskReport

STACK = 'Current task (most recent call first):\n  File "flows/a.py", line 7 in a\n'


def shared(**options: object) -> Play:
    """A worker of which up to four tasks share a runner."""
    defaults = {"max_concurrency": 8, "tasks_per_runner": 4, "shared_steps": frozenset({"a"})}
    return Play(**{**defaults, **options})


def runners_of(play: Play, *tokens: int) -> list[int]:
    return [play.runner_of(token)[0] for token in tokens]


def end(play: Play, runner: int, executing: int = 0, *asked: int) -> None:
    """Let a runner end; `asked`: the tasks that know that they must end."""
    stacks = dict.fromkeys(asked, STACK)
    play.feed(events.RunnerEnded(runner))
    play.feed(events.Reaped(runner, 9, 0.5, 4096, "", executing, stacks))


def reported(play: Play) -> dict[int, Outcome]:
    return {each.task.token: each.outcome for each in reports(play)}


def reports(play: Play) -> list[TaskReport]:
    return [*play.sending(), *play.waiting_reports()]


@covers("rule 58")
def test_the_fewest_runners_that_hold_the_tasks_are_started():
    play = shared()

    play.claim(1, 2, 3, 4, 5, 6)

    assert len(play.did(actions.ForkRunner)) == 2
    play.ready()
    assert runners_of(play, 1, 2, 3, 4, 5, 6) == [1, 1, 1, 1, 2, 2]
    play.feed(messages.Wake("a"))
    assert play.claiming() == 2


@covers("rule 58")
def test_no_more_tasks_run_than_max_concurrency_though_a_runner_has_room():
    play = shared(max_concurrency=3)

    play.busy(1, 2, 3)

    play.feed(messages.Wake("a"))
    assert play.claiming() == 0
    play.done(1)
    assert play.claiming() == 1


@covers("rule 58")
def test_a_sync_task_has_a_runner_of_its_own():
    play = shared(shared_steps=frozenset({"b"}))  # the tasks are of step a

    play.busy(1, 2)

    assert runners_of(play, 1, 2) == [1, 2]


@covers("rule 59")
def test_a_task_at_its_deadline_is_cancelled_and_the_others_go_on():
    play = shared()
    play.busy(1, timeout_s=5.0)
    play.feed(messages.Wake("a"))
    play.claim(2, 3)

    play.feed(events.Tick(), after_s=5.0)
    assert play.did(actions.ReadResult)[0].token == 1
    assert play.feed(events.NoResultYet(1, 1)) == [actions.CancelTask(1, 1)]
    runner, task = play.runner_of(1)
    done = play.failed(1)

    assert reported(play) == {1: Outcome.TIMED_OUT}
    assert not [each for each in done if isinstance(each, actions.KillRunner)]
    assert runners_of(play, 2, 3) == [1, 1] and (runner, task.token) == (1, 1)


@covers("rule 59")
def test_one_that_does_not_end_within_kill_grace_is_killed_and_the_others_are_given_back():
    play = shared()
    play.busy(1, timeout_s=5.0)
    play.feed(messages.Wake("a"))
    play.claim(2, 3)
    play.feed(events.Tick(), after_s=5.0)
    play.feed(events.NoResultYet(1, 1))
    play.feed(events.Ponged(1))

    play.feed(events.Tick(), after_s=2.0)
    assert actions.ReadResult(1, 1) in play.actions
    play.feed(events.NoResultYet(1, 1))
    assert play.did(actions.TerminateRunner)
    play.feed(events.Tick(), after_s=sharing.STACK_S)
    assert play.did(actions.KillRunner)
    assert reported(play) == {}
    end(play, 1, 0, 1)

    released, timed_out = Outcome.RELEASED, Outcome.TIMED_OUT
    assert reported(play) == {1: timed_out, 2: released, 3: released}


@covers("rule 59")
def test_a_loop_that_answers_pings_lives_and_one_that_does_not_is_killed():
    play = shared(kill_grace_s=2.0)
    play.busy(1, 2, 3, timeout_s=100.0)
    for _ in range(3):
        play.feed(events.Tick(), after_s=0.5)
        assert play.did(actions.PingRunner)
        play.feed(events.Ponged(1))
    play.feed(events.Tick(), after_s=0.5)
    assert play.did(actions.PingRunner)

    play.feed(events.Tick(), after_s=2.0)
    assert [each.token for each in play.did(actions.ReadResult)] == [events.PING]
    play.feed(events.NoResultYet(1, events.PING))
    assert play.did(actions.TerminateRunner)
    play.feed(events.Tick(), after_s=sharing.STACK_S)
    end(play, 1, 2)

    released = Outcome.RELEASED
    assert reported(play) == {1: released, 2: Outcome.TIMED_OUT, 3: released}


@covers("rule 59")
def test_an_answer_that_lies_in_the_socket_counts():
    play = shared(kill_grace_s=2.0)
    play.busy(1, 2, timeout_s=100.0)
    play.feed(events.Tick(), after_s=0.5)
    play.feed(events.Tick(), after_s=2.0)

    play.feed(events.Ponged(1), events.NoResultYet(1, events.PING))

    assert play.phases() == [RunnerPhase.BUSY]


@covers("rule 59")
def test_an_idle_runner_gets_no_pings():
    play = shared()
    play.busy(1)
    play.feed(events.Tick(), after_s=0.5)
    play.done(1)

    play.feed(events.Tick(), after_s=30.0)

    assert play.phases() == [RunnerPhase.IDLE] and not play.did(actions.PingRunner)


@covers("rule 59", "rule 38")
@pytest.mark.parametrize("executing", [0, 2])
def test_of_a_crash_only_the_task_that_was_executed_is_to_blame(executing):
    play = shared()
    play.busy(1, 2, 3)

    end(play, 1, executing)

    crashed = {2: Outcome.CRASHED} if executing else {}
    assert reported(play) == {**dict.fromkeys((1, 2, 3), Outcome.RELEASED), **crashed}


@covers("rule 59")
def test_a_task_that_is_alone_in_its_runner_is_to_blame_for_its_end():
    play = shared()
    play.busy(1)

    end(play, 1)

    assert reported(play) == {1: Outcome.CRASHED}


@covers("rule 59")
def test_a_task_whose_time_passed_while_another_blocked_the_loop_is_given_back():
    play = shared(kill_grace_s=2.0)
    play.busy(1, timeout_s=1.0)
    play.feed(messages.Wake("a"))
    play.claim(2)
    play.feed(events.Tick(), after_s=1.0)
    play.feed(events.NoResultYet(1, 1))
    play.feed(events.Tick(), after_s=2.0)
    play.feed(events.NoResultYet(1, 1))
    play.feed(events.Tick(), after_s=sharing.STACK_S)

    end(play, 1, 2)  # task 1 never learned that it must end

    assert reported(play) == {1: Outcome.RELEASED, 2: Outcome.TIMED_OUT}


@covers("rule 59")
def test_a_task_that_was_disturbed_three_times_in_a_row_has_a_runner_of_its_own():
    play = shared()
    for _ in range(sharing.MAX_DISTURBED):
        play.busy(1, 2)
        (runner,) = set(runners_of(play, 1, 2))
        end(play, runner)
        play.answer(events.Verdict.QUEUED)
        play.feed(messages.Wake("a"))

    play.busy(1, 2, 3)

    first, second, third = runners_of(play, 1, 2, 3)
    assert len({first, second, third}) == 3
    play.done(1)
    play.feed(messages.Wake("a"))
    play.claim(1)
    assert runners_of(play, 1) == [third]  # it has ended by itself, and may share again


def test_a_runner_that_left_something_gets_no_more_tasks_and_ends_when_it_is_empty():
    play = shared()
    play.busy(1, 2)
    runner, _ = play.runner_of(1)
    play.done(1)
    play.feed(messages.Wake("a"))
    play.claim(3)
    _, given = play.runner_of(3)

    left = events.LeftBehind(reset=("threads",), tasks=("a#0 of run run3",))
    done = TaskReport(given, Outcome.COMPLETED, b"1")
    play.feed(events.Done(runner, done, left))
    assert not play.did(actions.CloseRunner)
    play.feed(messages.Wake("a"))
    play.claim(4)
    assert runners_of(play, 4) != [runner]
    play.done(2)

    assert [each.id for each in play.did(actions.CloseRunner)] == [runner]


def test_a_stop_cancels_each_task_and_gives_it_back():
    play = shared()
    play.busy(1, 2)

    play.feed(messages.QuickStop())
    assert [each.token for each in play.did(actions.ReadResult)] == [1, 2]
    play.feed(events.NoResultYet(1, 1), events.NoResultYet(1, 2))
    assert [each.token for each in play.did(actions.CancelTask)] == [1, 2]
    play.failed(1)
    play.failed(2)

    assert reported(play) == {1: Outcome.RELEASED, 2: Outcome.RELEASED}


@pytest.mark.parametrize(("verdict", "outcome"), [
    (events.LeaseVerdict.CANCEL, Outcome.COMPLETED), (None, Outcome.TIMED_OUT),
])  # fmt: skip
def test_what_a_task_returns_though_it_was_cancelled_is_kept(verdict, outcome):
    play = shared()
    play.busy(1, timeout_s=5.0)
    play.feed(messages.Wake("a"))
    play.claim(2)
    play.feed(*[events.LeasesRenewed(SECOND, ((1, verdict),))] if verdict else [events.Tick()],
              after_s=0.0 if verdict else 5.0)  # fmt: skip
    play.feed(events.NoResultYet(1, 1))
    assert play.did(actions.CancelTask)

    play.done(1, output=b'"charged"')

    assert not play.did(actions.KillRunner)
    assert reported(play) == {1: outcome} and runners_of(play, 2) == [1]
    assert [each.output for each in reports(play)] == [b'"charged"']


def test_results_that_come_as_a_shared_runner_is_ended_are_kept():
    play = shared()
    play.busy(1, timeout_s=5.0)
    play.feed(messages.Wake("a"))
    play.claim(2, 3)
    play.feed(events.Tick(), after_s=5.0)
    play.feed(events.NoResultYet(1, 1))
    play.feed(events.Ponged(1))
    play.feed(events.Tick(), after_s=2.0)
    play.feed(events.NoResultYet(1, 1))
    assert play.did(actions.TerminateRunner)

    play.done(2, output=b"2")
    play.feed(events.Tick(), after_s=sharing.STACK_S)
    play.done(1, output=b"1")
    end(play, 1, 0, 1)

    released, timed_out = Outcome.RELEASED, Outcome.TIMED_OUT
    assert reported(play) == {1: timed_out, 2: released, 3: released}
    outputs = {each.task.token: each.output for each in reports(play)}
    assert outputs == {1: b"1", 2: b"2", 3: None}
