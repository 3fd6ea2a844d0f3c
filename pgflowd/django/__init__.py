"""
For applications of Django: starts in their transactions, flows that use the ORM, their migrations.

    import pgflowd.django                       # at the top of a module of flows: django.setup()
    pgflowd.django.start_flow("orders", {…})    # on the connection of the settings
    PGFLOWD = {"using": "default", "config": "pgflowd.toml"}   # these are optional settings

`manage.py pgflowd …` is the command line, if "pgflowd.django" is among INSTALLED_APPS.
docs/guides/django.md shows all of it. Django must be installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack
from uuid import UUID

import django
from django.apps import apps
from django.conf import settings
from django.db import close_old_connections, connections

from pgflowd.client import Client
from pgflowd.core import context
from pgflowd.core.documents.runs import Run
from pgflowd.core.wishes import Wishes

if TYPE_CHECKING:
    from pgflowd.django.schema import InstallSchema
    from pgflowd.django.tasks import TasksBackend

__all__ = ["TasksBackend", "client", "migration", "start_flow"]

_inherited: list[Any] = []  # connections of the process that has forked this one; never used


def client(using: str | None = None) -> Client:
    """A client on the connection with this name, or with that of PGFLOWD, of each thread."""
    return Client(using=using or database_alias())


def start_flow(
    flow_slug: str,
    input: Any,
    *,
    run_id: UUID | str | None = None,
    key: str | None = None,
    using: str | None = None,
    **wishes: Unpack[Wishes],
) -> Run:
    """Start a run; inside `atomic()` it exists exactly if the block commits."""
    return client(using).start_flow(flow_slug, input, run_id=run_id, key=key, **wishes)


def migration(from_version: int | None = None) -> InstallSchema:
    """
    The operation of a migration that installs the schema, or upgrades it.

    `from_version`: the least version that the database has before it; without it, perhaps none.
    """
    from pgflowd.django.schema import InstallSchema

    return InstallSchema(from_version)


def database_alias() -> str:
    """The name of the connection that PGFLOWD chooses."""
    return str(getattr(settings, "PGFLOWD", {}).get("using", "default"))


def __getattr__(name: str) -> Any:
    if name == "TasksBackend":  # which needs Django 6, or the package django-tasks
        from pgflowd.django.tasks import TasksBackend

        return TasksBackend
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _forget_inherited() -> None:
    """Leave the connections of the parent to it: this process opens its own."""
    for connection in connections.all(initialized_only=True):
        _inherited.append(connection)
        del connections[connection.alias]


if not apps.ready and not getattr(apps, "loading", False):
    django.setup()
context.after_fork.append(_forget_inherited)
context.around_tasks.append(close_old_connections)
