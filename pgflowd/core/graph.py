"""
A flow, or a run of it, as a picture for terminals, in the language of mermaid, and as JSON.

A graph is made of a shape (`graph_of`) or of a run with its states. All forms use one layout: a
step is in the column after its farthest dep. Where the picture is too wide for the terminal,
`draw` lists the steps instead, one per line with its deps. Durations come from the caller, as text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pgflowd.core.documents import versioned
from pgflowd.core.graph_geometry import Box, columns_of
from pgflowd.core.graph_picture import picture
from pgflowd.core.statuses import RunStatus, Status, StepStatus

MERMAID_WORDS = {
    "call", "class", "classdef", "click", "default", "direction", "end", "flowchart", "graph",
    "href", "linkstyle", "style", "subgraph",
}  # fmt: skip
_ASCII = str.maketrans("┌┐└┘├┤┬┴┼─│▶…", "+++++++++-|>.") | str.maketrans(
    {status.mark.sign: status.mark.ascii for status in (*StepStatus, *RunStatus)}
)  # each of one character, so the picture keeps its shape


@dataclass(frozen=True)
class Node:
    """A step; of a run with its status, a detail behind it, and a note next to the picture."""

    slug: str
    deps: tuple[str, ...] = ()
    is_map: bool = False
    status: Status | None = None
    detail: str = ""
    note: str = ""


@dataclass(frozen=True)
class Graph:
    nodes: tuple[Node, ...]  # in topological order

    @property
    def edges(self) -> list[tuple[str, str]]:
        return [(dep, node.slug) for node in self.nodes for dep in node.deps]

    def around(self, slug: str, most: int) -> Graph:
        """A step, its deps and the steps that depend on it, at most so many, and their edges."""
        by_slug = {node.slug: node for node in self.nodes}
        ups = list(by_slug[slug].deps)
        downs = [node.slug for node in self.nodes if slug in node.deps]
        room = most - 1
        ups = ups[: max(room - len(downs), room // 2)]
        kept = {slug, *ups, *downs[: room - len(ups)]}
        return Graph(
            tuple(
                replace(node, deps=tuple(dep for dep in node.deps if dep in kept))
                for node in self.nodes
                if node.slug in kept
            )
        )

    def to_json(self) -> dict[str, Any]:
        """Nodes with their column and row, and edges."""
        columns = columns_of({node.slug: node.deps for node in self.nodes})
        rows: dict[int, int] = {}
        nodes = []
        for node in self.nodes:
            column = columns[node.slug]
            row = rows[column] = rows.get(column, -1) + 1
            kind = "map" if node.is_map else "single"
            entry = {"slug": node.slug, "kind": kind, "column": column, "row": row}
            nodes.append({**entry, "status": node.status} if node.status else entry)
        edges = [{"from": start, "to": end} for start, end in self.edges]
        return versioned({"nodes": nodes, "edges": edges})


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
        label = "<br/>".join(_lines(node)).replace('"', "#quot;")
        left, right = ("[[", "]]") if node.is_map else ("[", "]")
        lines.append(f'    {_id(node.slug)}{left}"{label}"{right}')
    lines += [f"    {_id(dep)} --> {_id(slug)}" for dep, slug in graph.edges]
    return "\n".join(lines)


def _lines(node: Node) -> tuple[str, ...]:
    state = _state(node)
    return (node.slug + _mark(node), state) if state else (node.slug + _mark(node),)


def _mark(node: Node) -> str:
    return " []" if node.is_map else ""


def _state(node: Node) -> str:
    if node.status is None:
        return node.detail
    return f"{node.status.mark.sign} {node.detail or node.status}"


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
    """The slug; a word of mermaid's language gets an underscore."""
    return f"{slug}_" if slug.lower() in MERMAID_WORDS else slug
