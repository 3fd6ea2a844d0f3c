"""A setting that all daemons on a database share, as `pgflowd db settings` shows it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any


@dataclass(frozen=True)
class SharedSetting:
    """`changed_by` and `changed_at` are None for one that has its default."""

    name: str
    value: Any
    takes: Annotated[str, "which values it takes"]
    means: Annotated[str, "what it does"]
    changed_by: str | None
    changed_at: Annotated[datetime | None, "when; null if it has its default"]


@dataclass(frozen=True)
class Migrated:
    """The result of a migrate, or of a dry run."""

    before: Annotated[int | None, "the version of the schema before"]
    after: Annotated[int, "the version now"]
    migrations: Annotated[list[str], "what was applied"]
    adopted: Annotated[
        str | None, "the edition of schema `pgflow` whose functions were replaced; null if none was"
    ]
    replaced: Annotated[list[str], "these functions"]
    dry_run: bool
    is_repeated: Annotated[
        bool, "whether nothing had changed since the last one, so that nothing was applied again"
    ] = False
