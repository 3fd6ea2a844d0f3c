"""Which trace a run belongs to, and how its spans are named: the same in every process."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans, Span
from support.engine import task

from pgflowd.core.statuses import Outcome, RunStatus, StepStatus
from pgflowd.core.traces import (
    SpanName,
    Trace,
    attempt_span,
    encode_portion,
    is_in_ratio,
    read_traceparent,
    run_span,
    step_span,
    trace_of,
    write_traceparent,
)
from pgflowd.core.worker import spans
from pgflowd.core.worker.actions import SendSpans
from pgflowd.core.worker.events import EndedParts, ReportAnswer, RunChange, Verdict
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
        (None, 1.0, Trace(None, True)),
        (None, 0.0, Trace(None, False)),
        ({"previous": "stalled"}, 1.0, Trace(None, True, previous="stalled")),
        ({"traceparent": CALLER, "tracestate": "a=1"}, 0.0, Trace(TRACE, True, SPAN, "a=1")),
        ({"traceparent": f"{CALLER[:-1]}0"}, 1.0, Trace(TRACE, False, SPAN)),
        ({"traceparent": CALLER, "is_later": True}, 0.0,
         Trace(None, True, link=SpanName(TRACE, SPAN))),
        ({"undo_of": RUN, "is_later": True}, 1.0,
         Trace(None, True, link=SpanName(OWN, run_span(RUN)))),
        ({"undo_of": RUN, "traceparent": CALLER, "is_later": True}, 0.0,
         Trace(None, True, link=SpanName(TRACE, run_span(RUN)))),
        ({"traceparent": "00-0-0-01"}, 1.0, Trace(None, True)),
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
    times = {"began_at": 1.0, "ended_at": 2.0}
    most = spans.MAP_SPANS
    reports = [
        TaskReport(task(nr)._replace(task_index=index, trace=trace), Outcome.COMPLETED, **times)
        for nr, index in enumerate((0, most - 1, most, most + 1, most + 2))
    ]
    reports[4] = replace(reports[4], outcome=Outcome.FAILED)
    unsampled = TaskReport(task(9)._replace(trace=Trace(TRACE, False)), Outcome.COMPLETED)
    verdicts = [Verdict.COMPLETED] * 4 + [Verdict.QUEUED, Verdict.COMPLETED]
    ended = SendSpans((*reports, unsampled), tuple(map(ReportAnswer, verdicts)), ())

    found = spans.portion_of([ended], 1000.0, {}, str)

    assert [row[2] for row in found.attempts] == [0, most - 1, most + 2]
    told = [spans.trace_for_runner(each.task) for each in (*reports[1:3], unsampled)]
    assert [each and each.has_span for each in told] == [True, False, False], (
        "no orphans of handlers"
    )
    assert [each and each.is_sampled for each in told] == [True, True, False]
    parents = [each and each.caller(RUN, "a", 0, 7).traceparent for each in told]
    assert [str(each)[-2:] for each in parents] == ["01", "00", "00"]
    assert spans.trace_for_runner(task(1)) is None


def test_spans_have_their_parents_times_and_no_secrets() -> None:
    own = task(7)._replace(run_id=RUN, trace=Trace(TRACE, True, SPAN, "a=1", previous="failed"))
    report = TaskReport(own, Outcome.FAILED, b'"output"', "it was hunter2", "ValueError", pid=5)
    report.began_at, report.ended_at = 10.0, 12.5
    changes = [
        RunChange(RUN, own.step, StepStatus.SKIPPED, None, "hunter2", 1013.0),
        RunChange(RUN, None, RunStatus.FAILED, 4.0, "hunter2", 1013.0),
        RunChange(RUN, "next", StepStatus.STARTED),
    ]

    attempt, step, run = sent(report, changes)

    assert attempt.parent_span_id == step.span_id and step.parent_span_id == run.span_id
    assert run.parent_span_id.hex() == SPAN and {attempt.trace_state, run.trace_state} == {"a=1"}
    assert {each.trace_id.hex() for each in (attempt, step, run)} == {TRACE}
    assert attempt.span_id.hex() == attempt_span(RUN, own.step, own.task_index, own.token)
    assert step.span_id.hex() == step_span(RUN, own.step)
    assert [each.name for each in (attempt, step, run)] == ["attempt 1", own.step, "run mail"]
    assert [each.kind for each in (attempt, step, run)] == [1, 1, 5]
    assert times(attempt) == (1010 * 10**9, 1012_500_000_000)
    assert (times(step), times(run)) == ((1013 * 10**9,) * 2, (1009 * 10**9, 1013 * 10**9))
    assert [each.span_id.hex() for each in step.links] == [step_span(RUN, "before")]
    assert attributes(attempt) == {
        "pgflow.flow": "mail", "pgflow.run_id": RUN, "pgflow.step": own.step,
        "pgflow.task_index": 0, "pgflow.attempt": 1, "pgflow.outcome": "failed",
        "pgflow.verdict": "queued", "pgflow.previous": "failed", "process.pid": 5,
        "error.type": "ValueError",
    }  # fmt: skip
    assert attributes(step)["pgflow.reason"] == "***" and step.status.code == 0
    assert attributes(run) == {
        "pgflow.flow": "mail", "pgflow.run_id": RUN, "pgflow.status": "failed",
    }  # fmt: skip
    assert (attempt.status.code, attempt.status.message) == (2, "it was ***")
    assert (run.status.code, run.status.message) == (2, "***")
    assert "hunter2" not in str([attempt, step, run]) and "output" not in str(attempt)


def test_a_step_lasts_as_long_as_its_attempts() -> None:
    """It may have ended in a transaction that the handler began."""
    own = task(7)._replace(run_id=RUN, trace=Trace(None, True))
    report = TaskReport(own, Outcome.COMPLETED, b"1", cpu_s=0.5, peak_kb=300)
    report.began_at, report.ended_at = 10.0, 12.5
    changes = [RunChange(RUN, own.step, StepStatus.COMPLETED, 0.5, None, 1011.0)]

    attempt, step = sent(report, changes, Verdict.COMPLETED)

    assert times(step) == (1010_500_000_000, times(attempt)[1])
    assert (attempt.trace_id.hex(), attempt.trace_state, attempt.status.code) == (OWN, "", 0)
    known = attributes(attempt)
    assert (known["pgflow.cpu_s"], known["pgflow.peak_kb"]) == (0.5, 300)


def test_a_portion_that_is_too_large_is_sent_as_several() -> None:
    trace = Trace(TRACE, True, SPAN, "a=1")
    runs = [RUN[:-2] + f"{nr:02}" for nr in range(9)]
    tasks = [task(nr)._replace(run_id=run, trace=trace) for nr, run in enumerate(runs)]
    reports = [TaskReport(each, Outcome.FAILED, error_message="x" * 1000) for each in tasks]
    for each in reports:
        each.began_at = each.ended_at = 1.0
    answers = (ReportAnswer(Verdict.FAILED),) * len(reports)
    parts = EndedParts("a", "completed", None, 1009.0, " ".join(f"{run} 1001" for run in runs))
    ended = [SendSpans(tuple(reports), answers, (parts,))]
    whole = spans.portion_of(ended, 1000.0, {}, str)

    pieces, found = [whole], []
    while pieces:
        halves = pieces.pop().halves()
        found += [half for half in halves or () if half.spans == 1]
        pieces += [half for half in halves or () if half.spans > 1]

    assert whole.spans == len(found) == 18
    both = [sorted(read(told(some)), key=str) for some in ([whole], found)]
    assert both[0] == both[1]


def told(portions: list[spans.Portion]) -> dict[str, Any]:
    """As one, as the exporter reads them."""
    attempts = [row for each in portions for row in each.attempts]
    parts = [row for each in portions for row in each.parts]
    traces = {run: trace for each in portions for run, trace in each.traces.items()}
    document = {"flow": "mail", "attempts": attempts, "parts": parts, "traces": traces}
    return dict(json.loads(json.dumps(document)))


def sent(
    report: TaskReport, changes: list[RunChange], verdict: Verdict = Verdict.QUEUED
) -> list[Span]:
    """The spans of an attempt and of what it has ended, as a collector reads them."""
    deps = {report.task.step: ["before"]}
    ended = SendSpans((report,), (ReportAnswer(verdict),), spans.parts_of(changes))

    def hide(text: str) -> str:
        return text.replace("hunter2", "***")

    return read(told([spans.portion_of([ended], 1000.0, deps, hide)]))


def read(document: dict[str, Any]) -> list[Span]:
    """The spans of a portion, as a collector reads them."""
    encoded = encode_portion(document)
    found = list(ScopeSpans.FromString(encoded.data).spans)
    assert (len(found), encoded.wrong) == (encoded.number, 0)
    return found


def times(span: Span) -> tuple[int, int]:
    return span.start_time_unix_nano, span.end_time_unix_nano


def attributes(span: Span) -> dict[str, Any]:
    return {
        each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes
    }
