"""Pictures of flows: their layout, and that a reader finds all edges and no others."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pgflowd.core.documents import versioned
from pgflowd.core.graph import Graph, Node, draw, mermaid, placed
from pgflowd.core.statuses import StepStatus

WAYS = {  # from a sign, where a line may go on
    "─": "lr", "│": "ud", "┌": "dr", "┐": "dl", "└": "ur", "┘": "ul",
    "├": "udr", "┤": "udl", "┬": "dlr", "┴": "ulr", "┼": "udlr",
}  # fmt: skip
STEPS = {"u": (-1, 0), "d": (1, 0), "l": (0, -1), "r": (0, 1)}
BACK = {"u": "d", "d": "u", "l": "r", "r": "l"}


def graph(*steps: str) -> Graph:
    """Each step as `slug < dep dep`."""
    nodes = []
    for step in steps:
        slug, _, deps = step.partition(" < ")
        nodes.append(Node(slug, tuple(deps.split())))
    return Graph(tuple(nodes))


def dressed() -> Graph:
    both = ("sentiment", "summary")
    return Graph(
        (
            Node("website", status=StepStatus.COMPLETED, detail="0.30s"),
            Node("sentiment", ("website",), status=StepStatus.COMPLETED, detail="0.09s"),
            Node("summary", ("website",), False, StepStatus.STARTED, "1s  2/3", "attempt 2 of 3"),
            Node("save", both, status=StepStatus.CREATED),
        )
    )


def test_a_run_looks_as_on_the_screen():
    assert draw(dressed(), width=80) == "\n".join(
        [
            "┌─────────┐    ┌───────────┐    ┌───────────┐",
            "│ website ├─┬─▶│ sentiment ├─┬─▶│ save      │",
            "│ ✔ 0.30s │ │  │ ✔ 0.09s   │ │  │ · created │",
            "└─────────┘ │  └───────────┘ │  └───────────┘",
            "            │  ┌───────────┐ │",
            "            └─▶│ summary   ├─┘                 attempt 2 of 3",
            "               │ ▶ 1s  2/3 │",
            "               └───────────┘",
        ]
    )


def test_without_utf8_the_same_picture_has_ascii_signs():
    drawn = draw(dressed(), utf8=False)

    assert drawn.isascii()
    assert "| website +-+->| sentiment +-+->| save" in drawn
    assert [len(line) for line in drawn.splitlines()] == [
        len(line) for line in draw(dressed()).splitlines()
    ]


def test_where_the_picture_is_too_wide_there_is_a_list():
    assert draw(dressed(), width=45).splitlines() == [
        "website    ✔ 0.30s",
        "sentiment  ✔ 0.09s  after website",
        "summary    ▶ 1s  2/3  attempt 2 of 3  after …",
        "save       · created  after sentiment, summa…",
    ]


def test_mermaid_marks_maps_and_states():
    flow = Graph((Node("items"), Node("each", ("items",), is_map=True, status=StepStatus.FAILED)))

    assert mermaid(flow) == "\n".join(
        [
            "flowchart LR",
            '    items["items"]',
            '    each[["each []<br/>✖ failed"]]',
            "    items --> each",
        ]
    )


def test_mermaid_is_not_confused_by_its_own_words():
    assert "a --> end_" in mermaid(graph("a", "end < a"))


def test_json_has_places_and_edges():
    drawn = versioned(placed(graph("a", "b < a", "c < a", "d < a c")))

    assert [(node["slug"], node["column"], node["row"]) for node in drawn["nodes"]] == [
        ("a", 0, 0),
        ("b", 1, 0),
        ("c", 1, 1),
        ("d", 2, 0),
    ]
    assert {"from": "a", "to": "d"} in drawn["edges"]


def test_an_empty_flow_is_an_empty_picture():
    assert draw(Graph(())) == ""


@st.composite
def graphs(draw_: st.DrawFn) -> Graph:
    nodes: list[Node] = []
    for index in range(draw_(st.integers(1, 9))):
        slugs = [node.slug for node in nodes]
        deps = draw_(st.lists(st.sampled_from(slugs), unique=True, max_size=4)) if slugs else []
        status = draw_(st.sampled_from([None, StepStatus.COMPLETED, StepStatus.STARTED]))
        nodes.append(Node("abcdefghi"[index], tuple(deps), status=status))
    return Graph(tuple(nodes))


def readable_edges(picture: str) -> set[tuple[str, str]]:
    """Follow every line from left to right, as a reader does, and return where it arrives."""
    rows = picture.splitlines()
    grid = {(y, x): sign for y, row in enumerate(rows) for x, sign in enumerate(row)}
    slugs = {
        at: sign for at, sign in grid.items() if sign.isalpha() and grid[at[0], at[1] - 2] == "│"
    }
    boxes = {}  # each cell on a box's left border to its slug
    for (y, x), slug in slugs.items():
        row = y
        while grid.get((row, x - 2)) == "│":
            boxes[row, x - 2] = slug
            row += 1
    edges = set()
    for (y, x), slug in slugs.items():
        end = x
        while grid[y, end] not in "│├":
            end += 1
        if grid[y, end] == "├":
            edges |= {(slug, target) for target in arrivals(grid, boxes, (y, end + 1), "r")}
    return edges


def arrivals(grid, boxes, start, heading) -> set[str]:
    found, seen, pending = set(), set(), [(start, heading)]
    while pending:
        at, way = pending.pop()
        sign = grid.get(at, " ")
        if (at, way) in seen or sign == " ":
            continue
        seen.add((at, way))
        if sign == "▶":
            found.add(boxes[at[0], at[1] + 1])
            continue
        crossing = way == "r" and sign == "│"
        ways = "r" if crossing else WAYS[sign].replace(BACK[way], "").replace("l", "")
        for onward in ways:
            step = STEPS[onward]
            pending.append(((at[0] + step[0], at[1] + step[1]), onward))
    return found


@settings(max_examples=300, deadline=None)
@given(graphs())
def test_exactly_the_edges_that_exist_can_be_read(flow):
    assert readable_edges(draw(flow)) == set(flow.edges)
