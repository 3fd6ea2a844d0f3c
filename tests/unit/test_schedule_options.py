"""Schedules in the code of a flow: what is wrong with them, and what a shape has."""

from __future__ import annotations

from typing import Any

import pytest

from pgflowd import Flow, Schedule, job
from pgflowd.core.definition.schedule import given_faults, schedule_differences
from pgflowd.core.definition.shape import changes_between


def flow(**options: Any) -> Flow:
    made = Flow("reports", **options)
    made.step(slug="write")(lambda run: run)
    return made


def problems(**options: Any) -> list[str]:
    return [str(each) for each in flow(**options).check()]


def test_a_shape_has_the_schedules_by_their_names() -> None:
    made = flow(
        cron=" 0  3 * * * ",
        timezone="Europe/Berlin",
        schedules=[Schedule("@every 15m", {"a": 1}, name="quick", overlap="wait", catchup="all")],
    )

    assert made.check() == []
    first, second = made.shape()["schedules"]
    assert first == {
        "name": "reports", "cron": "0 3 * * *", "timezone": "Europe/Berlin", "input": {},
        "overlap": "skip", "catchup": "one",
    }  # fmt: skip
    assert (second["name"], second["input"]) == ("reports.quick", {"a": 1})
    assert "schedules" not in flow().shape()


def test_schedules_are_no_part_of_what_is_compared_as_the_shape() -> None:
    with_one, without = flow(cron="@daily").shape(), flow().shape()

    assert changes_between(with_one, without) == []
    one = with_one["schedules"]
    assert schedule_differences(one, one) == []
    (added,), (gone,) = schedule_differences(one, []), schedule_differences([], one)
    assert "in the code only" in added and "in the database only" in gone


def test_a_difference_names_what_changed() -> None:
    ours, theirs = flow(cron="@daily").shape(), flow(cron="@hourly").shape()

    (text,) = schedule_differences(ours["schedules"], theirs["schedules"])

    assert text.startswith("schedule reports: cron is '@daily' in the code, '@hourly' in the data")


def test_a_job_has_a_schedule() -> None:
    @job("nightly", cron="0 3 * * *", timezone="Europe/Berlin")
    def nightly(run: Any, ctx: Any) -> None: ...

    assert nightly.flow.check() == []
    assert nightly.flow.shape()["schedules"][0]["cron"] == "0 3 * * *"


def test_what_undoes_a_flow_has_no_schedule() -> None:
    made = flow(cron="@daily")
    made.undo("write")(lambda run: run)

    undo_flow = made.undo_flow
    assert undo_flow is not None and "schedules" not in undo_flow.shape()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"cron": "0 3 * *"}, "five fields"),
        ({"cron": 3}, "must be a text"),
        ({"cron": "@daily", "timezone": "Europe/Berln"}, "tz database"),
        ({"timezone": "UTC"}, "no effect without cron"),
        ({"schedules": "0 3 * * *"}, "must be a list of Schedule"),
        ({"schedules": ["0 3 * * *"]}, "must be a list of Schedule"),
        ({"schedules": 3}, "must be a list of Schedule"),
        ({"schedules": [Schedule("@daily", overlap="skp")]}, "did you mean 'skip'"),  # type: ignore[arg-type]
        ({"schedules": [Schedule("@daily", catchup=None)]}, "must be one of one, none, all"),  # type: ignore[arg-type]
        ({"schedules": [Schedule("@daily", name="a b")]}, "letters, digits"),
        ({"schedules": [Schedule("@daily", name=["a"])]}, "letters, digits"),  # type: ignore[arg-type]
        ({"schedules": [Schedule("@daily", input=object())]}, "its input"),
        ({"cron": "@daily", "schedules": [Schedule("@hourly")]}, "2 schedules have the name"),
    ],
)
def test_what_is_wrong_is_told(options: dict[str, Any], text: str) -> None:
    found = problems(**options)

    assert [each for each in found if each.startswith("E224") and text in each]


def test_an_operator_is_told_what_is_wrong() -> None:
    assert given_faults("morning", Schedule("@daily")) == []
    for name, schedule in (("a/b", Schedule("@daily")), ("a", Schedule("daily"))):
        assert [each.code for each in given_faults(name, schedule)] == ["E224"]
