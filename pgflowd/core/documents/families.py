"""The family of a run, as programs and screens see it: the runs that it has started, and so on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated
from uuid import UUID

from pgflowd.core.documents import FlowSlug, Hidden, Named
from pgflowd.core.statuses import RunStatus

MAX_FAMILY = 1000  # runs that are read


@dataclass(frozen=True)
class FamilyMember:
    """A run of a family, and the task that has started it."""

    run_id: UUID
    parent_run_id: Annotated[UUID | None, "the run whose task has started it"]
    parent_step: Annotated[str | None, "the step of that task"]
    parent_index: Annotated[int | None, Named("parent_task")]
    depth: Hidden[int]
    flow_slug: FlowSlug
    status: RunStatus
    started_at: Annotated[datetime | None, "when it began; null before"]
    ended_at: datetime | None


@dataclass(frozen=True)
class Branch:
    """A member at its place in the tree."""

    member: FamilyMember
    bars: tuple[bool, ...]  # for each depth above: whether a line goes on there
    is_last: bool  # of its parent's children


def branches_of(family: Sequence[FamilyMember]) -> list[Branch]:
    """The members in the order of a tree: each run, then its children with all below them."""
    below: dict[UUID | None, list[FamilyMember]] = {}
    for member in family:
        below.setdefault(member.parent_run_id, []).append(member)
    branches: list[Branch] = []
    pending = [Branch(member, (), is_last=True) for member in below.get(None, [])]
    while pending:
        branch = pending.pop()
        branches.append(branch)
        children = below.get(branch.member.run_id, [])
        bars = (*branch.bars, not branch.is_last) if branch.member.depth else ()
        pending += [Branch(each, bars, each is children[-1]) for each in reversed(children)]
    return branches
