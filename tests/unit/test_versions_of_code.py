"""Which versions of a flow its code can serve, for random pairs of shapes."""

from __future__ import annotations

import random
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import pytest
from support.covers import covers

from pgflowd import Flow
from pgflowd.core.definition.shape import (
    facts_from,
    facts_of,
    steps_of_version,
    unserved_steps,
    with_run,
)
from pgflowd.core.definition.spec import arguments_for
from pgflowd.core.json import SQL_NULL

SLUGS = ["a", "b", "c", "d", "e"]


def handler(parameters: list[str]) -> Any:
    made: dict[str, Any] = {}
    ordered = sorted(parameters, key=lambda parameter: "=" in parameter)
    exec(f"def made({', '.join(ordered)}): return locals()", made)
    return made["made"]


def random_flow(chance: random.Random) -> Flow:
    """Steps in a random order, maps among them, each after some of those before it."""
    flow, known = Flow("orders"), list[str]()
    for slug in chance.sample(SLUGS, chance.randint(1, len(SLUGS))):
        deps = chance.sample(known, chance.randint(0, min(2, len(known))))
        if deps and chance.random() < 0.3:
            flow.map(slug=slug, over=deps[0])(handler(["item"]))
        else:
            optional = [f"{dep}=None" for dep in deps[:1]] if chance.random() < 0.5 else deps[:1]
            first = chance.choice([["run"], ["run=None"], []])
            flow.step(slug=slug)(handler([*first, *deps[1:], *optional]))
        known.append(slug)
    return flow


@pytest.mark.parametrize("seed", range(300))
def test_what_is_served_gets_its_arguments_and_what_is_not_lacks_one(seed: int) -> None:
    chance = random.Random(seed)
    old, new = random_flow(chance), random_flow(chance)
    for slug in chance.sample(SLUGS, chance.randint(0, 2)):
        parameters = chance.choice([["run"], ["ctx"], ["item"], ["item=None", "input=None"]])
        new.retired(since=2, slug=slug)(handler(parameters))
    shape, facts = old.shape(), facts_from(asdict(each) for each in facts_of(new.spec))

    unserved = {step.slug: step for step in unserved_steps(shape, facts, 1)}
    steps = steps_of_version(new.spec, shape, 1)

    for step in shape["steps"]:
        slug, deps = step["slug"], step["dependencies"]
        known = {*deps, "run", "ctx", "input"} if step["stepType"] == "single" else {"item", "ctx"}
        if slug not in steps:
            assert "has no handler" in unserved[slug].why
            continue
        needed = {p.name for p in steps[slug].parameters if not p.has_default}
        assert (slug in unserved) == bool(needed - known)
        if slug not in unserved:
            given = dict.fromkeys(deps, 1) if step["stepType"] == "single" else "abcde"
            record = SimpleNamespace(input=given, flow_input=SQL_NULL)
            arguments = arguments_for(steps[slug], record, lambda: 2, None)
            assert needed <= arguments.keys() <= known
            assert arguments.get("item", "abcde") == "abcde"
            assert all(arguments[dep] == 1 for dep in deps if dep in arguments)
            takes = any(p.name in ("run", "input") for p in steps[slug].parameters)
            later = bool(deps) and step["stepType"] == "single" and takes
            assert (slug in with_run(shape, facts, 1)) == later
    assert set(unserved) | set(steps) == {step["slug"] for step in shape["steps"]}


def test_the_retired_handler_for_the_nearest_later_version_is_chosen() -> None:
    flow = Flow("orders")
    flow.step(slug="a")(handler(["run"]))
    for since in (3, 5):
        flow.retired(since=since, slug="a")(handler([f"since_{since}=0"]))
    shape = flow.shape()

    chosen = [
        [p.name for p in steps_of_version(flow.spec, shape, version)["a"].parameters]
        for version in (1, 2, 3, 4, 5)
    ]

    assert chosen == [["since_3"], ["since_3"], ["since_5"], ["since_5"], ["run"]]
    assert [step["slug"] for step in shape["steps"]] == ["a"]


@covers("E205")
def test_what_is_wrong_with_retired_handlers_is_told() -> None:
    flow = Flow("orders")
    flow.step(slug="a")(handler(["run"]))
    flow.retired(since=1, slug="b")(handler(["run"]))
    flow.retired(since=2, slug="c")(handler(["*args"]))
    flow.retired(since=2, slug="d")(handler(["run"]))
    flow.retired(since=2, slug="d")(handler(["run"]))

    assert [problem.code for problem in flow.check()] == ["E209", "E206", "E205"]
