"""
The operations that start runs, with wishes or without.

A start without wishes is one query, and costs nothing for what others may wish. With a key, and no
id, the database makes the id of flow and key.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID

from pgflowd.core.documents.runs import Run
from pgflowd.core.ids import run_id_of, uuid7
from pgflowd.core.traces import CallerTrace
from pgflowd.core.typed.values import encode_value
from pgflowd.core.wishes import CheckedWishes, Wishes, checked, require_slug
from pgflowd.db import runs
from pgflowd.db.operations import Hears, Operation
from pgflowd.db.query import Query
from pgflowd.errors import BadDependency, MapInput, NotFound, RunExists, UnknownFlow

RunId = UUID | str
T = TypeVar("T")

_KEY = re.compile(r"\(run_id\)=\(([^)]+)\)")  # in the detail of a repeated key


def start(
    flow_slug: str,
    input: Any,
    run_id: RunId | None,
    key: str | None,
    wishes: Wishes,
    trace: CallerTrace | None = None,
) -> Operation[Run]:
    require_slug(flow_slug)
    text, given = encode_value(input, what="input"), checked(wishes, key, trace)
    if given:
        return (yield from _started_wished(flow_slug, text, run_id, given))
    new_id = _id_or_new(run_id)
    started: list[Run] = yield from _started(
        runs.start(flow_slug, [text], [new_id]), flow_slug, new_id
    )
    return started[0]


def start_followed(
    flow_slug: str,
    input: Any,
    run_id: RunId | None,
    key: str | None,
    wishes: Wishes,
    trace: CallerTrace | None = None,
) -> Operation[Run]:
    """Start a run for whose end somebody waits: without wishes, it is followed from the start."""
    if wishes or key is not None or trace is not None or not (yield Hears()):
        return (yield from start(flow_slug, input, run_id, key, wishes, trace))
    require_slug(flow_slug)
    new_id = _id_or_new(run_id)
    text = encode_value(input, what="input")
    started: list[Run] = yield from _started(
        runs.start_followed(flow_slug, text, new_id), flow_slug, new_id
    )
    return started[0]


def start_many(
    flow_slug: str,
    inputs: Sequence[Any],
    run_ids: Sequence[RunId] | None,
    wishes: Wishes,
    trace: CallerTrace | None = None,
) -> Operation[list[Run]]:
    require_slug(flow_slug)
    if isinstance(inputs, str | bytes | Mapping):  # these have elements as well
        raise TypeError(f"start_flows takes a list of inputs, not one {type(inputs).__name__}")
    if run_ids is not None and len(inputs) != len(run_ids):
        raise ValueError(f"there are {len(inputs)} inputs and {len(run_ids)} run ids")
    ids = [_id_or_new(run_ids[at] if run_ids else None) for at in range(len(inputs))]
    texts = [encode_value(input, what=f"inputs[{at}]") for at, input in enumerate(inputs)]
    given = checked(wishes, trace=trace)
    if not texts:
        return []
    if given:
        query = runs.start_wished(flow_slug, texts, ids, given)
    else:
        query = runs.start(flow_slug, texts, ids)
    try:
        started: list[Run] = yield from _started(query, flow_slug, None)
    except MapInput as error:
        at = next((at for at, text in enumerate(texts) if not text.startswith("[")), 0)
        raise MapInput(f"inputs[{at}]: {error.text}", next=error.next) from error
    return started


def _started_wished(
    flow_slug: str, text: str, run_id: RunId | None, wishes: CheckedWishes
) -> Operation[Run]:
    is_of_key = wishes.key is not None and run_id is None
    new_id = None if is_of_key else _id_or_new(run_id)
    query = runs.start_wished(flow_slug, [text], [new_id], wishes)
    found: list[Run] = yield from _started(query, flow_slug, new_id)
    return found[0]


def _started(query: Query[T], flow_slug: str, run_id: UUID | None) -> Operation[T]:
    """Execute a start; if the database refuses it, name the flow or the run in the error."""
    try:
        started: T = yield query
    except BadDependency:
        raise
    except (UnknownFlow, NotFound) as error:
        text = f"there is no flow '{flow_slug}' in the database"
        raise UnknownFlow(text, next=f"run `pgflowd flows deploy {flow_slug}`") from error
    except RunExists as error:
        found = _KEY.search(error.text)
        name = run_id or (found[1] if found else "with one of these ids")
        raise RunExists(
            f"run {name} already exists", next="leave run_id out to start another"
        ) from error
    return started


def new_run_id() -> UUID:
    """An id that no run has."""
    return uuid7(time.time_ns() // 1_000_000, os.urandom(10))


def _id_or_new(run_id: RunId | None) -> UUID:
    return new_run_id() if run_id is None else run_id_of(run_id)
