"""Shows the family of a run as a tree."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from pgflowd.cli.app import App
from pgflowd.core.documents.families import MAX_FAMILY, Branch, FamilyMember, branches_of
from pgflowd.core.text import ago, between, duration, short_id


def print_family(app: App, family: Sequence[FamilyMember], shown: UUID, now: datetime) -> None:
    """The tree, with a mark at the run that is shown; a note if it is larger than what was read."""
    for branch in branches_of(family):
        member = branch.member
        run = str(member.run_id) if app.verbose else short_id(member.run_id)
        state = app.out.marked(member.status.mark, f" {run} {member.flow_slug} {member.status}")
        by = f"  by {member.parent_step}#{member.parent_index}" if member.depth else ""
        here = "  (this run)" if member.run_id == shown and len(family) > 1 else ""
        app.print(f" {_stem(branch, unicode=app.out.unicode)}{state}{_time(member, now)}{by}{here}")
    if len(family) == 1:
        app.note("it has no children, and no run has started it")
    elif len(family) == MAX_FAMILY:
        app.note(f"of its family {MAX_FAMILY} runs are shown")


def _stem(branch: Branch, *, unicode: bool) -> str:
    if not branch.member.depth:
        return ""
    bar, fork, end = ("│  ", "├─ ", "└─ ") if unicode else ("|  ", "|- ", "`- ")
    return "".join(bar if each else "   " for each in branch.bars) + (
        end if branch.is_last else fork
    )


def _time(member: FamilyMember, now: datetime) -> str:
    if member.started_at is None:
        return ""
    if member.ended_at is None:
        return f" {ago(member.started_at, now)}"
    return f" after {duration(between(member.started_at, member.ended_at) or 0.0)}"
