"""A flow made from a worker's shape."""

from psycopg.types.json import Jsonb


def create(suite, shape, slug="f"):
    suite.do(
        "select pgflow._create_flow_from_shape(p_flow_slug => %s, p_shape => %s)",
        slug,
        Jsonb(shape),
    )


def steps(suite):
    return suite.rows("select * from pgflow.steps order by step_index")


def test_missing_keys_take_the_defaults(suite):
    create(suite, {"steps": [{"slug": "a", "stepType": "single", "dependencies": []}]})

    flow = suite.row("select * from pgflow.flows")
    assert [flow[f"opt_{name}"] for name in ("max_attempts", "base_delay", "timeout")] == [3, 5, 60]
    (step,) = steps(suite)
    assert (step["when_unmet"], step["when_exhausted"]) == ("skip", "fail")
    assert step["required_input_pattern"] is None and step["forbidden_input_pattern"] is None
    for name in ("max_attempts", "base_delay", "timeout", "start_delay"):
        assert step[f"opt_{name}"] is None


def test_all_keys_reach_the_tables(suite):
    create(
        suite,
        {
            "steps": [
                {"slug": "a", "stepType": "single", "dependencies": []},
                {
                    "slug": "b",
                    "stepType": "map",
                    "dependencies": ["a"],
                    "whenUnmet": "fail",
                    "whenExhausted": "skip-cascade",
                    "requiredInputPattern": {"defined": True, "value": {"a": [1]}},
                    "forbiddenInputPattern": {"defined": True, "value": {"a": [2]}},
                    "options": {"maxAttempts": 1, "baseDelay": 2, "timeout": 3, "startDelay": 4},
                },
            ],
            "options": {"maxAttempts": 5, "baseDelay": 6, "timeout": 7},
        },
    )

    flow = suite.row("select * from pgflow.flows")
    assert [flow[f"opt_{name}"] for name in ("max_attempts", "base_delay", "timeout")] == [5, 6, 7]
    step = steps(suite)[1]
    assert (step["step_slug"], step["step_type"], step["deps_count"]) == ("b", "map", 1)
    assert (step["when_unmet"], step["when_exhausted"]) == ("fail", "skip-cascade")
    assert step["required_input_pattern"] == {"a": [1]}
    assert step["forbidden_input_pattern"] == {"a": [2]}
    names = ("max_attempts", "base_delay", "timeout", "start_delay")
    assert [step[f"opt_{name}"] for name in names] == [1, 2, 3, 4]
    assert suite.column("select queue_name::text from pgmq.list_queues()") == ["f"]


def test_a_pattern_that_is_not_defined_is_null_even_with_a_value(suite):
    create(
        suite,
        {
            "steps": [
                {
                    "slug": "a",
                    "stepType": "single",
                    "dependencies": [],
                    "requiredInputPattern": {"defined": False, "value": {"a": 1}},
                    "forbiddenInputPattern": {"defined": False},
                }
            ]
        },
    )

    (step,) = steps(suite)
    assert step["required_input_pattern"] is None and step["forbidden_input_pattern"] is None


def test_partial_options_leave_the_others_null(suite):
    create(
        suite,
        {
            "steps": [{"slug": "a", "stepType": "single", "dependencies": [],
                       "options": {"timeout": 9}}],
            "options": {"maxAttempts": 9},
        },
    )  # fmt: skip

    flow = suite.row("select * from pgflow.flows")
    assert [flow[f"opt_{name}"] for name in ("max_attempts", "base_delay", "timeout")] == [9, 5, 60]
    (step,) = steps(suite)
    assert (step["opt_timeout"], step["opt_max_attempts"]) == (9, None)


def test_steps_are_added_in_order_and_without_steps_there_is_just_the_flow(suite):
    create(suite, {"steps": []}, "empty")
    create(
        suite,
        {"steps": [{"slug": s, "stepType": "single", "dependencies": d}
                   for s, d in (("z", []), ("a", ["z"]), ("m", ["a", "z"]))]},
    )  # fmt: skip

    assert [(row["step_slug"], row["step_index"], row["deps_count"]) for row in steps(suite)] == [
        ("z", 0, 0),
        ("a", 1, 1),
        ("m", 2, 2),
    ]
    assert suite.value("select count(*) from pgflow.flows") == 2


def test_the_shape_comes_back_as_it_was_sent(suite):
    sent = {
        "steps": [
            {"slug": "a", "stepType": "single", "dependencies": [], "whenUnmet": "fail",
             "whenExhausted": "skip", "requiredInputPattern": {"defined": True, "value": {"x": []}},
             "forbiddenInputPattern": {"defined": False}},
            {"slug": "b", "stepType": "map", "dependencies": ["a"], "whenUnmet": "skip",
             "whenExhausted": "fail", "requiredInputPattern": {"defined": False},
             "forbiddenInputPattern": {"defined": True, "value": {"a": {}}}},
        ]
    }  # fmt: skip
    create(suite, sent)

    assert suite.value("select pgflow._get_flow_shape('f')") == sent


def test_a_cycle_or_a_forward_dependency_is_refused_by_the_foreign_key(suite):
    error = suite.error(
        "select pgflow._create_flow_from_shape('f', %s)",
        Jsonb(
            {"steps": [{"slug": "a", "stepType": "single", "dependencies": ["b"]},
                       {"slug": "b", "stepType": "single", "dependencies": ["a"]}]}
        ),
    )  # fmt: skip

    assert error.diag.constraint_name == "deps_flow_slug_dep_slug_fkey"
    assert suite.value("select count(*) from pgflow.flows") == 0
