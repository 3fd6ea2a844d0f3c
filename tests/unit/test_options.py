"""The registry of options: equal to the typed signatures, and the only place that lists options."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pgflowd
from pgflowd import Flow, Limit
from pgflowd.core.definition import options as registry
from pgflowd.core.definition.options import (
    OPTIONS,
    Column,
    OptionKind,
    Owner,
    option_cells,
    option_names,
)
from pgflowd.core.definition.shape import plan_of

PACKAGE = Path(pgflowd.__file__).parent
SIGNATURES = {
    Owner.FLOW: registry.FlowOptions,
    Owner.STEP: registry.StepOptions,
    Owner.MAP: registry.MapOptions,
    Owner.JOB: registry.JobOptions,
    Owner.UNDO: registry.UndoOptions,
}
# words of a claimed task, too, as in `ctx.max_attempts`, or of plain English; as the name of an
# option they stand in quotes
SHARED_WORDS = {"limit", "on", "settle", "max_attempts", "needs", "timeout"}
JSON_NAMES = {option.name: option.json_name for option in OPTIONS if option.json_name}
OF_STARTS = {o.name for o in OPTIONS if o.kind is OptionKind.START}  # words of each start, too


@pytest.mark.parametrize("owner", Owner)
def test_the_typed_signatures_have_the_options_of_the_registry(owner: Owner):
    assert SIGNATURES[owner].__annotations__.keys() == option_names(owner)


def test_each_option_has_one_row_and_its_own_json_name():
    assert len({option.name for option in OPTIONS}) == len(OPTIONS)
    assert len(set(JSON_NAMES.values())) == len(JSON_NAMES)


def files_that_name(name: str) -> list[str]:
    """The product files that name an option, in Python or JSON; the examples are users."""
    words = "|".join({name, JSON_NAMES[name]} - {"undo"})  # which is a verb of commands, too
    pattern = re.compile(f"[\"']({words})[\"']" if name in SHARED_WORDS else f"\\b({words})\\b")
    return [
        path.relative_to(PACKAGE).as_posix()
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.parent.name != "examples" and pattern.search(path.read_text())
    ]


@pytest.mark.parametrize("name", sorted(JSON_NAMES.keys() - OF_STARTS))
def test_few_files_name_an_option(name: str):
    """The registry, the signature, and what decides by the value: the twin of the SQL."""
    named = files_that_name(name)

    assert "core/definition/options.py" in named
    assert len(named) <= 10, named


def test_a_plan_has_all_options_in_force():
    made = Flow("shop", timeout=30)
    made.step(slug="first", timeout=20, start_delay=9)(lambda run: run)
    made.step(slug="second", if_={"a": 1})(lambda run: run)

    first, second = plan_of(made.shape()).steps.values()

    assert first.options == {
        "max_attempts": 3, "base_delay": 5, "timeout": 20, "start_delay": 9, "if_": None,
        "if_not": None, "when_unmet": "skip", "when_exhausted": "fail", "needs": None,
        "limit": None, "crash_limit": None, "on_crash_limit": None, "on": None, "settle": None,
    }  # fmt: skip
    assert (second.options["timeout"], second.options["if_"]) == (30, {"a": 1})


def test_the_cells_of_a_step_leave_out_options_without_effect():
    made = Flow("shop")
    made.step(slug="plain")(lambda run: run)
    made.step(
        slug="choosy", if_={"a": 1}, if_not={"b": 2}, when_unmet="fail", start_delay=7, base_delay=0
    )(lambda run: run)

    plain, choosy = (option_cells(step.options) for step in plan_of(made.shape()).steps.values())

    assert list(plain) == list(Column)
    assert list(plain.values()) == ["3", "5s", "60s", "", "fail", "", "", "", "", ""]
    assert choosy[Column.IF] == 'if {"a": 1} if not {"b": 2} else fail'
    assert (choosy[Column.START], choosy[Column.DELAY]) == ("7s", "0s")


def test_needs_are_sorted_in_the_shape_and_wrong_ones_are_refused():
    made, wrong = Flow("shop"), Flow("shop")
    made.step(slug="first", needs=["gpu", "80gb", "gpu"])(lambda run: run)
    for at, needs in enumerate(["gpu", [], ["a b"], ["a,b"], [1], ["x" * 65], ["ü"]]):
        wrong.step(slug=f"step_{at}", needs=needs)(lambda run: run)

    (shape,) = made.shape()["steps"]
    (first,) = plan_of(made.shape()).steps.values()
    assert shape["options"] == {"needs": ["80gb", "gpu"]}
    assert option_cells(first.options)[Column.NEEDS] == "80gb, gpu"
    assert [problem.code for problem in wrong.check()] == ["E209"] * 7


def test_a_limit_of_the_shape_has_what_was_given_and_wrong_ones_are_refused():
    made, wrong = Flow("shop"), Flow("shop")
    made.map(slug="first", limit=Limit(2, key="item.host", name="hosts"))(lambda item: item)
    made.step(slug="second", limit=Limit(5))(lambda run: run)
    for at, limit in enumerate([
        5, Limit(0), Limit(True), Limit(1, key="item"), Limit(1, key="x"), Limit(1, key="run..a"),
        Limit(1, name="a/b"), Limit(1, name=""),
    ]):  # fmt: skip
        wrong.step(slug=f"step_{at}", limit=limit)(lambda run: run)

    first, second = plan_of(made.shape()).steps.values()
    given = {"slots": 2, "name": "hosts", "path": ["item", "host"]}
    assert (first.options["limit"], second.options["limit"]) == (given, {"slots": 5})
    assert option_cells(first.options)[Column.LIMIT] == "2 per item.host as hosts"
    assert [problem.code for problem in wrong.check()] == ["E226"] * 8


def test_crash_limits_of_the_shape_follow_the_code_and_wrong_ones_are_refused():
    made, wrong = Flow("shop"), Flow("shop")
    made.step(slug="first", crash_limit=3, on_crash_limit="quarantine")(lambda run: run)
    for at, options in enumerate([
        {"crash_limit": 0}, {"crash_limit": 1001}, {"crash_limit": "3"}, {"crash_limit": True},
        {"on_crash_limit": "skip"}, {"on_crash_limit": 1},
    ]):  # fmt: skip
        wrong.step(slug=f"step_{at}", **options)(lambda run: run)

    (shape,) = made.shape()["steps"]
    (first,) = plan_of(made.shape()).steps.values()
    assert shape["options"] == {"crashLimit": 3, "onCrashLimit": "quarantine"}
    assert option_cells(first.options)[Column.CRASHES] == "3 then quarantine"
    assert [problem.code for problem in wrong.check()] == ["E209"] * 6


def test_the_version_is_no_part_of_the_shape_and_at_least_one():
    plain, newer, wrong = Flow("shop"), Flow("shop"), Flow("shop")
    plain.step(slug="first")(lambda run: run)
    newer.step(slug="first", version=2)(lambda run: run)
    wrong.step(slug="first", version=0)(lambda run: run)

    assert newer.shape() == plain.shape()
    assert newer.steps["first"].options == {"version": 2}
    assert [problem.code for problem in wrong.check()] == ["E209"]
