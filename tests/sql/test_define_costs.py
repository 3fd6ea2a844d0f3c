"""To create a flow of many steps costs as many rows for each step as one of few."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb
from support.rows_read import rows_read

from pgflowd.testing.scratch import ScratchDatabase


def chain_of(steps: int, options: dict[str, Any]) -> Jsonb:
    return Jsonb({
        "steps": [{"slug": f"s{i}", "stepType": "single", "options": options,
                   "dependencies": [f"s{i - 1}"] if i else []} for i in range(steps)]
    })  # fmt: skip


@pytest.mark.parametrize("options", [{}, {"needs": ["gpu"], "limit": {"slots": 2}}])
def test_a_step_costs_as_many_rows_however_many_there_are(
    database: ScratchDatabase, options: dict[str, Any]
) -> None:
    read = {}
    for steps in (3_000, 1_500):  # the larger one first, in a table without pages
        query = "select pgflowd.define(%s, %s)"
        with psycopg.connect(database.dsn) as conn:  # a session of its own: plans are kept
            read[steps] = rows_read(conn, query, f"flow_{steps}", chain_of(steps, options))
            conn.rollback()

    assert read[3_000] < 2.2 * read[1_500], read
