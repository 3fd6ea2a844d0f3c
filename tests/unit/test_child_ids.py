"""The ids of children, and the tree of a family."""

from __future__ import annotations

from uuid import UUID

from pgflowd.core.documents.run_tasks import FamilyMember, branches_of
from pgflowd.core.ids import child_id, is_run_id
from pgflowd.core.statuses import RunStatus

RUN = "019bc0de-4a51-7c02-9f6e-12ab7f3a9c12"


def test_a_child_s_id_is_made_of_task_flow_and_name():
    first = child_id(RUN, "fetch", 0, "one", "key a")
    assert first == child_id(RUN, "fetch", 0, "one", "key a") and is_run_id(first)
    others = [
        child_id(RUN.replace("9", "8"), "fetch", 0, "one", "key a"),
        child_id(RUN, "fetches", 0, "one", "key a"),
        child_id(RUN, "fetch", 1, "one", "key a"),
        child_id(RUN, "fetch", 0, "two", "key a"),
        child_id(RUN, "fetch", 0, "one", "nr a"),
    ]
    assert len({first, *others}) == 6


def test_a_run_id_is_lower_case_and_whole():
    assert is_run_id(RUN)
    for wrong in (
        None,
        7,
        "",
        RUN.upper(),
        RUN[:-1],
        RUN + "\n",
        f"{{{RUN}}}",
        RUN.replace("-", ""),
    ):
        assert not is_run_id(wrong)


def member(number: int, parent: int | None, depth: int) -> FamilyMember:
    above = None if parent is None else UUID(int=parent)
    return FamilyMember(
        UUID(int=number), above, "a", 0, depth, "flow", RunStatus.STARTED, None, None
    )


def test_a_family_is_a_tree_in_which_each_run_precedes_its_children():
    family = [member(*row) for row in
              [(1, None, 0), (2, 1, 1), (3, 1, 1), (4, 2, 2), (5, 3, 2), (6, 2, 2)]]  # fmt: skip

    found = [
        (branch.member.run_id.int, branch.bars, branch.is_last) for branch in branches_of(family)
    ]

    assert found == [
        (1, (), True), (2, (), False), (4, (True,), False), (6, (True,), True),
        (3, (), True), (5, (False,), True),
    ]  # fmt: skip
