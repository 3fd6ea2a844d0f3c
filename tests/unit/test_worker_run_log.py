"""What is logged of runs and steps, how ended runs are counted, and what is read for that."""

from __future__ import annotations

import pytest
from support.engine import Play, task

from pgflowd.core import messages
from pgflowd.core.metrics.definitions import RUNS, TASKS
from pgflowd.core.statuses import Outcome, RunStatus, StepStatus
from pgflowd.core.waiting import Checkpoint, Wait, WaitKind, wait_for_newer_code
from pgflowd.core.worker import actions, events
from pgflowd.core.worker.actions import MAX_REMEMBERED
from pgflowd.core.worker.events import LeaseVerdict, RunCancelled, RunChange, Verdict
from pgflowd.core.worker.run_log import input_of, shown

A = frozenset({"a"})


def told(play: Play) -> list[tuple[str, str]]:
    """Level and event of each record about runs and steps."""
    said = [(each.level, each.event) for each in play.did(actions.WriteLog)]
    return [each for each in said if each[1].startswith(("run.", "step."))]


def test_changes_by_success_are_not_read():
    play = Play()
    play.busy(1)

    play.done(1)

    assert play.did(actions.ReportAndClaim)[0].changes_of == ()


def test_changes_by_a_failure_are_read_once_for_each_run():
    play = Play()
    play.busy(1, 2, 3)
    play.feed(messages.Wake("a"))  # whose claim keeps the connection busy
    play.failed(1)
    play.done(2)
    play.failed(3)

    play.answer()

    assert play.did(actions.ReportAndClaim)[0].changes_of == ("run1", "run3")


@pytest.mark.parametrize("options", [{"is_debug": True}, {"has_conditions": True}])
def test_at_debug_and_with_conditions_changes_of_every_run_are_read(options: dict[str, bool]):
    play = Play(**options)
    play.busy(1)

    play.done(1)

    assert play.did(actions.ReportAndClaim)[0].changes_of == ("run1",)


def test_a_failed_run_is_a_warning_and_success_is_for_debug_only():
    news = (
        RunChange("run1", "a", StepStatus.FAILED, 0.1, "no such page"),
        RunChange("run1", None, RunStatus.FAILED, 0.2, "no such page"),
        RunChange("run2", "a", StepStatus.COMPLETED, 0.1),
        RunChange("run2", "b", StepStatus.STARTED),
        RunChange("run3", "c", StepStatus.SKIPPED, None, "condition_unmet"),
    )
    quiet, all_of_it = Play(), Play(is_debug=True)

    quiet.answer(Verdict.COMPLETED, *news)
    all_of_it.answer(Verdict.COMPLETED, *news)

    loud = [("warning", "step.failed"), ("warning", "run.failed"), ("info", "step.skipped")]
    assert told(quiet) == loud
    soft = [("debug", "step.completed"), ("debug", "step.started")]
    assert told(all_of_it) == [*loud[:2], *soft, loud[2]]
    assert quiet.did(actions.WriteLog)[1].fields["error"] == "no such page"


def test_a_step_that_failed_while_its_run_lives_on_is_not_a_warning():
    play = Play()

    play.answer(Verdict.COMPLETED, RunChange("run1", "a", StepStatus.FAILED, 0.1, "no such page"))

    assert told(play) == [("info", "step.failed")]


def test_an_output_that_a_map_cannot_take_is_logged_though_no_changes_were_read():
    play = Play()
    play.busy(1)
    play.done(1)

    play.answer(Verdict.FAILED)

    said = {each.event: each for each in play.did(actions.WriteLog)}
    assert said["task.failed"].fields["code"] == "E416"
    assert told(play) == [("warning", "run.failed")]


def test_and_only_once_if_they_were_read():
    play = Play(is_debug=True)
    play.busy(1)
    play.done(1)

    play.answer(Verdict.FAILED, RunChange("run1", None, RunStatus.FAILED, 0.1, "no array"))

    assert told(play) == [("warning", "run.failed")]


def test_a_run_and_its_first_steps_have_started_when_their_first_task_is_claimed():
    play = Play(is_debug=True, roots=A)

    play.claim(1, 2)
    first = told(play)
    play.feed(events.ReportAndClaimDone((), (task(1), task(3, "b"))))

    assert first == [("debug", "run.started"), ("debug", "step.started")] * 2
    assert told(play) == []


def test_a_later_attempt_starts_no_run_and_is_called_a_retry():
    play = Play(is_debug=True, roots=A)

    play.feed(events.ReportAndClaimDone((), (task(1)._replace(attempt=2),)))
    play.ready()

    assert told(play) == []
    assert play.did(actions.WriteLog)[-1].event == "task.retried"


def test_a_cancelled_run_is_logged_once_with_the_person():
    play = Play()
    play.busy(1)
    cancelled = (
        RunCancelled("run1", "anna", "enough"),
        RunCancelled("run2", None, None),
    )

    play.renewed((1, LeaseVerdict.CANCEL), cancelled=cancelled)
    texts = [each.fields["error"] for each in play.did(actions.WriteLog)]
    play.renewed((1, LeaseVerdict.CANCEL), cancelled=cancelled)

    assert texts == ["cancelled by anna: enough", "cancelled by an unknown user"]
    assert told(play) == []


def test_what_was_logged_is_not_remembered_for_ever():
    play = Play(is_debug=True, roots=A)

    for token in range(MAX_REMEMBERED):
        play.feed(events.ReportAndClaimDone((), (task(token),)))

    assert play.remembered() == MAX_REMEMBERED


def test_a_run_is_counted_once_when_a_report_has_ended_it():
    play = Play()
    play.busy(1, 2)
    play.feed(messages.Wake("a"))
    play.done(1)
    play.done(2)
    play.claim()  # from here on both reports are under way
    same_run = events.ReportAnswer(Verdict.COMPLETED, run_status=RunStatus.COMPLETED)

    play.feed(events.ReportAndClaimDone((same_run, same_run), ()))

    assert play.counted(RUNS) == [("completed", 2)]


def test_a_report_that_ends_no_run_counts_none():
    play = Play()
    play.busy(1)
    play.done(1)

    play.answer()

    assert play.counted(RUNS) == []


def test_failed_and_cancelled_runs_are_counted_as_well():
    play = Play(max_concurrency=1)
    play.busy(1)
    play.done(1)

    play.answer(Verdict.FAILED, run_status=RunStatus.FAILED)
    failed = play.counted(RUNS)
    play.renewed(cancelled=(RunCancelled("run3", "anna", None),))

    assert failed == [("failed", 1)]
    assert play.counted(RUNS) == [("cancelled", 1)]


def test_the_input_is_what_the_handler_gets():
    first = task(1)._replace(input=b"{}", flow_input=b'{"to": 1}')
    later = task(1)._replace(input=b'{"a": [1]}', flow_input=None)
    element = task(1)._replace(input=b'"x"', flow_input=None)

    assert input_of(first) == {"run": {"to": 1}}
    assert input_of(later) == {"a": [1]}
    assert input_of(element) == "x"


@pytest.mark.parametrize("body", [b'"' + b"x" * 5000 + b'"', b"\xff", b"[" * 4000])
def test_what_is_large_or_not_json_is_logged_by_its_size(body: bytes):
    assert shown(body) == f"({len(body)} bytes)"


@pytest.mark.parametrize("wanted", [True, False])
def test_payloads_are_in_the_records_of_tasks_if_they_are_wanted(wanted: bool):
    play = Play(is_debug=True, may_log_payloads=wanted)
    play.busy(1)
    started = play.did(actions.WriteLog)[-1]
    play.done(1)
    play.answer()
    completed = next(each for each in play.did(actions.WriteLog) if each.event == "task.completed")

    assert ("input" in started.fields, "input" in completed.fields) == (wanted, wanted)
    assert completed.fields.get("output") == (1 if wanted else None)


SLEEP = Wait(WaitKind.SLEEP, checkpoint="sleep 1", in_s=60.0)
NEWER = wait_for_newer_code(Checkpoint("page", 2, 7), 1)


@pytest.mark.parametrize(
    ("is_debug", "wait", "said"),
    [
        (False, SLEEP, []),
        (True, SLEEP, [("debug", "task.suspended", "sleep 1", None)]),
        (False, NEWER, [("info", "task.suspended", None, NEWER.why)]),
    ],
)
def test_a_suspension_is_for_debug_only_unless_newer_code_must_go_on(is_debug, wait, said):
    play = Play(is_debug=is_debug)
    play.busy(1)

    play.suspended(1, wait)
    play.answer(Verdict.QUEUED)

    records = [each for each in play.did(actions.WriteLog) if each.event.startswith("task.")]
    of_wait = [(each.fields["wait"], each.fields["error"]) for each in records]
    told = [(each.level, each.event, *wait) for each, wait in zip(records, of_wait, strict=True)]
    assert told == said


def test_a_suspended_attempt_is_counted_and_is_neither_a_change_of_its_run_nor_a_time():
    play = Play()
    play.busy(1)

    play.suspended(1, SLEEP)

    assert not play.did(actions.Observe)
    assert play.did(actions.ReportAndClaim)[0].changes_of == ()
    play.answer(Verdict.QUEUED)
    assert play.counted(TASKS) == [("a", Outcome.SUSPENDED, 1)]
