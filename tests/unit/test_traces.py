"""Which trace a run belongs to, and how its spans are named: the same in every process."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from support.engine import task

from pgflowd.core.statuses import Outcome, RunStatus, StepStatus
from pgflowd.core.traces import (
    SpanName,
    Trace,
    attempt_span,
    is_in_ratio,
    read_traceparent,
    run_span,
    step_span,
    trace_of,
    write_traceparent,
)
from pgflowd.core.worker import spans
from pgflowd.core.worker.events import RunChange, Verdict
from pgflowd.core.worker.task import TaskReport

RUN, TRACE, SPAN = "019bc0de-4a51-7c02-9f6e-12ab7f3a9c12", "ab" * 16, "cd" * 8
OWN = RUN.replace("-", "")
CALLER = f"00-{TRACE}-{SPAN}-01"


def test_ids_are_the_same_for_whoever_makes_them() -> None:
    names = {run_span(RUN), step_span(RUN, "a"), attempt_span(RUN, "a", 0, 7)}
    assert len(names) == 3 and all(int(each, 16) for each in names)
    assert attempt_span(RUN, "a", 0, 7) != attempt_span(RUN, "a", 0, 8)


@pytest.mark.parametrize(
    ("told", "ratio", "expected"),
    [
        (None, 1.0, Trace(OWN, True)),
        (None, 0.0, Trace(OWN, False)),
        ({"previous": "stalled"}, 1.0, Trace(OWN, True, previous="stalled")),
        ({"traceparent": CALLER, "tracestate": "a=1"}, 0.0, Trace(TRACE, True, SPAN, "a=1")),
        ({"traceparent": f"{CALLER[:-1]}0"}, 1.0, Trace(TRACE, False, SPAN)),
        ({"traceparent": CALLER, "is_later": True}, 0.0,
         Trace(OWN, True, link=SpanName(TRACE, SPAN))),
        ({"undo_of": RUN, "is_later": True}, 1.0,
         Trace(OWN, True, link=SpanName(OWN, run_span(RUN)))),
        ({"undo_of": RUN, "traceparent": CALLER, "is_later": True}, 0.0,
         Trace(OWN, True, link=SpanName(TRACE, run_span(RUN)))),
        ({"traceparent": "00-0-0-01"}, 1.0, Trace(OWN, True)),
    ],
)  # fmt: skip
def test_a_run_belongs_to_its_caller_if_it_began_with_its_start(told, ratio, expected) -> None:
    assert trace_of(RUN, told, ratio) == expected


@pytest.mark.parametrize(
    "text", ["", None, 7, CALLER.upper(), f"{CALLER}-x", f"00-{'0' * 32}-{SPAN}-01", CALLER + "\n"]
)
def test_what_is_no_traceparent_is_none(text) -> None:
    assert read_traceparent(text) is None


def test_a_traceparent_is_read_as_it_is_written() -> None:
    for is_sampled in (True, False):
        text = write_traceparent(TRACE, SPAN, is_sampled)
        assert read_traceparent(text) == (SpanName(TRACE, SPAN), is_sampled)


def test_the_ratio_counts_the_low_bytes_of_the_id() -> None:
    ids = [f"{'f' * 18}{nr:02x}{'0' * 12}" for nr in range(256)]
    assert [sum(is_in_ratio(each, share) for each in ids) for share in (0, 0.25, 1)] == [0, 64, 256]


def test_of_a_map_that_completes_only_some_attempts_have_spans() -> None:
    trace = Trace(TRACE, True)
    reports = [
        TaskReport(task(nr)._replace(task_index=nr, trace=trace), Outcome.COMPLETED, began_at=1.0)
        for nr in range(5)
    ]
    answered = [(each, Verdict.COMPLETED) for each in reports]
    answered[4] = (replace(reports[4], outcome=Outcome.FAILED), Verdict.QUEUED)
    unsampled = TaskReport(task(9)._replace(trace=Trace(TRACE, False)), Outcome.COMPLETED)

    found = spans.ended_attempts([*answered, (unsampled, Verdict.COMPLETED)], map_spans=2)

    assert [each.report.task.task_index for each in found] == [0, 1, 4]
    told = [spans.traceparent_of(each.task, 2) for each in (*reports[1:3], unsampled)]
    assert [str(each)[-2:] for each in told] == ["01", "00", "00"], "no orphans of handlers"
    assert spans.traceparent_of(task(1), 2) is None


def test_documents_name_their_parents_and_tell_no_secrets() -> None:
    own = task(7)._replace(run_id=RUN, trace=Trace(TRACE, True, SPAN, "a=1", previous="failed"))
    report = TaskReport(own, Outcome.FAILED, b'"output"', "it was hunter2", "ValueError", pid=5)
    report.began_at, report.ended_at = 10.0, 12.5

    def hide(text: str) -> str:
        return text.replace("hunter2", "***")

    attempt = spans.attempt_document(
        spans.EndedAttempt(report, Verdict.QUEUED), "mail", 1000.0, hide
    )
    changes = [
        RunChange(RUN, own.step, StepStatus.SKIPPED, None, "hunter2", 1013.0),
        RunChange(RUN, None, RunStatus.FAILED, 4.0, "hunter2", 1013.0),
        RunChange(RUN, "next", StepStatus.STARTED),
        RunChange("another", None, RunStatus.COMPLETED, 4.0, None, 1013.0),
    ]
    step, run = (
        spans.part_document(each, "mail", 1000.0, {own.step: ["before"]}, hide)
        for each in spans.ended_parts([report], changes)
    )

    assert [attempt["parent"], step["parent"], run["parent"]] == [step["id"], run["id"], SPAN]
    assert (attempt["start"], attempt["end"]) == (1010 * 10**9, 1012_500_000_000)
    assert (run["start"], step["start"]) == (1009 * 10**9, 1013 * 10**9)
    assert (run["end"], step["end"]) == (1013 * 10**9, 1013 * 10**9)
    early = replace(changes[0], ended_at=1011.0)  # by a transaction of the handler's
    [part] = spans.ended_parts([report], [early])
    early_step = spans.part_document(part, "mail", 1000.0, {}, hide)
    assert (early_step["start"], early_step["end"]) == (1011 * 10**9, attempt["end"])
    assert step["links"] == [(TRACE, step_span(RUN, "before"))]
    assert attempt["attributes"]["pgflow.previous"] == "failed"
    assert (attempt["error"], step["error"], run["error"]) == ("it was ***", None, "***")
    text = json.dumps([attempt, step, run])
    assert "hunter2" not in text and "output" not in text
