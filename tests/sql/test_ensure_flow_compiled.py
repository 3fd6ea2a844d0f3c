"""The function that a worker calls at its start, in both generations."""

import psycopg
import pytest
from psycopg.types.json import Jsonb

LOCAL_SECRET = "super-secret-jwt-token-with-at-least-32-characters-long"


def step(slug, *dependencies, **more):
    return {
        "slug": slug,
        "stepType": "single",
        "dependencies": list(dependencies),
        "whenUnmet": "skip",
        "whenExhausted": "fail",
        "requiredInputPattern": {"defined": False},
        "forbiddenInputPattern": {"defined": False},
        **more,
    }


AB = {"steps": [step("a"), step("b", "a")]}
AC = {"steps": [step("a"), step("c", "a")]}
DIFFERENCE = ["Step at index 1: slug differs 'c' vs 'b'"]


def ensure(suite, shape, slug="f", **more):
    names = "".join(f", {name} => %s" for name in more)
    return suite.value(
        f"select pgflow.ensure_flow_compiled(flow_slug => %s, shape => %s{names})",
        slug,
        Jsonb(shape),
        *more.values(),
    )


def answer(result):
    return {key: result[key] for key in ("status", "differences")}


def be_local(suite):
    suite.do("select set_config('app.settings.jwt_secret', %s, true)", LOCAL_SECRET)


def test_an_unknown_flow_is_compiled(suite):
    assert answer(ensure(suite, AB)) == {"status": "compiled", "differences": []}
    assert suite.value("select pgflow._get_flow_shape('f')") == AB


def test_an_equal_flow_is_verified(suite):
    ensure(suite, AB)
    before = suite.snapshot()

    assert answer(ensure(suite, AB)) == {"status": "verified", "differences": []}
    assert suite.snapshot() == before


def test_options_tuned_in_the_database_stay(suite):
    ensure(suite, AB)
    suite.do("update pgflow.flows set opt_timeout = 99")

    assert answer(ensure(suite, {**AB, "options": {"timeout": 5}}))["status"] == "verified"
    assert suite.value("select opt_timeout from pgflow.flows") == 99


def test_a_difference_is_a_mismatch_and_changes_nothing(suite):
    ensure(suite, AB)
    suite.start("f")
    before = suite.snapshot()

    assert answer(ensure(suite, AC)) == {"status": "mismatch", "differences": DIFFERENCE}
    assert suite.snapshot() == before


def test_on_a_local_database_it_is_recompiled_and_its_runs_are_gone(suite):
    ensure(suite, AB)
    suite.start("f")
    be_local(suite)

    assert answer(ensure(suite, AC)) == {"status": "recompiled", "differences": DIFFERENCE}
    assert suite.value("select pgflow._get_flow_shape('f')") == AC
    assert suite.value("select count(*) from pgflow.runs") == 0
    assert suite.queue("f") == []


def test_allowed_data_loss_recompiles(suite):
    ensure(suite, AB)
    suite.start("f")

    result = ensure(suite, AC, allow_data_loss=True)

    assert answer(result) == {"status": "recompiled", "differences": DIFFERENCE}
    assert suite.value("select count(*) from pgflow.runs") == 0
    assert suite.queue("f") == []


def test_data_loss_forbidden_is_a_mismatch_unless_local(suite):
    ensure(suite, AB)

    assert answer(ensure(suite, AC, allow_data_loss=False))["status"] == "mismatch"
    be_local(suite)
    assert answer(ensure(suite, AC, allow_data_loss=False))["status"] == "recompiled"


def test_the_boolean_form_answers_with_exactly_two_keys(suite):
    assert ensure(suite, AB, allow_data_loss=False) == {"status": "compiled", "differences": []}
    assert ensure(suite, AB, allow_data_loss=True) == {"status": "verified", "differences": []}


def test_another_secret_is_not_local(suite):
    ensure(suite, AB)
    suite.do("select set_config('app.settings.jwt_secret', 'another', true)")

    assert answer(ensure(suite, AC))["status"] == "mismatch"


SHAPE_TEXT = '{"steps": [{"slug": "a", "stepType": "single", "dependencies": []}]}'


@pytest.mark.parametrize(
    "arguments",
    [
        f"'f', '{SHAPE_TEXT}'",
        f"'f', '{SHAPE_TEXT}', false",
        f"'f', '{SHAPE_TEXT}', true",
        f"'f', '{SHAPE_TEXT}', 'flow'",
        f"'f', '{SHAPE_TEXT}', 'flow', null",
        f"'f', '{SHAPE_TEXT}'::jsonb",
        f"'f'::text, '{SHAPE_TEXT}'::jsonb, false",
        f"flow_slug => 'f', shape => '{SHAPE_TEXT}'",
        f"flow_slug => 'f', shape => '{SHAPE_TEXT}', allow_data_loss => true",
        f"flow_slug => 'f', shape => '{SHAPE_TEXT}', queue_mode => 'flow'",
        f"flow_slug => 'f', shape => '{SHAPE_TEXT}', queue_mode => 'flow', route_map => null",
        f"'f', '{SHAPE_TEXT}', allow_data_loss => false",
    ],
)
def test_every_way_of_calling_it_is_unambiguous(suite, arguments):
    result = suite.value(f"select pgflow.ensure_flow_compiled({arguments})")

    assert answer(result) == {"status": "compiled", "differences": []}


def test_the_later_form_names_the_kind_of_mismatch(suite):
    assert ensure(suite, AB, queue_mode="flow")["mismatchKind"] is None
    assert ensure(suite, AC, queue_mode="flow")["mismatchKind"] == "shape"


def test_a_worker_without_pattern_keys_always_mismatches(suite):
    bare = {"steps": [{"slug": "a", "stepType": "single", "dependencies": []}]}
    ensure(suite, bare)

    result = ensure(suite, bare)

    assert result["status"] == "mismatch"
    assert len(result["differences"]) == 2


@pytest.mark.parametrize(("slug", "other"), [("f", "f"), ("MyFlow", "myflow")])
def test_definitions_of_slugs_that_differ_in_case_wait_for_each_other(shared, slug, other):
    one, two = shared.session(), shared.session()
    one.do("select pgflowd._lock_definition(%s)", other)
    two.do("set local lock_timeout = '200ms'")

    with pytest.raises(psycopg.errors.LockNotAvailable):
        ensure(two, AB, slug)
    two.conn.rollback()
    one.conn.rollback()

    assert answer(ensure(two, AB, slug))["status"] == "compiled"
    two.conn.rollback()


def test_parallel_starts_of_one_flow_wait_and_verify(shared):
    one = shared.session()
    assert answer(ensure(one, AB))["status"] == "compiled"
    two = shared.session(autocommit=True)
    two.do("set lock_timeout = '200ms'")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        ensure(two, AB)
    one.conn.commit()

    assert answer(ensure(two, AB))["status"] == "verified"
