"""The order of steps, and what stands in its way."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pgflowd.core.definition.spec import cycles, in_order

graphs = st.dictionaries(
    st.sampled_from("abcdefgh"), st.lists(st.sampled_from("abcdefgh"), max_size=3), max_size=8
)


def test_a_flow_written_top_down_keeps_its_order():
    assert in_order({"z": [], "y": ["z"], "x": ["z"], "w": ["x", "y"]}) == ["z", "y", "x", "w"]


def test_a_step_written_before_its_deps_comes_right_after_them():
    assert in_order({"save": ["a"], "a": [], "b": []}) == ["a", "save", "b"]


def test_the_text_of_a_cycle_begins_with_the_step_written_first():
    assert cycles({"a": ["c"], "b": ["a"], "c": ["b"], "d": ["a"]}) == [["a", "c", "b"]]


def test_a_step_that_depends_on_itself_is_a_cycle():
    assert cycles({"a": ["a"]}) == [["a"]]


def test_two_knots_are_two_cycles():
    assert cycles({"a": ["b"], "b": ["a"], "c": ["d"], "d": ["c"]}) == [["a", "b"], ["c", "d"]]


@given(graphs)
def test_every_step_comes_after_its_deps_unless_there_is_a_cycle(deps):
    order = in_order(deps)

    for place, name in enumerate(order):
        assert {dep for dep in deps[name] if dep in deps} <= set(order[:place])
    assert (len(order) == len(deps)) == (not cycles(deps))


@given(graphs)
def test_each_reported_cycle_is_a_cycle(deps):
    for cycle in cycles(deps):
        for name, ahead in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
            assert ahead in deps[name]
