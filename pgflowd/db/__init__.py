"""
Queries the database. Does not import `host`.

`from pgflowd import db` loads no driver: a module is imported when it is first used, as in
`db.flows.list_flows()`.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pgflowd.db import connection as connection
    from pgflowd.db import daemons as daemons
    from pgflowd.db import definitions as definitions
    from pgflowd.db import doctor as doctor
    from pgflowd.db import flows as flows
    from pgflowd.db import following as following
    from pgflowd.db import operations as operations
    from pgflowd.db import performing as performing
    from pgflowd.db import query as query
    from pgflowd.db import run_details as run_details
    from pgflowd.db import runs as runs
    from pgflowd.db import schema as schema
    from pgflowd.db import waits as waits


def __getattr__(name: str) -> ModuleType:
    try:
        return import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"{__name__}.{name}":  # the module is there, and imports what is not
            raise
        raise AttributeError(f"{__name__} has no module '{name}'") from error
