"""A flow in the database as JSON."""


def shape(suite, slug="f"):
    return suite.value("select pgflow._get_flow_shape(p_flow_slug => %s)", slug)


def plain_step(slug, **more):
    return {
        "slug": slug,
        "stepType": "single",
        "dependencies": [],
        "whenUnmet": "skip",
        "whenExhausted": "fail",
        "requiredInputPattern": {"defined": False},
        "forbiddenInputPattern": {"defined": False},
        **more,
    }


def test_an_unknown_flow_and_one_without_steps_have_no_steps(suite):
    suite.flow("f")

    assert shape(suite, "nobody") == {"steps": []}
    assert shape(suite) == {"steps": []}


def test_each_step_has_exactly_seven_keys_in_order_of_index(suite):
    suite.flow("f", "z", "b: z", "a*: z", "c: z a b")

    assert shape(suite) == {
        "steps": [
            plain_step("z"),
            plain_step("b", dependencies=["z"]),
            plain_step("a", dependencies=["z"], stepType="map"),
            plain_step("c", dependencies=["a", "b", "z"]),
        ]
    }


def test_modes_and_patterns_are_shown(suite):
    suite.flow(
        "f",
        (
            "a",
            {
                "required_input_pattern": {"x": 1},
                "forbidden_input_pattern": {},
                "when_unmet": "skip-cascade",
                "when_exhausted": "skip",
            },
        ),
    )

    assert shape(suite)["steps"] == [
        plain_step(
            "a",
            whenUnmet="skip-cascade",
            whenExhausted="skip",
            requiredInputPattern={"defined": True, "value": {"x": 1}},
            forbiddenInputPattern={"defined": True, "value": {}},
        )
    ]


def test_options_are_not_part_of_it(suite):
    suite.flow("f", ("a", {"max_attempts": 9, "timeout": 8, "base_delay": 7, "start_delay": 6}))

    assert shape(suite) == {"steps": [plain_step("a")]}


def test_dependencies_are_sorted_byte_by_byte_alike_everywhere(suite):
    suite.flow("f", "b", "a", "c", "d: c b a")

    assert shape(suite)["steps"][3]["dependencies"] == ["a", "b", "c"]
