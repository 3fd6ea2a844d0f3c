"""
Asks the database whether the changed flows of a reload can be served, and ends.

The supervisor starts it before it replaces any worker, so that code which cannot be served, or not
serve a version with open runs, leaves the old one in service. It imports no user code. The answer
is one JSON text, sent in parts: of each flow what is wrong, or null, and what is wrong by version;
or why the database could not be asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import psycopg

from pgflowd.core.definition.versions import Code
from pgflowd.core.json import Encoder
from pgflowd.core.messages import Found, parts_of
from pgflowd.core.settings.sections import Settings
from pgflowd.core.supervision.tree import EXIT_ASKED
from pgflowd.db import definitions
from pgflowd.db.connection import connect, limits_of
from pgflowd.db.errors import failure_of
from pgflowd.errors import PgflowdError
from pgflowd.host.channel import Channel
from pgflowd.host.config_refs import read

_dumps = Encoder(default=str)


def main(channel: Channel, settings: Settings, codes: Sequence[Code]) -> int:
    """Report what keeps each of these flows from being served."""
    database, name = settings.database, f"{settings.pgflowd.name}: check"
    url, is_pooled = read(database.url), bool(database.listen_url)
    try:
        with connect(url, name=name, limits=limits_of(database), pooled=is_pooled) as conn:
            text = _dumps([_found(conn, codes, settings.pgflowd.definitions), None])
    except (psycopg.Error, PgflowdError) as error:
        text = _dumps([None, failure_of(error)[1]])
    for part in parts_of(text):
        channel.send(Found(part))
    channel.flush_all(10.0)
    return EXIT_ASKED


def _found(conn: psycopg.Connection[Any], codes: Sequence[Code], mode: str) -> dict[str, Any]:
    found = {}
    for code in codes:
        refused = definitions.refusal(conn, code, mode)
        unserved = definitions.unserved_flows(conn, code)
        problems = {slug: asdict(problem) for slug, problem in unserved.items()}
        found[code.name] = [refused and asdict(refused), problems]
    return found
