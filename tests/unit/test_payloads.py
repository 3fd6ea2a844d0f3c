"""Inputs and outputs in the log: only where they are wanted, and never more than there is room."""

from __future__ import annotations

import pytest
from test_dispatch import Play, task

from pgflowd.core.worker import actions, events
from pgflowd.core.worker.payloads import of_input, shown


def test_the_input_is_what_the_handler_gets():
    first = task(1)._replace(input=b"{}", flow_input=b'{"to": 1}')
    later = task(1)._replace(input=b'{"a": [1]}', flow_input=None)
    element = task(1)._replace(input=b'"x"', flow_input=None)

    assert of_input(first) == {"run": {"to": 1}}
    assert of_input(later) == {"a": [1]}
    assert of_input(element) == "x"


@pytest.mark.parametrize("body", [b'"' + b"x" * 5000 + b'"', b"\xff", b"[" * 4000])
def test_what_is_large_or_no_json_is_told_by_its_size(body: bytes):
    assert shown(body) == f"({len(body)} bytes)"


@pytest.mark.parametrize("wanted", [True, False])
def test_payloads_are_in_the_records_of_tasks_if_they_are_wanted(wanted: bool):
    play = Play(tells_all=True, payloads=wanted)
    play.busy(1)
    started = play.did(actions.WriteLog)[-1]
    play.done(1)
    play.tell(events.ReportAndClaimDone((events.ReportAnswer("completed"),), ()))
    completed = next(each for each in play.did(actions.WriteLog) if each.event == "task.completed")

    assert ("input" in started.fields, "input" in completed.fields) == (wanted, wanted)
    assert completed.fields.get("output") == (1 if wanted else None)
