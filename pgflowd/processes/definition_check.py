"""
Asks the database whether the changed flows of a reload can be served, and ends.

The supervisor starts it before it replaces any worker, so that code which cannot be served leaves
the old one in service. It imports no user code. The answer is one JSON text, sent in parts: for
each flow what is wrong, or null.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from pgflowd.core.definition.versions import Code
from pgflowd.core.json import Encoder
from pgflowd.core.messages import MAX_MESSAGE_BYTES, Found
from pgflowd.core.settings.sections import Settings
from pgflowd.core.supervision.exits import EXIT_ASKED
from pgflowd.db import definitions
from pgflowd.db.connection import connect, limits_of
from pgflowd.host.channel import Channel
from pgflowd.host.config_refs import read

PART = MAX_MESSAGE_BYTES // 4  # characters, as in a discovery

_dumps = Encoder(default=str)


def main(channel: Channel, settings: Settings, codes: Sequence[Code]) -> int:
    """Report what keeps each of these flows from being served."""
    database, name = settings.database, f"{settings.pgflowd.name}: check"
    url, is_pooled = read(database.url), bool(database.listen_url)
    with connect(url, name=name, limits=limits_of(database), pooled=is_pooled) as conn:
        mode = settings.pgflowd.definitions
        found = {code.name: definitions.refusal(conn, code, mode) for code in codes}
    text = _dumps({name: problem and asdict(problem) for name, problem in found.items()})
    for start in range(0, len(text), PART):
        channel.send(Found(text[start : start + PART]))
    channel.flush_all(10.0)
    return EXIT_ASKED
