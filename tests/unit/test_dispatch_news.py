"""What a worker tells of runs and steps, and what it asks for that; nothing where nobody reads."""

from __future__ import annotations

import pytest
from test_dispatch import Play, task

from pgflowd.core.worker import actions, events
from pgflowd.core.worker.run_log import MOST_ASKED, MOST_TOLD
from pgflowd.core.worker.state import TaskReport

A = frozenset({"a"})


def told(play: Play) -> list[tuple[str, str]]:
    """Level and event of each record about runs and steps."""
    said = [(each.level, each.event) for each in play.did(actions.WriteLog)]
    return [each for each in said if each[1].startswith(("run.", "step."))]


def failed(play: Play, token: int) -> list[object]:
    runner = next(r for r in play.state.runners.values() if r.task and r.task.token == token)
    fields = {"error_message": "no such page"}
    return play.tell(events.Done(runner.id, TaskReport(runner.task, "failed", None, fields)))


def turned(play: Play, *news: events.RunChange, verdict: str = "completed") -> None:
    answers = tuple(events.ReportAnswer(verdict) for _ in play.state.sending)
    play.tell(events.ReportAndClaimDone(answers, (), 0.5, news))


def test_success_is_not_asked_about():
    play = Play()
    play.busy(1)

    play.done(1)

    assert play.did(actions.ReportAndClaim)[0].about == ()


def test_what_went_wrong_is_asked_about_once_for_each_run():
    play = Play()
    play.busy(1, 2, 3)
    play.state.main = on_hold = play.state.main.__class__(play.state.main.state.BUSY)
    failed(play, 1)
    play.done(2)
    play.state.main = on_hold.__class__()

    failed(play, 3)

    assert play.did(actions.ReportAndClaim)[0].about == ("run1", "run3")


@pytest.mark.parametrize("options", [{"tells_all": True}, {"has_conditions": True}])
def test_at_debug_and_with_conditions_every_run_is_asked_about(options: dict[str, bool]):
    play = Play(**options)
    play.busy(1)

    play.done(1)

    assert play.did(actions.ReportAndClaim)[0].about == ("run1",)


def test_a_failed_run_is_a_warning_and_success_is_for_debug_only():
    news = (
        events.RunChange("run1", "a", "failed", 0.1, "no such page"),
        events.RunChange("run1", None, "failed", 0.2, "no such page"),
        events.RunChange("run2", "a", "completed", 0.1),
        events.RunChange("run2", "b", "started"),
        events.RunChange("run3", "c", "skipped", None, "condition_unmet"),
    )
    quiet, all_of_it = Play(), Play(tells_all=True)

    turned(quiet, *news)
    turned(all_of_it, *news)

    loud = [("warning", "step.failed"), ("warning", "run.failed"), ("info", "step.skipped")]
    assert told(quiet) == loud
    soft = [("debug", "step.completed"), ("debug", "step.started")]
    assert told(all_of_it) == [*loud[:2], *soft, loud[2]]
    assert quiet.did(actions.WriteLog)[1].fields["error"] == "no such page"


def test_a_step_that_failed_while_its_run_lives_on_is_no_warning():
    play = Play()

    turned(play, events.RunChange("run1", "a", "failed", 0.1, "no such page"))

    assert told(play) == [("info", "step.failed")]


def test_an_output_that_a_map_cannot_take_is_told_though_nobody_asked():
    play = Play()
    play.busy(1)
    play.done(1)

    turned(play, verdict="failed")

    said = {each.event: each for each in play.did(actions.WriteLog)}
    assert said["task.failed"].fields["code"] == "E416"
    assert told(play) == [("warning", "run.failed")]


def test_and_only_once_if_somebody_asked():
    play = Play(tells_all=True)
    play.busy(1)
    play.done(1)

    turned(play, events.RunChange("run1", None, "failed", 0.1, "no array"), verdict="failed")

    assert told(play) == [("warning", "run.failed")]


def test_a_run_and_its_first_steps_have_started_when_their_first_task_is_claimed():
    play = Play(tells_all=True, roots=A)

    play.claim(1, 2)
    first = told(play)
    play.tell(events.ReportAndClaimDone((), (task(1), task(3, "b"))))

    assert first == [("debug", "run.started"), ("debug", "step.started")] * 2
    assert told(play) == []


def test_a_later_attempt_starts_no_run_and_is_called_a_retry():
    play = Play(tells_all=True, roots=A)

    play.tell(events.ReportAndClaimDone((), (task(1)._replace(attempt=2),)))
    play.ready()

    assert told(play) == []
    assert play.did(actions.WriteLog)[-1].event == "task.retried"


def test_a_cancelled_run_is_told_once_and_by_whom():
    play = Play()
    play.busy(1)
    cancelled = (
        events.RunCancelled("run1", "anna", "enough"),
        events.RunCancelled("run2", None, None),
    )

    play.tell(events.LeasesRenewed(((1, "cancel"),), cancelled=cancelled))
    texts = [each.fields["error"] for each in play.did(actions.WriteLog)]
    play.tell(events.LeasesRenewed(((1, "cancel"),), cancelled=cancelled))

    assert texts == ["cancelled by anna: enough", "cancelled by somebody"]
    assert told(play) == []


def test_what_was_told_is_not_remembered_for_ever():
    play = Play(tells_all=True, roots=A)

    for token in range(MOST_TOLD):
        play.tell(events.ReportAndClaimDone((), (task(token),)))

    assert len(play.state.told) == MOST_TOLD


def counted(play: Play) -> list[tuple[str, int]]:
    return [(each.status, each.count) for each in play.did(actions.CountRunsEnded)]


def test_the_run_of_a_job_is_counted_with_its_task():
    play = Play(ends=A, is_job=True)
    play.busy(1)
    play.done(1)

    turned(play)

    assert counted(play) == [("completed", 1)]
    assert play.state.perhaps_ended == ()


def test_a_run_that_may_be_over_is_asked_about_by_the_next_beat_and_again_if_that_failed():
    play = Play(ends=A, heartbeat_interval_s=5.0)
    play.busy(1, 2)
    play.done(1)
    turned(play)
    assert counted(play) == []

    first = play.tell(events.Tick(), after_s=5.0)
    play.tell(events.ConnectionLost("leases", "again", "gone"))
    play.tell(events.Tick(), after_s=1.0)
    play.tell(events.Connected("leases"))
    play.tell(events.Tick(), after_s=15.0)

    assert first == [actions.RenewLeases((2,), ("run1",))]
    assert play.did(actions.RenewLeases) == [actions.RenewLeases((2,), ("run1",))]
    play.tell(events.LeasesRenewed(((2, "ok"),), completed=1))
    assert counted(play) == [("completed", 1)]
    assert play.state.counting == ()


def test_only_so_many_runs_wait_to_be_counted():
    play = Play(ends=A)
    play.busy(1)
    waiting = tuple(f"run of earlier {number}" for number in range(MOST_ASKED - 1))

    play.state.perhaps_ended = waiting
    play.done(1)
    turned(play)
    assert play.state.perhaps_ended == (*waiting, "run1")
    play.busy(2)
    play.done(2)
    turned(play)

    assert play.state.perhaps_ended == (*waiting, "run1")


def test_what_news_tell_is_not_asked_about_again():
    play = Play(ends=A, tells_all=True)
    play.busy(1)
    play.done(1)

    turned(play, events.RunChange("run1", None, "completed", 0.1))

    assert counted(play) == [("completed", 1)]
    assert play.state.perhaps_ended == ()


def test_failed_and_cancelled_runs_are_counted_as_they_are_told():
    play = Play(ends=A)
    play.busy(1)
    play.done(1)

    turned(play, events.RunChange("run2", None, "failed", 0.1, "no"), verdict="failed")
    failed = counted(play)
    play.tell(events.LeasesRenewed((), cancelled=(events.RunCancelled("run3", "anna", None),)))

    assert failed == [("failed", 1), ("failed", 1)]
    assert counted(play) == [("cancelled", 1)]
