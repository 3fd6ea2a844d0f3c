"""A value in pieces: at most so many levels and members, and the paths to the others."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgflowd.core.documents.run_tasks import ValueMember, ValuePart
from pgflowd.errors import PgflowdError
from pgflowd.web.text import MAX_LEVELS, MAX_MEMBERS, JsonBranch, path_of, tree_of


def part(value, path=(), start=0):
    members = [
        ValueMember(name, "object", None, True, each) for name, each in list(value.items())[start:]
    ]
    return ValuePart(list(path), start, "object", len(value), True, None, members)


def branches(branch: JsonBranch):
    yield branch
    for _, member in branch.members:
        yield from branches(member)


@settings(deadline=None)
@given(st.lists(st.text(), max_size=5))
def test_a_path_survives_its_pointer(path):
    assert path_of(JsonBranch("null", "", tuple(path)).pointer) == tuple(path)


@pytest.mark.parametrize("pointer", ["a", "/" + "x" * 3000])
def test_another_text_is_no_pointer(pointer):
    with pytest.raises(PgflowdError, match="JSON pointer"):
        path_of(pointer)


def test_a_deep_value_ends_with_the_path_to_the_rest():
    deep: dict = {}
    for level in range(9):
        deep = {f"level{level}": deep}

    *_, last = branches(tree_of(part(deep)))

    assert last.is_cut
    assert len(last.path) == MAX_LEVELS
    assert last.pointer == "/level8/level7/level6/level5"


def test_a_wide_value_has_a_limited_number_of_members():
    wide = {f"k{one}": list(range(90)) for one in range(20)}

    found = list(branches(tree_of(part(wide))))

    assert len(found) == MAX_MEMBERS + 1
    assert sum(branch.is_cut for branch in found) == 18


def test_values_that_look_alike_differ():
    values = {"a": 0, "b": "", "c": False, "d": None, "e": [], "f": {}, "g": 10**30}

    members = dict(tree_of(part(values)).members)

    assert [members[name].text for name in "abcdg"] == ["0", '""', "false", "null", str(10**30)]
    assert [members[name].kind for name in "abcdefg"] == [
        "number", "string", "boolean", "null", "array", "object", "number"
    ]  # fmt: skip
    assert not any(member.is_cut for member in members.values())
