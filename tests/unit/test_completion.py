"""What a runner tells of a task that it has tried to complete with its handler's work."""

from __future__ import annotations

import pytest
from support.engine import task

from pgflowd.core import completion
from pgflowd.core.json import dumps
from pgflowd.core.worker.events import ReportAnswer, RunChange, Verdict
from pgflowd.core.worker.runner_result import fault_of, recorded_of, report_of
from pgflowd.host.channel import MAX_HEAD

ONLY_THESE_COMMIT = (Verdict.COMPLETED, Verdict.REPEATED)


@pytest.mark.parametrize("verdict", list(Verdict))
def test_only_a_completion_is_committed_and_all_else_is_for_the_worker(verdict):
    answer = ReportAnswer(verdict, "23505", "no")

    assert completion.is_recorded(answer) == (verdict in ONLY_THESE_COMMIT)
    if not completion.is_recorded(answer):
        head = completion.refused(answer)
        assert not head.get("recorded")
        assert (head["outcome"] == "completed") == (verdict is Verdict.FAILED)


@pytest.mark.parametrize(
    ("sqlstate", "retries"), [("54000", False), ("22P05", False), ("23505", True)]
)
def test_what_the_next_attempt_would_meet_too_is_final(sqlstate, retries):
    head = completion.refused(ReportAnswer(Verdict.ERROR, sqlstate, "too much"))

    report = report_of(task(1), head, b"")
    assert report.retry is retries
    assert f"too much ({sqlstate})" in str(report.error_message)


def test_a_locked_run_is_asked_for_again():
    assert completion.is_busy(ReportAnswer(Verdict.ERROR, "55P03"))
    assert not completion.is_busy(ReportAnswer(Verdict.ERROR, "53100"))


def test_a_recorded_head_has_room_for_any_number_of_changes():
    changes = [RunChange("r", "s" * 128, "skipped", 1.0, "\N{GRINNING FACE}" * 4000)] * 900
    changes.append(RunChange("r", None, "completed", 2.0))
    head = dict(
        completion.recorded(ReportAnswer(Verdict.COMPLETED, run_status="completed"), changes)
    )

    assert len(dumps(head).encode()) < MAX_HEAD
    assert fault_of(head, completion.body_of(head, b"1")) is None
    recorded = recorded_of(task(1), head)
    assert recorded is not None
    assert recorded.changes[-1].status == "completed"


@pytest.mark.parametrize(
    ("output", "body"), [(b"[1]", b"[1]"), (b'"' + b"x" * 9000 + b'"', b'"(9002 bytes)"')]
)
def test_of_a_recorded_output_the_worker_gets_what_its_log_can_show(output, body):
    head = completion.recorded(ReportAnswer(Verdict.COMPLETED), ())

    assert completion.body_of(head, output) == body
    assert completion.body_of(completion.AS_USUAL, output) == output
    assert completion.body_of(completion.given_back("deadlock"), output) == b""
