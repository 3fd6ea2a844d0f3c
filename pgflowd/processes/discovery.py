"""
Discovery: imports one entry of the config, tells which flows are in it, and ends.

The supervisor, which never imports user code, starts one for each entry, so no module can hide
the others or spoil their imports (rule 3). It says one Found for each flow, or one with all
errors, each with file and line, as many as a message holds. It never asks the database. A module
that dies or takes too long is the supervisor's business.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

from pgflowd.core.messages import LARGEST, Found, encode
from pgflowd.core.settings.sections import Settings
from pgflowd.core.text import cut
from pgflowd.errors import FlowError, Problem
from pgflowd.host.channel import Channel
from pgflowd.host.logs import Log
from pgflowd.processes import EXIT_ASKED
from pgflowd.processes.flow_loading import fingerprint, load, prepare, secret_variables

MOST_TOLD = 40  # problems of a flow, or of an entry; `pgflowd check` tells them all
MOST_CHARS = 1000  # of the text of one


def main(channel: Channel, settings: Settings, log: Log, entry: str) -> int:
    """Tell what is in this entry."""
    prepare(settings.pgflowd.python_path, secret_variables(settings))
    for found in look_into(entry):
        channel.send(found)
    channel.flush_all(10.0)
    return EXIT_ASKED


def look_into(entry: str) -> list[Found]:
    """Return what is found: all flows, or one finding with everything that is wrong."""
    before = set(sys.modules)
    try:
        flows = load(entry)
    except FlowError as error:
        return [_wrong(entry, error.problems)]
    problems = [problem for flow in flows for problem in flow.check()]
    if any(not problem.is_warning for problem in problems):
        return [_wrong(entry, problems)]
    module = entry.partition(":")[0]
    return [
        _fitting(Found(entry, flow.slug, module, fingerprint(flow, before), _told(flow.check())))
        for flow in flows
    ]


def _wrong(entry: str, problems: Iterable[Problem]) -> Found:
    return _fitting(Found(entry, problems=_told(problems)))


def _told(problems: Iterable[Problem]) -> list[dict[str, Any]]:
    """The problems as a message has them, errors first."""
    listed = sorted(problems, key=lambda problem: problem.is_warning)[:MOST_TOLD]
    return [asdict(replace(each, text=cut(each.text, MOST_CHARS))) for each in listed]


def _fitting(found: Found) -> Found:
    """The finding with no more problems than there is room for in a message."""
    while len(encode(found)) > LARGEST:
        found = replace(found, problems=found.problems[: len(found.problems) // 2])
    return found
