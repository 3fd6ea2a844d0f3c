"""
Graph: a flow, or a run of it, as a picture: for terminals, for mermaid, and as JSON.

A graph is made of a shape (`graph_of`) or, with its states, of a run, and drawn. All forms go by
one layout: a step stands in the column after its farthest dep. Where the picture is too wide for
the terminal, `draw` lists the steps instead, one per line with its deps. No colour and no
clock: whoever draws says how long things took.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pgflowd.core.graph.canvas import picture
from pgflowd.core.graph.layout import Box, columns_of

SIGNS = {
    "created": "·",
    "started": "▶",
    "completed": "✔",
    "failed": "✖",
    "skipped": "↷",
    "cancelled": "⊘",
}
MERMAID_WORDS = {
    "call", "class", "classdef", "click", "default", "direction", "end", "flowchart", "graph",
    "href", "linkstyle", "style", "subgraph",
}  # fmt: skip
_ASCII = str.maketrans("┌┐└┘├┤┬┴┼─│▶✔✖↷⊘·…", "+++++++++-|>+x/#..")  # nothing moves


@dataclass(frozen=True)
class Node:
    """A step; `status` of a run, `detail` behind it in the box, `note` beside the picture."""

    slug: str
    deps: tuple[str, ...] = ()
    is_map: bool = False
    status: str | None = None
    detail: str = ""
    note: str = ""


@dataclass(frozen=True)
class Graph:
    nodes: tuple[Node, ...]  # in topological order

    @property
    def edges(self) -> list[tuple[str, str]]:
        return [(dep, node.slug) for node in self.nodes for dep in node.deps]


def graph_of(shape: Mapping[str, Any]) -> Graph:
    """The graph of a flow."""
    return Graph(
        tuple(
            Node(
                slug=step["slug"],
                deps=tuple(step.get("dependencies") or ()),
                is_map=step.get("stepType") == "map",
            )
            for step in shape["steps"]
        )
    )


def draw(graph: Graph, *, width: int | None = None, utf8: bool = True) -> str:
    """Boxes and arrows; a list where `width` columns are too few."""
    boxes = [Box(node.slug, node.deps, _lines(node), node.note) for node in graph.nodes]
    text = picture(boxes)
    if width is not None and any(len(line) > width for line in text.splitlines()):
        text = _list(graph, width)
    return text if utf8 else text.translate(_ASCII).encode("ascii", "replace").decode()


def mermaid(graph: Graph) -> str:
    """The graph in the language of mermaid."""
    lines = ["flowchart LR"]
    for node in graph.nodes:
        label = "<br/>".join(filter(None, (node.slug + _mark(node), _state(node))))
        left, right = ("[[", "]]") if node.is_map else ("[", "]")
        lines.append(f'    {_id(node.slug)}{left}"{_escaped(label)}"{right}')
    lines += [f"    {_id(dep)} --> {_id(slug)}" for dep, slug in graph.edges]
    return "\n".join(lines)


def as_json(graph: Graph) -> dict[str, Any]:
    """The graph for programs: nodes with their column and row, and edges."""
    columns = columns_of({node.slug: node.deps for node in graph.nodes})
    rows: dict[int, int] = {}
    nodes = []
    for node in graph.nodes:
        column = columns[node.slug]
        row = rows[column] = rows.get(column, -1) + 1
        kind = "map" if node.is_map else "single"
        entry = {"slug": node.slug, "kind": kind, "column": column, "row": row}
        if node.status:
            entry["status"] = node.status
        nodes.append(entry)
    return {"nodes": nodes, "edges": [{"from": a, "to": b} for a, b in graph.edges]}


def _lines(node: Node) -> tuple[str, ...]:
    state = _state(node)
    return (node.slug + _mark(node), state) if state else (node.slug + _mark(node),)


def _mark(node: Node) -> str:
    return " []" if node.is_map else ""


def _state(node: Node) -> str:
    if node.status is None:
        return node.detail
    return f"{SIGNS.get(node.status, '?')} {node.detail or node.status}"


def _list(graph: Graph, width: int) -> str:
    longest = max((len(node.slug + _mark(node)) for node in graph.nodes), default=0)
    lines = []
    for node in graph.nodes:
        after = f"after {', '.join(node.deps)}" if node.deps else ""
        parts = [(node.slug + _mark(node)).ljust(longest), _state(node), node.note, after]
        line = "  ".join(part for part in parts if part).rstrip()
        lines.append(line if len(line) <= width else line[: width - 1] + "…")
    return "\n".join(lines)


def _id(slug: str) -> str:
    """The slug, unless it is a word of mermaid's own."""
    return f"{slug}_" if slug.lower() in MERMAID_WORDS else slug


def _escaped(label: str) -> str:
    return label.replace('"', "#quot;")
