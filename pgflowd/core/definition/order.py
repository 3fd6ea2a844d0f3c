"""
DAG: the order of steps, and the cycles that leave them without one.

Steps may be written in any order. `in_order` keeps the order of writing as far as deps
allow: the next step is always the first one written whose deps are all placed. So a flow
written top down keeps its order, which other runtimes compare by position.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping


def in_order(deps: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the names in a topological, stable order; those on or behind a cycle are left out.

    `deps` maps each name to what it depends on, in the order of writing. Names that stand
    only on the right are ignored.
    """
    written = {name: index for index, name in enumerate(deps)}
    waiting = {name: {dep for dep in ups if dep in written} for name, ups in deps.items()}
    dependents: dict[str, list[str]] = {name: [] for name in written}
    for name, ups in waiting.items():
        for dep in ups:
            dependents[dep].append(name)
    ready = [(index, name) for name, index in written.items() if not waiting[name]]
    order = []
    while ready:
        _, name = heapq.heappop(ready)
        order.append(name)
        for other in dependents[name]:
            waiting[other].discard(name)
            if not waiting[other]:
                heapq.heappush(ready, (written[other], other))
    return order


def cycles(deps: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Return one cycle of each knot, each beginning with the name written first.

    A cycle `[a, b]` reads: a depends on b, and b on a.
    """
    left, found = dict(deps), []
    while stuck := left.keys() - set(in_order(left)):
        start = next(name for name in deps if name in stuck)
        cycle = _walk_to_cycle(start, {name: sorted(set(left[name]) & stuck) for name in stuck})
        found.append(_turned(cycle, list(deps)))
        left = {name: ups for name, ups in left.items() if name not in cycle}
    return found


def _walk_to_cycle(start: str, deps: Mapping[str, list[str]]) -> list[str]:
    """Follow deps until a name comes again; where all are stuck, each has one to follow."""
    path = [start]
    while (ahead := deps[path[-1]][0]) not in path:
        path.append(ahead)
    return path[path.index(ahead) :]


def _turned(cycle: list[str], written: list[str]) -> list[str]:
    first = min(range(len(cycle)), key=lambda at: written.index(cycle[at]))
    return cycle[first:] + cycle[:first]
