"""
Finds the SQL of pgmq, which provides the queues of pgflow.

`sql/install/pgmq.sql` prefers the extension of the server when it is executed. This module puts the
SQL of the Python package `pgmq` into that file as the alternative. The package is not imported,
because that is slow.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from pgflowd.db.schema.files import SqlFile, read


def pgmq_script() -> SqlFile:
    """Return the statement that installs pgmq if it is missing, with the shipped SQL inside."""
    template = read("install/pgmq.sql")
    version, shipped = shipped_pgmq()
    if "$pgmq$" in shipped or "$pgflowd$" in shipped:
        raise ValueError("the package pgmq uses our dollar quotes; choose others in pgmq.sql")
    text = template.text.replace("<shipped>", shipped).replace("<version>", version)
    return SqlFile(template.path, text)


def shipped_pgmq() -> tuple[str, str]:
    """Return version and SQL of the package `pgmq`; two empty texts if it is not installed."""
    spec = importlib.util.find_spec("pgmq")
    if spec is None or spec.origin is None:
        return "", ""
    directory = Path(spec.origin).parent / "sql"
    if not (directory / "pgmq.sql").is_file():
        return "", ""
    version = (directory / "VERSION").read_text(encoding="utf-8").strip()
    return version, (directory / "pgmq.sql").read_text(encoding="utf-8")
