"""The differences of two shapes, text by text."""

import pytest
from psycopg.types.json import Jsonb

ABSENT = {"defined": False}


def step(slug="a", **more):
    return {
        "slug": slug,
        "stepType": "single",
        "dependencies": [],
        "whenUnmet": "skip",
        "whenExhausted": "fail",
        "requiredInputPattern": ABSENT,
        "forbiddenInputPattern": ABSENT,
        **more,
    }


def compare(suite, local, db):
    return suite.value(
        "select pgflow._compare_flow_shapes(p_local => %s, p_db => %s)",
        Jsonb({"steps": local}),
        Jsonb({"steps": db}),
    )


def test_equal_shapes_have_no_differences(suite):
    assert compare(suite, [step("a"), step("b")], [step("a"), step("b")]) == []
    assert compare(suite, [], []) == []


def test_a_step_more_in_the_second(suite):
    assert compare(suite, [step("a")], [step("a"), step("b")]) == [
        "Step count differs: 1 vs 2",
        "Step at index 1: missing in first shape (second has 'b')",
    ]


def test_a_step_more_in_the_first(suite):
    assert compare(suite, [step("a"), step("b")], [step("a")]) == [
        "Step count differs: 2 vs 1",
        "Step at index 1: missing in second shape (first has 'b')",
    ]


def test_everything_missing(suite):
    assert compare(suite, [], [step("a"), step("b")]) == [
        "Step count differs: 0 vs 2",
        "Step at index 0: missing in first shape (second has 'a')",
        "Step at index 1: missing in first shape (second has 'b')",
    ]


def test_slug(suite):
    assert compare(suite, [step("first")], [step("different")]) == [
        "Step at index 0: slug differs 'first' vs 'different'"
    ]


def test_type(suite):
    assert compare(suite, [step()], [step(stepType="map")]) == [
        "Step at index 0: type differs 'single' vs 'map'"
    ]


def test_dependencies(suite):
    assert compare(
        suite,
        [step(), step("b", dependencies=["alpha"])],
        [step(), step("b", dependencies=["beta"])],
    ) == ["Step at index 1: dependencies differ [alpha] vs [beta]"]


def test_dependencies_are_sorted_and_joined(suite):
    one, two = step(dependencies=["c", "a"]), step(dependencies=["b", "a", "z"])

    assert compare(suite, [one], [two]) == [
        "Step at index 0: dependencies differ [a, c] vs [a, b, z]"
    ]
    assert compare(suite, [one], [step(dependencies=["a", "c"])]) == []


def test_absent_dependencies_count_as_none(suite):
    bare = step()
    del bare["dependencies"]

    assert compare(suite, [bare], [step()]) == []
    assert compare(suite, [bare], [step(dependencies=["x"])]) == [
        "Step at index 0: dependencies differ [] vs [x]"
    ]


def test_modes(suite):
    assert compare(
        suite,
        [step(whenUnmet="skip-cascade", whenExhausted="skip")],
        [step(whenUnmet="skip", whenExhausted="fail")],
    ) == [
        "Step at index 0: whenUnmet differs 'skip-cascade' vs 'skip'",
        "Step at index 0: whenExhausted differs 'skip' vs 'fail'",
    ]


@pytest.mark.parametrize("key", ["slug", "stepType", "whenUnmet", "whenExhausted"])
def test_an_absent_key_is_not_a_difference(suite, key):
    bare = step()
    del bare[key]

    assert compare(suite, [bare], [step()]) == []
    assert compare(suite, [step()], [bare]) == []


@pytest.mark.parametrize("key", ["requiredInputPattern", "forbiddenInputPattern"])
def test_patterns_are_printed_as_jsonb(suite, key):
    defined = {"defined": True, "value": {"b": 1, "aa": [2]}}

    assert compare(suite, [step()], [step(**{key: defined})]) == [
        f"Step at index 0: {key} differs '{{\"defined\": false}}'"
        f' vs \'{{"value": {{"b": 1, "aa": [2]}}, "defined": true}}\''
    ]
    assert compare(suite, [step(**{key: defined})], [step(**{key: defined})]) == []


@pytest.mark.parametrize("key", ["requiredInputPattern", "forbiddenInputPattern"])
def test_an_absent_pattern_differs_from_one_not_defined(suite, key):
    bare = step()
    del bare[key]

    (text,) = compare(suite, [bare], [step()])

    assert text.startswith(f"Step at index 0: {key} differs ")
    assert text.endswith("vs '{\"defined\": false}'")
    assert compare(suite, [bare], [bare]) == []


def test_the_checks_come_in_their_order(suite):
    local = step("a", stepType="map", dependencies=["x"], whenUnmet="fail", whenExhausted="skip",
                 requiredInputPattern={"defined": True, "value": {}},
                 forbiddenInputPattern={"defined": True, "value": {}})  # fmt: skip

    texts = compare(suite, [local], [step("b"), step("c")])

    words = ["count", "slug", "type", "dependencies", "whenUnmet", "whenExhausted", "required",
             "forbidden", "missing"]  # fmt: skip
    assert len(texts) == len(words)
    assert all(word in text for word, text in zip(words, texts, strict=True))


def test_options_are_ignored(suite):
    assert compare(suite, [step(options={"timeout": 9})], [step()]) == []


def test_a_shape_and_the_database_s_own_words_agree(suite):
    suite.flow("f", "a", ("b*: a", {"when_unmet": "fail"}))
    shape = suite.value("select pgflow._get_flow_shape('f')")

    assert compare(suite, shape["steps"], shape["steps"]) == []
