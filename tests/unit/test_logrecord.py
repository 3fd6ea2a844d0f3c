"""Log records: one line each, with any content; secrets hidden; the journal can be searched."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as some
from support.covers import covers

from pgflowd.core.logrecord import (
    MAX_BYTES,
    LogRecord,
    as_journal,
    as_json,
    as_lines,
    as_text,
    redacted,
)


def record(**fields):
    return LogRecord("task.failed", "info", 1_768_455_000.125, fields)


def test_a_record_as_text():
    line = as_text(redacted(record(flow="shop", took_s=0.25, error='a "b"', attempt=2)))

    assert line == (
        b"2026-01-15T05:30:00.125Z info    task.failed flow=shop took_s=0.25"
        b' error="a \\"b\\"" attempt=2\n'
    )


@covers("newcomer 2")
def test_on_a_terminal_a_traceback_has_its_lines_and_stays_below_its_record():
    trace = "Traceback (most recent call last):\n  File \"a.py\", line 1\nKeyError: 'x'\n"
    failed = redacted(record(step="pay", error="KeyError: 'x'", traceback=trace, took_s=0.25))

    assert as_lines(failed).decode().split("\n") == [
        "2026-01-15T05:30:00.125Z info    task.failed step=pay error=\"KeyError: 'x'\" took_s=0.25",
        "    traceback: Traceback (most recent call last):",
        '        File "a.py", line 1',
        "      KeyError: 'x'",
        "",
    ]
    assert as_text(failed).count(b"\n") == as_json(failed).count(b"\n") == 1


@covers("newcomer 2")
def test_no_text_begins_a_record_of_its_own_on_a_terminal():
    forged = redacted(record(text="x\n2026-01-15T05:30:00.125Z error   worker.error\r\x1b[2J\n\n"))

    first, *others, last = as_lines(forged).decode().split("\n")

    assert first.endswith("task.failed") and last == ""
    assert all(each.startswith("    ") and each.isprintable() for each in others)


def test_a_record_as_json_has_the_same_keys():
    said = json.loads(as_json(redacted(record(flow="shop", took_s=0.25))))

    assert said == {
        "time": "2026-01-15T05:30:00.125Z",
        "level": "info",
        "event": "task.failed",
        "flow": "shop",
        "took_s": 0.25,
    }


def test_a_record_for_the_journal_has_fields_to_search_for():
    entry = as_journal(redacted(record(flow="shop", run="7f3a", step="pay", child="x y")))

    for name, value in (
        (b"PGFLOW_FLOW", b"shop"),
        (b"PGFLOW_RUN_ID", b"7f3a"),
        (b"PGFLOW_STEP", b"pay"),
        (b"PGFLOWD_EVENT", b"task.failed"),
        (b"PGFLOWD_CHILD", b"x y"),
        (b"PRIORITY", b"6"),
    ):
        assert name + b"\n" + len(value).to_bytes(8, "little") + value + b"\n" in entry


def test_a_forged_journal_field_stays_a_value():
    entry = as_journal(redacted(record(error="x\nPRIORITY=0\n")))

    value = b"x\nPRIORITY=0\n"
    assert b"PGFLOWD_ERROR\n" + len(value).to_bytes(8, "little") + value in entry


def test_named_keys_and_what_looks_like_a_secret_are_hidden():
    shown = as_text(
        redacted(
            record(
                password="canary1",
                more={"Token": "canary2", "deep": [{"secret": "canary3"}]},
                error="postgresql://a:canary4@h/d and canary5",
            ),
            ("password", "secret", "token"),
            ["canary5"],
        )
    )

    assert b"canary" not in shown


def test_empty_fields_are_left_out():
    assert b"flow" not in as_text(redacted(record(flow=None)))


@covers("row 105")
@pytest.mark.parametrize("render", [as_text, as_json])
@given(some.dictionaries(some.sampled_from(["error", "flow", "run"]), some.text(max_size=9000)))
def test_one_record_is_one_line_of_limited_length(render, fields):
    line = render(redacted(record(**fields)))

    assert line.endswith(b"\n")
    assert len(line) <= MAX_BYTES
    assert len(line.decode().splitlines()) == 1


@given(some.integers(0, 12))
def test_many_long_fields_are_cut_too(count):
    fields = {f"field{number}": "é\n" * 3000 for number in range(count)}

    assert len(as_json(redacted(record(**fields)))) <= MAX_BYTES
