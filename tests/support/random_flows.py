"""
Random flows for property tests: shapes, inputs, and what each handler does.

A shape is that of pgflow.get_flow_shape with options. What a handler returns is a value drawn
with the flow, so that two drivers which run the tasks in another order do the same to each of them.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

SCALARS = st.sampled_from([0, 1, "", "x", None, True, False, {"ok": 1}, {"ok": 2}, {}])
ARRAYS = st.lists(SCALARS, max_size=3)
MODES = ["fail", "skip", "skip-cascade"]


@st.composite
def flows(draw: st.DrawFn, *, order_matters: bool = True) -> dict[str, Any]:
    """A shape, an input, and for each step: what it returns, and how often it fails before."""
    count = draw(st.integers(1, 7))
    steps: list[dict[str, Any]] = []
    handlers: dict[str, dict[str, Any]] = {}
    for index in range(count):
        step = draw(_steps(index, [step["slug"] for step in steps], order_matters))
        steps.append(step)
    mapped = {step["dependencies"][0] for step in steps if _is_dependent_map(step)}
    for step in steps:
        outputs = SCALARS if order_matters else ARRAYS
        fine = ARRAYS if step["slug"] in mapped else st.one_of(SCALARS, ARRAYS)
        rare = draw(st.integers(0, 9)) == 0
        handlers[step["slug"]] = {
            "output": draw(outputs if rare else fine),
            "failures": draw(st.sampled_from([0, 0, 0, 1, 3])),
        }
    root_map = any(step["stepType"] == "map" and not step["dependencies"] for step in steps)
    given = draw(ARRAYS) if root_map else draw(st.sampled_from([{}, {"x": 1}, {"x": 2}, [], "x"]))
    return {"steps": steps, "options": {"baseDelay": 0}, "input": given, "handlers": handlers}


def _is_dependent_map(step: dict[str, Any]) -> bool:
    return step["stepType"] == "map" and bool(step["dependencies"])


@st.composite
def _steps(draw: st.DrawFn, index: int, before: list[str], order_matters: bool) -> dict[str, Any]:
    is_map = draw(st.integers(0, 2)) == 0
    deps = (
        draw(st.lists(st.sampled_from(before), unique=True, max_size=1 if is_map else 3))
        if (before)
        else []
    )
    unmet = draw(st.sampled_from(MODES if order_matters else MODES[1:]))
    exhausted = draw(st.sampled_from(MODES if order_matters else MODES[1:]))
    return {
        "slug": f"s{index}",
        "stepType": "map" if is_map else "single",
        "dependencies": sorted(deps),
        "whenUnmet": unmet,
        "whenExhausted": exhausted,
        "requiredInputPattern": draw(_patterns(deps)),
        "forbiddenInputPattern": draw(_patterns(deps)),
        "options": {
            "maxAttempts": draw(st.sampled_from([0, 1, 2])),
            "startDelay": 0,
            **({"settle": True} if draw(st.integers(0, 5)) == 0 else {}),
        },
    }


@st.composite
def _patterns(draw: st.DrawFn, deps: list[str]) -> dict[str, Any]:
    if draw(st.integers(0, 4)):
        return {"defined": False}
    key = draw(st.sampled_from(deps or ["x"]))
    value = draw(st.sampled_from([1, {"ok": 1}, {}, [], "x"]))
    return {"defined": True, "value": {key: value}}


def attempt_fails(flow: dict[str, Any], slug: str, index: int, attempt: int) -> bool:
    """Does this attempt fail? The handler of a map fails at its odd elements only."""
    is_map = next(s for s in flow["steps"] if s["slug"] == slug)["stepType"] == "map"
    fails = attempt <= flow["handlers"][slug]["failures"]
    return fails and (not is_map or index % 2 == 1)
