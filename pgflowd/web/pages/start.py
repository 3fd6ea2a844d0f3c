"""
The form that starts a run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

from pgflowd.core.documents import Hidden
from pgflowd.core.lookup import unknown_flow
from pgflowd.core.redact import HIDDEN
from pgflowd.core.typed.schema_check import example_of
from pgflowd.db.flows import flow_names, input_schema
from pgflowd.db.operations import new_run_id
from pgflowd.db.query import execute
from pgflowd.db.runs import started_runs
from pgflowd.web.pages.page import Page, PageRequest
from pgflowd.web.text import visible

_LONGEST_INPUT = 20_000  # characters; a form holds no more


@dataclass(frozen=True)
class StartForm:
    """A flow, the id that its next run gets, and an input to begin with."""

    flow: str
    run_id: Annotated[UUID, "the id that the run will have"]
    input: Annotated[Any, "what the form begins with"]  # as it may be shown
    is_of_last_run: Hidden[bool]
    schema: Annotated[Mapping[str, Any] | None, "the JSON Schema of the input, if there is one"]

    @property
    def repeats(self) -> bool:
        """Whether it begins with the last input, which is so if that is short and hides nothing."""
        return self.is_of_last_run and self._fits(_indented(self.input))

    @property
    def text(self) -> str:
        """The input as people edit it."""
        return _indented(self.input if self.repeats else _example(self.schema))

    @staticmethod
    def _fits(text: str) -> bool:
        return len(text) <= _LONGEST_INPUT and f'"{HIDDEN}' not in text


def start_form(request: PageRequest) -> StartForm:
    """The input of the flow's last run, else an example of its schema."""
    flow = request.path["flow"]
    known = execute(request.conn, flow_names())
    if flow not in known:
        raise unknown_flow(flow, known)
    schema = execute(request.conn, input_schema(flow))
    last = execute(request.conn, started_runs(flow, 1))
    run_id = new_run_id()
    if last:
        return StartForm(flow, run_id, last[0].input, True, schema)
    return StartForm(flow, run_id, _example(schema), False, schema)


def _example(schema: Mapping[str, Any] | None) -> Any:
    return {} if schema is None else example_of(schema)


def _indented(value: Any) -> str:
    """As JSON that people edit; a character that nobody would see is an escape of JSON."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return text if visible(text) == text else json.dumps(value, indent=2)


def _command(request: PageRequest) -> list[str]:
    return ["pgflowd", "runs", "start", request.path["flow"], "INPUT"]


PAGES = (Page("/flows/{flow}/start", "start.html", start_form, _command),)
