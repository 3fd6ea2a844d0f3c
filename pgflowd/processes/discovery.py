"""
Imports one entry of the config, reports its flows and all problems, and ends.

The supervisor and commands, which never import user code, start one process for each entry, so
a module cannot hide the others or spoil their imports (docs/background/supervision.md, rule 3). The
result is one JSON text, sent in parts. A discovery never connects to the database.
"""

from __future__ import annotations

import dis
import inspect
import os
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise
from types import CodeType
from typing import Any

import psycopg

from pgflowd.core.definition.shape import Code, facts_of, step_schemas
from pgflowd.core.definition.spec import CTX, StepSpec
from pgflowd.core.json import Encoder
from pgflowd.core.messages import Found, parts_of
from pgflowd.core.settings.sections import Settings
from pgflowd.core.supervision.tree import EXIT_ASKED
from pgflowd.core.waiting import WAITING_CALLS
from pgflowd.db import definitions
from pgflowd.db.connection import connect, failure_of, limits_of
from pgflowd.errors import FlowError, PgflowdError, Problem
from pgflowd.flow import Flow
from pgflowd.host.channel import Channel
from pgflowd.host.config import read
from pgflowd.host.fork import count_streams, shared_streams
from pgflowd.processes.flow_loading import fingerprint, load, prepare, secret_variables

_dumps = Encoder(default=str)


def main(channel: Channel, settings: Settings, entry: str, *, is_silent: bool = False) -> int:
    """Report the flows of this entry. A silent discovery discards the output of user code."""
    if is_silent:
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nothing, number)
    prepare(settings.pgflowd.python_path, secret_variables(settings))
    return _answer(channel, _found(entry))


def _answer(channel: Channel, found: object) -> int:
    for part in parts_of(_dumps(found)):
        channel.send(Found(part))
    channel.flush_all(10.0)
    return EXIT_ASKED


def _found(entry: str) -> dict[str, Any]:
    """Return the flows of an entry with their problems, and the problems of the entry itself."""
    modules, threads, streams = set(sys.modules), set(threading.enumerate()), shared_streams()
    try:
        flows = load(entry)
    except FlowError as error:
        return {"flows": [], "problems": [asdict(problem) for problem in error.problems]}
    left_open = _left_open(entry, set(threading.enumerate()) - threads, shared_streams() - streams)
    return {
        "flows": [_flow(flow, entry.partition(":")[0], modules) for flow in flows],
        "problems": [asdict(problem) for problem in left_open],
    }


def _flow(flow: Flow, module: str, before: set[str]) -> dict[str, Any]:
    problems = flow.check()
    is_valid = all(problem.is_warning for problem in problems)
    steps = flow.spec.steps if is_valid else ()
    return {
        "slug": flow.slug,
        "module": module,
        "undoes": flow.undoes,
        "place": flow.place,
        "fingerprint": fingerprint(flow, before) if is_valid else "",
        "shape": flow.shape() if is_valid else None,
        "handlers": [asdict(facts) for facts in facts_of(flow.spec)] if is_valid else [],
        "schemas": {each.slug: step_schemas(each) for each in steps if each.codec},
        "opens_connections": any(map(_opens_connection, flow.written.steps)),
        "waits": any(map(_waits, flow.written.steps)),
        "problems": [asdict(problem) for problem in problems],
    }


def _opens_connection(step: StepSpec) -> bool:
    """Whether the code of a handler names `conn`, or cannot be read."""
    codes = _codes(step)
    return step.takes(CTX) and (not codes or any("conn" in code.co_names for code in codes))


def _waits(step: StepSpec) -> bool:
    """Whether the code of a handler keeps checkpoints, sleeps or waits, by calls of `ctx`."""
    return any(
        call.argval in WAITING_CALLS and _loads_ctx(before.argval)
        for code in _codes(step)
        for before, call in pairwise(dis.get_instructions(code))
    )


def _loads_ctx(loaded: object) -> bool:
    """Whether an instruction loads `ctx`, alone or, since Python 3.13, as the second of two."""
    return loaded == CTX or (isinstance(loaded, tuple) and loaded[-1:] == (CTX,))


def _codes(step: StepSpec) -> list[CodeType]:
    """The code of a handler, and of the functions inside of it; none if it is not in Python."""
    code = getattr(inspect.unwrap(step.handler), "__code__", None)
    codes = [] if code is None else [code]
    for each in codes:  # grows while it is read
        codes += [const for const in each.co_consts if isinstance(const, CodeType)]
    return codes


def _left_open(entry: str, threads: set[threading.Thread], shared: set[int]) -> list[Problem]:
    """Return a warning for threads, which a fork loses, and streams, which it shares."""
    left = []
    if threads:
        names = ", ".join(sorted(thread.name for thread in threads)[:3])
        left.append(f"{len(threads)} thread{'s' if len(threads) > 1 else ''} ({names})")
    if shared:
        left.append(count_streams(len(shared)))
    if not left:
        return []
    text = f"importing {entry} left {' and '.join(left)} open"
    remedy = "start threads, connections and process pools inside handlers"
    return [Problem("W222", text, entry, remedy)]


# Asks the database whether the changed flows of a reload can be served, and ends.
#
# The supervisor starts it before it replaces any worker, so that code which cannot be served, or
# not serve a version with open runs, leaves the old one in service. It imports no user code. The
# answer is one JSON text, sent in parts: of each flow what is wrong, or null, and what is wrong by
# version; or why the database could not be asked.
def check_definitions(channel: Channel, settings: Settings, codes: Sequence[Code]) -> int:
    """Report what keeps each of these flows from being served."""
    database, name = settings.database, f"{settings.pgflowd.name}: check"
    url, is_pooled = read(database.url), bool(database.listen_url)
    try:
        with connect(url, name=name, limits=limits_of(database), pooled=is_pooled) as conn:
            found = {}
            for code in codes:
                refused = definitions.refusal(conn, code, settings.pgflowd.definitions)
                unserved = definitions.unserved_flows(conn, code)
                problems = {slug: asdict(problem) for slug, problem in unserved.items()}
                found[code.name] = [refused and asdict(refused), problems]
    except (psycopg.Error, PgflowdError) as error:
        return _answer(channel, [None, failure_of(error)[1]])
    return _answer(channel, [found, None])
