"""What a worker does when a runner has completed its task by itself, or may have."""

from __future__ import annotations

from support.engine import Play

from pgflowd.core.metrics.definitions import RUNS, TASKS, WAKES
from pgflowd.core.statuses import Outcome, RunStatus
from pgflowd.core.worker import actions, events
from pgflowd.core.worker.events import NOTHING_LEFT, LeaseVerdict, LeftBehind, RunChange, Verdict
from pgflowd.core.worker.state import RunnerPhase
from pgflowd.core.worker.task import TaskReport


def recorded(
    play: Play,
    token: int,
    run_status: RunStatus | None = None,
    changes: tuple[RunChange, ...] = (),
    left: LeftBehind = NOTHING_LEFT,
) -> list[actions.WorkerAction]:
    """Let the runner of a task commit its completion, and say so."""
    runner, given = play.runner_of(token)
    report = TaskReport(given, Outcome.COMPLETED, b"1")
    made = events.Recorded(events.ReportAnswer(Verdict.COMPLETED, run_status=run_status), changes)
    play.feed(events.Committing(runner, token))
    return play.feed(events.Done(runner, report, left, recorded=made))


def ended(play: Play, token: int, status: int = 9) -> None:
    runner, _ = play.runner_of(token)
    play.feed(events.RunnerEnded(runner))
    play.feed(events.Reaped(runner, status))


def warned(play: Play) -> list[str]:
    return [each.fields["code"] for each in play.did(actions.WriteLog) if each.level == "warning"]


def test_it_is_counted_and_logged_as_any_and_not_reported():
    play = Play(is_debug=True)
    play.busy(1)
    change = RunChange("run1", None, RunStatus.COMPLETED, 0.5)

    recorded(play, 1, RunStatus.COMPLETED, (change,))

    assert play.counted(TASKS) == [("a", "completed", 1)]
    assert play.counted(RUNS) == [("completed", 1)]
    assert len(play.did(actions.Observe)) == 1
    said = [each.event for each in play.did(actions.WriteLog)]
    assert ("task.completed" in said) and ("run.completed" in said)
    assert play.waiting_reports() == [] and play.leases() == []
    assert play.phases() == [RunnerPhase.IDLE]


def test_the_next_task_is_claimed_at_once_as_after_a_report():
    play = Play()
    play.busy(1)
    play.claim()  # the queue is empty
    play.feed(events.NextDueRead(None))

    recorded(play, 1)
    [turn] = play.did(actions.ReportAndClaim)
    play.claim(2)

    assert (turn.reports, turn.claim) == ((), 4)
    assert play.counted(WAKES) == [("completion", 1)]


def test_it_counts_although_its_time_was_up_and_the_runner_that_got_sigterm_ends():
    play = Play()
    play.busy(1, timeout_s=1.0)
    play.feed(events.Tick(), after_s=1.0)
    runner, _ = play.runner_of(1)
    play.feed(events.NoResultYet(runner, 1))

    recorded(play, 1)

    assert play.counted(TASKS) == [("a", "completed", 1)]
    assert play.did(actions.KillRunner) and play.phases() == [RunnerPhase.KILLED]
    play.feed(events.RunnerEnded(runner))
    play.feed(events.Reaped(runner, 9))
    assert play.waiting_reports() == [] and not play.sending()


def test_it_counts_although_a_renewal_found_its_lease_closed():
    play = Play()
    play.busy(1)
    play.renewed((1, LeaseVerdict.LOST))

    recorded(play, 1)

    assert play.counted(TASKS) == [("a", "completed", 1)]
    assert warned(play) == []


def test_children_that_it_left_end_with_the_runner_and_nothing_is_reported_then():
    play = Play()
    play.busy(1)

    recorded(play, 1, left=LeftBehind(("sleep",)))
    assert play.did(actions.KillRunner) and play.counted(TASKS) == [("a", "completed", 1)]
    play.claim()
    play.feed(events.RunnerEnded(1))
    play.feed(events.Reaped(1, 9))

    assert play.waiting_reports() == [] and not play.sending()


def test_the_report_of_a_runner_that_died_in_its_commit_may_find_the_task_completed():
    play = Play(is_debug=True)
    play.busy(1)
    play.feed(events.Committing(1, 1))

    ended(play, 1)
    [report] = play.sending()
    play.answer(Verdict.LOST)

    assert report.outcome == "crashed"
    [record] = [each for each in play.did(actions.WriteLog) if each.event == "task.crashed"]
    assert record.level == "debug" and warned(play) == []


def test_without_a_commit_a_lost_lease_is_a_warning():
    play = Play()
    play.busy(1)

    ended(play, 1)
    play.answer(Verdict.LOST)

    assert warned(play) == ["E407"]


def test_a_commit_without_an_answer_is_reported_as_a_failure_that_may_find_it_completed():
    play = Play()
    play.busy(1)
    play.feed(events.Committing(1, 1))

    play.failed(1)
    play.answer(Verdict.LOST)

    assert warned(play) == []
