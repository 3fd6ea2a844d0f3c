"""
What undoes a step, and when a run is undone, as `define` takes it from the code.
"""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest
from support.leases import LeaseDatabase

OPTIONS = {"onFailure": "keep", "onCancel": "undo"}


def define(
    db: LeaseDatabase,
    flow: str,
    options: dict[str, Any] | None = None,
    **steps: dict[str, Any],
) -> dict[str, Any]:
    """Define the flow with these options, its steps with theirs; the shape that it has then."""
    shape = db.value("select pgflowd.flow_shape(%s)", flow)
    shape["options"] = options or {}
    for step in shape["steps"]:
        step["options"] = steps.get(step["slug"], {})
    db.value("select pgflowd.define(%s, %s)", flow, json.dumps(shape))
    return dict(db.value("select pgflowd.flow_shape(%s)", flow))


def given(shape: dict[str, Any]) -> dict[str, Any]:
    """The options of this page that a shape has, of the flow under `flow`."""
    names = {"onFailure", "onCancel", "undo", "settle"}
    of = {"flow": shape["options"], **{step["slug"]: step["options"] for step in shape["steps"]}}
    return {who: {name: o[name] for name in names & o.keys()} for who, o in of.items()}


def test_undos_follow_the_code(own: LeaseDatabase) -> None:
    flow = own.flow("a", "b:a", "c:b")
    first = {"a": {"undo": "completed"}, "b": {"undo": "attempted"}, "c": {"settle": True}}

    assert given(define(own, flow, OPTIONS, **first)) == {"flow": OPTIONS, **first}

    second = {"a": {"settle": True}, "b": {"undo": "completed"}}
    later = {"flow": {"onFailure": "undo"}, **second, "c": {}}
    assert given(define(own, flow, later["flow"], **second)) == later
    assert given(define(own, flow)) == {"flow": {}, "a": {}, "b": {}, "c": {}}
    assert own.rows("select * from pgflowd.flow_options") == []


def test_what_no_flow_can_want_is_refused(own: LeaseDatabase) -> None:
    flow = own.flow()
    for options, step in (({"onFailure": "skip"}, {}), ({"onCancel": ""}, {}), ({}, {"undo": "x"})):
        with pytest.raises(psycopg.errors.CheckViolation):
            define(own, flow, options, a=step)
