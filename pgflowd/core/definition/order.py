"""
The order of a flow's steps, and the cycles that forbid one.

Steps may be written in any order. `in_order` keeps that order as far as deps allow: the next step
is always the first written step whose deps are all placed. So a flow written top down keeps its
order, which other runtimes compare by position.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping


def in_order(deps: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the names in a topological, stable order, without those on or after a cycle.

    `deps` maps each name to the names it depends on, in the order of writing. Deps that are not
    keys of it are ignored.
    """
    written = {name: index for index, name in enumerate(deps)}
    missing = {name: {dep for dep in its if dep in written} for name, its in deps.items()}
    dependents: dict[str, list[str]] = {name: [] for name in written}
    for name, its in missing.items():
        for dep in its:
            dependents[dep].append(name)
    ready = [(index, name) for name, index in written.items() if not missing[name]]
    order = []
    while ready:
        _, name = heapq.heappop(ready)
        order.append(name)
        for other in dependents[name]:
            missing[other].discard(name)
            if not missing[other]:
                heapq.heappush(ready, (written[other], other))
    return order


def cycles(deps: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Return one cycle for each group of steps that depend on each other.

    A cycle begins with the name written first; `[a, b]` reads: a depends on b, and b on a.
    """
    left, found, written = dict(deps), [], list(deps)
    while unplaced := left.keys() - set(in_order(left)):
        path = [next(name for name in written if name in unplaced)]
        # each unplaced name depends on another, so the path comes back to itself
        while (dep := min(set(left[path[-1]]) & unplaced)) not in path:
            path.append(dep)
        cycle = path[path.index(dep) :]
        first = cycle.index(min(cycle, key=written.index))
        found.append(cycle[first:] + cycle[:first])
        left = {name: its for name, its in left.items() if name not in cycle}
    return found
