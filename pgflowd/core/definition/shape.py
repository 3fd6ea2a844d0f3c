"""
Shape: a flow as JSON, the form in which runtimes and the database compare flows.

Section 7.3 of the SQL contract says what stands in it. Steps are in topological order, deps
sorted; options that nobody set are absent, so that the SQL's defaults rule. `differences` gives
the very texts of the SQL's `_compare_flow_shapes`; `option_differences` tells what operators
have tuned in the database, which is allowed and worth a warning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pgflowd.core.definition.order import in_order
from pgflowd.core.definition.spec import FLOW_OPTIONS, FlowSpec, StepSpec
from pgflowd.core.json.unpatched import dumps
from pgflowd.core.json.values import as_stored

Shape = dict[str, Any]

_OPTION_NAMES = {
    "max_attempts": "maxAttempts",
    "base_delay": "baseDelay",
    "timeout": "timeout",
    "start_delay": "startDelay",
}


def shape_of(flow: FlowSpec) -> Shape:
    """The shape of a flow without problems."""
    steps = {step.slug: step for step in flow.steps}
    order = in_order({step.slug: step.deps for step in flow.steps})
    return {
        "steps": [_step_shape(steps[slug]) for slug in order],
        "options": _options(flow.options),
    }


def _step_shape(step: StepSpec) -> Shape:
    return {
        "slug": step.slug,
        "stepType": "map" if step.is_map else "single",
        "dependencies": sorted(step.deps),
        "whenUnmet": step.options.get("when_unmet", "skip"),
        "whenExhausted": step.options.get("when_exhausted", "fail"),
        "requiredInputPattern": _pattern(step.options, "if_"),
        "forbiddenInputPattern": _pattern(step.options, "if_not"),
        "options": _options(step.options),
    }


def _pattern(options: Mapping[str, Any], name: str) -> Shape:
    if name in options:
        return {"defined": True, "value": as_stored(options[name])}
    return {"defined": False}


def _options(options: Mapping[str, Any]) -> dict[str, int]:
    return {
        json_name: options[name] for name, json_name in _OPTION_NAMES.items() if name in options
    }


def differences(first: Shape, second: Shape) -> list[str]:
    """How two shapes differ, in the words of the SQL; options do not count."""
    ours, theirs = first.get("steps") or [], second.get("steps") or []
    found = []
    if len(ours) != len(theirs):
        found.append(f"Step count differs: {len(ours)} vs {len(theirs)}")
    for at in range(max(len(ours), len(theirs))):
        if at >= len(ours):
            slug = theirs[at]["slug"]
            found.append(f"Step at index {at}: missing in first shape (second has '{slug}')")
        elif at >= len(theirs):
            slug = ours[at]["slug"]
            found.append(f"Step at index {at}: missing in second shape (first has '{slug}')")
        else:
            found.extend(f"Step at index {at}: {text}" for text in _at(ours[at], theirs[at]))
    return found


def changes_between(before: Shape, after: Shape) -> list[str]:
    """What became different from one shape to the next, as people say it."""
    old = {step["slug"]: step for step in before.get("steps") or []}
    new = {step["slug"]: step for step in after.get("steps") or []}
    found = [f"+ step {slug}{_after(step)}" for slug, step in new.items() if slug not in old]
    found += [f"- step {slug}" for slug in old if slug not in new]
    for slug in [slug for slug in new if slug in old]:
        was, now = _after(old[slug]), _after(new[slug])
        if was != now:
            found.append(f"step {slug}{now or ', first'}")
        others = [text for text in _at(new[slug], old[slug]) if "dependencies" not in text]
        found += [f"step {slug}: {text}" for text in others]
    return found or ["another order of steps"]


def _after(step: Shape) -> str:
    *others, last = sorted(step.get("dependencies") or []) or [""]
    return f", after {', '.join(others)}{' and ' * bool(others)}{last}" if last else ""


def _at(ours: Shape, theirs: Shape) -> Iterator[str]:
    yield from _text_difference("slug", "slug", ours, theirs)
    yield from _text_difference("stepType", "type", ours, theirs)
    left, right = (", ".join(sorted(s.get("dependencies") or [])) for s in (ours, theirs))
    if left != right:
        yield f"dependencies differ [{left}] vs [{right}]"
    yield from _text_difference("whenUnmet", "whenUnmet", ours, theirs)
    yield from _text_difference("whenExhausted", "whenExhausted", ours, theirs)
    for key in ("requiredInputPattern", "forbiddenInputPattern"):
        if ours.get(key) != theirs.get(key):
            left, right = (jsonb_text(s[key]) if key in s else "" for s in (ours, theirs))
            yield f"{key} differs '{left}' vs '{right}'"


def _text_difference(key: str, word: str, ours: Shape, theirs: Shape) -> Iterator[str]:
    left, right = ours.get(key), theirs.get(key)
    if left is not None and right is not None and left != right:
        yield f"{word} differs '{left}' vs '{right}'"


OPTIONS_NEXT = "change it there, in pgflow.steps or pgflow.flows: it counts from the next attempt"


def option_differences(ours: Shape, database: Shape) -> list[str]:
    """Where the database has another value than the code sets, e.g. `step a: timeout is …`."""
    found = list(_option_texts("", ours.get("options"), database.get("options")))
    theirs = {step["slug"]: step for step in database.get("steps") or []}
    for step in ours.get("steps") or []:
        options = theirs.get(step["slug"], {}).get("options")
        found.extend(_option_texts(f"step {step['slug']}: ", step.get("options"), options))
    return found


def _option_texts(who: str, ours: Any, theirs: Any) -> Iterator[str]:
    for name in (*FLOW_OPTIONS, "start_delay"):
        key = _OPTION_NAMES[name]
        mine, other = (ours or {}).get(key), (theirs or {}).get(key)
        if mine is not None and theirs is not None and mine != other:
            shown = "unset" if other is None else other
            yield f"{who}{name} is {mine} in the code, {shown} in the database; the database rules"


def jsonb_text(value: Any) -> str:
    """Print a value as PostgreSQL prints jsonb: keys by length and bytes, blanks after , and :."""
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: (len(key.encode()), key.encode()))
        return "{" + ", ".join(f"{jsonb_text(key)}: {jsonb_text(value[key])}" for key in keys) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(jsonb_text(element) for element in value) + "]"
    return dumps(value)
