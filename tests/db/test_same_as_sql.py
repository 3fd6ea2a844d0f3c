"""Values that `core` computes itself are equal to those of the database."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from psycopg.types.json import Jsonb

from pgflowd import Flow
from pgflowd.core.definition.shape import changes_between, contains
from pgflowd.core.json import as_stored, decode, encode, jsonb_text
from pgflowd.testing.engine import json_type, retry_delay_s

often = settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
scalars = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.5, 1.0, "a", "b", ""])
values = st.recursive(
    scalars,
    lambda v: st.lists(v, max_size=3) | st.dictionaries(st.sampled_from("abc"), v, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(st.sampled_from("abc"), values, max_size=3)


@pytest.fixture
def ask(database) -> Any:
    connection = database.connect()

    def asked(query: str, *params: Any) -> Any:
        row = connection.execute(query, params).fetchone()
        return row and row[0]

    return asked


@often
@given(document=values, pattern=objects)
def test_containment_is_that_of_jsonb(ask, document, pattern):
    answer = ask("select %s::jsonb @> %s::jsonb", Jsonb(document), Jsonb(pattern))

    assert contains(document, pattern) == answer


@often
@given(value=values)
def test_texts_and_types_of_json_are_those_of_jsonb(ask, value):
    assert ask("select %s::jsonb::text", Jsonb(value)) == jsonb_text(value)
    assert ask("select jsonb_typeof(%s::jsonb)", Jsonb(value)) == json_type(value)


numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=4)


@often
@given(value=st.recursive(numbers, lambda v: st.lists(v) | st.dictionaries(texts, v), max_leaves=9))
@example(
    value=[1e22, 1e23, 1.5e16, -0.0, 5e-324, 1.7976931348623157e308, {"bb": 1, "c": 2, "ä": 3}]
)
def test_values_come_back_as_the_database_gives_them(ask, value):
    back = ask("select %s::jsonb::text", encode(value))

    assert repr(as_stored(value)) == repr(decode(back))


@often
@given(base=st.integers(0, 2**31 - 1), attempts=st.integers(1, 2000))
def test_delays_of_retries_are_those_of_the_database(ask, base, attempts):
    assert ask("select pgflow.calculate_retry_delay(%s, %s)", base, attempts) == retry_delay_s(
        base, attempts
    )


def flow() -> Flow:
    made = Flow("f", timeout=7)

    @made.step(max_attempts=2, start_delay=3)
    def first(run): ...

    @made.map(over="first", if_={"first": [1]}, when_unmet="skip-cascade")
    def second(item): ...

    @made.step(after=["first"], when_exhausted="skip", if_not={"first": {"bb": 1, "a": {}}})
    def third(second): ...

    return made


def test_a_deployed_flow_has_the_shape_that_the_code_has(ask):
    shape = flow().shape()
    ask("select pgflow._create_flow_from_shape('f', %s)", Jsonb(shape))

    assert changes_between(ask("select pgflow._get_flow_shape('f')"), shape) == []
    assert ask("select pgflow.ensure_flow_compiled('f', %s)", Jsonb(shape))["status"] == "verified"


changes = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from(
            [
                ("slug", "other"),
                ("stepType", "map"),
                ("dependencies", ["second", "first"]),
                ("dependencies", []),
                ("whenUnmet", "fail"),
                ("whenExhausted", "skip-cascade"),
                ("requiredInputPattern", {"defined": False}),
                ("requiredInputPattern", {"defined": True, "value": {"ccc": None, "b": [1.5]}}),
                ("forbiddenInputPattern", {"defined": True, "value": {}}),
            ]
        ),
    ),
    max_size=4,
)


@often
@given(changes=changes, fewer=st.integers(0, 2))
def test_shapes_differ_where_they_do_for_the_database(ask, changes, fewer):
    ours, theirs = flow().shape(), copy.deepcopy(flow().shape())
    for at, (key, value) in changes:
        theirs["steps"][at][key] = value
    del theirs["steps"][3 - fewer :]

    for one, other in ((ours, theirs), (theirs, ours)):
        answer = ask("select pgflow._compare_flow_shapes(%s, %s)", Jsonb(one), Jsonb(other))
        assert bool(changes_between(one, other)) == bool(answer)
