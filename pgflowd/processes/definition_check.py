"""
Asks the database whether the changed flows of a reload can be served, and ends.

The supervisor starts it before it replaces any worker, so that code which cannot be served, or not
serve a version with open runs, leaves the old one in service. It imports no user code. The answer
is one JSON text, sent in parts: of each flow what is wrong, or null, and what is wrong by version.
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
        found = {
            code.name: (
                definitions.refusal(conn, code, mode),
                definitions.unserved_flows(conn, code),
            )
            for code in codes
        }
    text = _dumps({
        name: [refused and asdict(refused), {slug: asdict(each) for slug, each in lost.items()}]
        for name, (refused, lost) in found.items()
    })  # fmt: skip
    for start in range(0, len(text), PART):
        channel.send(Found(text[start : start + PART]))
    channel.flush_all(10.0)
    return EXIT_ASKED
