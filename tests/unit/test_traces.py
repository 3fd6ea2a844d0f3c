"""Which trace a run belongs to, and how its spans are named: the same in every process."""

from __future__ import annotations

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from support.engine import task

from pgflowd.core.traces import (
    MAP_SPANS,
    MAX_TEXT_CHARS,
    EndedAttempt,
    EndedPart,
    SpanName,
    Trace,
    attempt_span,
    is_in_ratio,
    read_traceparent,
    run_span,
    spans_of_attempts,
    spans_of_parts,
    step_span,
    trace_of,
    write_traceparent,
)
from pgflowd.host.otlp import _readable, _resource

RUN, TRACE, SPAN = "019bc0de-4a51-7c02-9f6e-12ab7f3a9c12", "ab" * 16, "cd" * 8
OWN = RUN.replace("-", "")
CALLER = f"00-{TRACE}-{SPAN}-01"
ATTEMPT = EndedAttempt(
    RUN, "a", 0, 7, "mail", 2, 1_000_000, 3_000_000, "completed",
    None, None, None, None, 0.5, None, None, False,
)  # fmt: skip
PART = EndedPart(RUN, "mail", None, "completed", None, 0, 3_000_000, None, None)


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
    indexes = (0, MAP_SPANS - 1, MAP_SPANS, MAP_SPANS + 1)
    attempts = [ATTEMPT._replace(task_index=nr, token=nr) for nr in indexes]
    attempts += [attempts[-1]._replace(task_index=MAP_SPANS + 2, outcome="failed")]

    found = spans_of_attempts(attempts, 1.0, str)

    shown = [each.attributes["pgflow.task_index"] for each in found]
    assert shown == [0, MAP_SPANS - 1, MAP_SPANS + 2]
    assert spans_of_attempts(attempts, 0.0, str) == []
    trace = Trace(TRACE, True)
    tasks = [task(nr)._replace(task_index=nr, trace=trace) for nr in indexes[1:3]]
    tasks.append(task(9)._replace(trace=Trace(TRACE, False)))
    told = [each.trace_for_runner for each in tasks]
    assert [each and each.has_span for each in told] == [True, False, False], (
        "no orphans of handlers"
    )
    parents = [each and each.caller(RUN, "a", 0, 7).traceparent for each in told]
    assert [str(each)[-2:] for each in parents] == ["01", "00", "00"]
    assert task(1).trace_for_runner is None


def test_spans_have_their_parents_times_and_no_secrets() -> None:
    told = {"traceparent": CALLER, "tracestate": "a=1", "previous": "failed"}
    failed = ATTEMPT._replace(
        outcome="failed", error_type="ValueError", error="it was hunter2", told=told
    )
    [attempt] = spans_of_attempts([failed], 1.0, hide)
    run, skipped, step = spans_of_parts(
        [
            PART._replace(status="failed", error="hunter2", told=told),
            PART._replace(step="b", status="skipped", error="hunter2", deps=["a", "c"]),
            PART._replace(step="a", began_us=2_000_000, ended_us=1_000_000, deps=[]),
        ],
        1.0,
        hide,
    )

    assert (attempt.parent, step.parent, run.parent) == (step.id, run.id, SPAN)
    assert {(each.trace_id, each.state) for each in (attempt, step, run)} == {(TRACE, "a=1")}
    assert attempt.id == attempt_span(RUN, "a", 0, 7) and step.id == step_span(RUN, "a")
    names = [each.name for each in (attempt, step, skipped, run)]
    assert names == ["attempt 2", "a", "b", "run mail"]
    assert [each.is_run for each in (attempt, step, run)] == [False, False, True]
    assert (attempt.began_us, attempt.ended_us) == (1_000_000, 3_000_000)
    assert step.began_us == step.ended_us, "clocks may go back"
    assert [each.span_id for each in skipped.links] == [step_span(RUN, "a"), step_span(RUN, "c")]
    known = {name: value for name, value in attempt.attributes.items() if value is not None}
    assert known == {
        "pgflow.flow": "mail", "pgflow.run_id": RUN, "pgflow.step": "a", "pgflow.task_index": 0,
        "pgflow.attempt": 2, "pgflow.outcome": "failed", "pgflow.previous": "failed",
        "pgflow.cpu_s": 0.5, "error.type": "ValueError",
    }  # fmt: skip
    assert (attempt.error, run.error, step.error) == ("it was ***", "***", None)
    assert skipped.attributes["pgflow.reason"] == "***"
    assert "hunter2" not in str([attempt, step, skipped, run])


def test_a_secret_is_hidden_before_a_text_is_cut() -> None:
    text = "x" * (MAX_TEXT_CHARS - 3) + "hunter2"
    [span] = spans_of_attempts([ATTEMPT._replace(outcome="crashed", error=text)], 1.0, hide)
    assert span.error is not None and span.error.endswith("x***")


def test_a_run_that_began_later_has_a_link() -> None:
    told = {"traceparent": CALLER, "is_later": True}
    [run] = spans_of_parts([PART._replace(told=told)], 0.0, str)
    assert (run.trace_id, run.parent, run.links) == (OWN, None, (SpanName(TRACE, SPAN),))


def test_the_sdk_takes_what_a_collector_could_not_read() -> None:
    [span] = spans_of_attempts([ATTEMPT._replace(outcome="failed", error="half \ud800")], 1.0, str)
    readable = _readable(span, _resource("shop"))
    encoded = encode_spans([readable]).resource_spans[0]
    [found] = encoded.scope_spans[0].spans
    assert (found.status.message, found.span_id.hex()) == ("half ?", span.id)
    assert (found.start_time_unix_nano, found.end_time_unix_nano) == (10**9, 3 * 10**9)


def hide(text: str) -> str:
    return text.replace("hunter2", "***")
