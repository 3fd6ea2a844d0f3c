"""
Checks the input of a run before it starts, by the schema of the code that is deployed.
"""

from __future__ import annotations

from typing import Any

from pgflowd.core.typed.schema_check import fault_of
from pgflowd.db.flows import input_schema
from pgflowd.db.query import SyncConnection, execute
from pgflowd.errors import TypeMismatch


def check_input(conn: SyncConnection, flow: str, input: Any) -> None:
    """Raise TypeMismatch for an input that does not fit; without a schema every one does."""
    schema = execute(conn, input_schema(flow))
    if schema is not None and (fault := fault_of(schema, input, "input")):
        raise TypeMismatch(f"{flow}: {fault}", next=f"see `pgflowd flows schema {flow}`")
