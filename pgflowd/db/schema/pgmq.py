"""
pgmq: the queues below pgflow, and where their SQL comes from.

The server's extension is preferred; `sql/install/pgmq.sql` decides when it runs. Here the SQL
of the Python package `pgmq` is put into that file, found without importing the package, whose
modules are heavy.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from pgflowd.db.schema.files import SqlFile, read


def pgmq_script() -> SqlFile:
    """Return the statement that makes sure of pgmq, the shipped SQL inside it."""
    template = read("install/pgmq.sql")
    version, shipped = shipped_pgmq()
    if "$pgmq$" in shipped or "$pgflowd$" in shipped:
        raise ValueError("the package pgmq uses our dollar quotes; choose others in pgmq.sql")
    text = template.text.replace("<shipped>", shipped).replace("<version>", version)
    return SqlFile(template.path, text)


def shipped_pgmq() -> tuple[str, str]:
    """Return version and SQL carried by the package `pgmq`; two empty texts without it."""
    spec = importlib.util.find_spec("pgmq")
    if spec is None or spec.origin is None:
        return "", ""
    directory = Path(spec.origin).parent / "sql"
    if not (directory / "pgmq.sql").is_file():
        return "", ""
    version = (directory / "VERSION").read_text(encoding="utf-8").strip()
    return version, (directory / "pgmq.sql").read_text(encoding="utf-8")
