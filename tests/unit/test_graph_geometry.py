"""The places of the boxes and lines of a graph, from which characters and SVG are drawn."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from pgflowd.core.graph import Graph, Layout, LayoutCell, Node, layout_of

_MOST_TRACKS = 14  # more than there are in any channel here


@st.composite
def boxes(draw: st.DrawFn) -> list[Node]:
    found: list[Node] = []
    for index in range(draw(st.integers(0, 12))):
        slugs = [box.slug for box in found]
        deps = draw(st.lists(st.sampled_from(slugs), unique=True, max_size=5)) if slugs else []
        found.append(Node(f"s{index}", tuple(deps)))
    return found


@settings(max_examples=200, deadline=None)
@given(boxes(), st.booleans())
def test_boxes_do_not_overlap_and_all_edges_go_forward(given_boxes, is_narrow):
    layout = layout_of(given_boxes, lambda node: 2, is_narrow=is_narrow)

    for column in layout.columns:
        for above, below in pairwise(column):
            assert above.top + above.height <= below.top
    assert sorted(cell.name for column in layout.columns for cell in column if cell.node) == sorted(
        box.slug for box in given_boxes
    )
    columns = column_of_each(layout)
    edges = list(layout.edges())
    assert {(edge.start, edge.end) for edge in edges} == {
        (dep, box.slug) for box in given_boxes for dep in box.deps
    }
    for edge in edges:
        channels = [bend.channel for bend in edge.bends]
        assert channels == list(range(columns[edge.start], columns[edge.end]))


@settings(max_examples=200, deadline=None)
@given(boxes(), st.booleans())
def test_lines_meet_only_where_they_lead_to_one_target(given_boxes, is_narrow):
    layout = layout_of(given_boxes, lambda node: 2, is_narrow=is_narrow)
    through, corners = defaultdict(set), set()
    for edge in layout.edges():
        for channel, place, row, way in points(edge):
            if way == "corner":
                corners.add((channel, place, row))
            for each in "-|" if way == "corner" else way:
                through[channel, place, row, each].add(edge[:2])

    for channel, place, row in {key[:3] for key in through}:
        ways = [through[channel, place, row, each] for each in "-|"]
        meeting = [ways[0] | ways[1]] if (channel, place, row) in corners else ways
        for edges in meeting:  # lines that only cross do not meet
            starts, ends = {start for start, _ in edges}, {end for _, end in edges}
            assert len(starts) <= 1 or len(ends) == 1, edges


def test_narrow_layouts_give_lines_to_one_target_one_track():
    many = [Node(f"s{index}") for index in range(30)]
    join = Node("join", tuple(node.slug for node in many))

    assert layout_of([*many, join], lambda node: 1).tracks == [29]
    assert layout_of([*many, join], lambda node: 1, is_narrow=True).tracks == [1]


def test_cells_are_compared_by_identity_so_that_large_flows_are_drawn_quickly():
    assert LayoutCell("a", []) != LayoutCell("a", [])


def test_around_a_step_are_its_neighbours_and_their_edges():
    fan = tuple(f"s{index}" for index in range(9))
    flow = Graph(
        (
            Node("begin"),
            *(Node(slug, ("begin",)) for slug in fan),
            Node("join", (*fan, "begin")),
            Node("end", ("join",)),
        )
    )

    assert [node.slug for node in flow.around("s3", 300).nodes] == ["begin", "s3", "join"]
    assert set(flow.around("s3", 300).edges) == {
        ("begin", "s3"), ("begin", "join"), ("s3", "join"),
    }  # fmt: skip
    assert [node.slug for node in flow.around("join", 4).nodes] == ["s0", "s1", "join", "end"]


def column_of_each(layout: Layout) -> dict[str, int]:
    return {
        cell.name: index
        for index, column in enumerate(layout.columns)
        for cell in column
        if cell.node
    }


def points(edge):
    """What an edge passes: channel, track (or between two), row, and how: `-`, `|` or a corner."""
    row = edge.row
    for channel, track, next_row in edge.bends:
        if track is None:
            yield from ((channel, place, row, "-") for place in range(2 * _MOST_TRACKS))
        else:
            here = 2 * track + 1
            low, high = sorted((row, next_row))
            yield from ((channel, place, row, "-") for place in range(here))
            yield from ((channel, here, at, "|") for at in range(low + 1, high))
            yield from ((channel, here, at, "corner") for at in {row, next_row} if low < high)
            if low == high:
                yield channel, here, row, "-"
            yield from ((channel, at, next_row, "-") for at in range(here + 1, 2 * _MOST_TRACKS))
        row = next_row
