"""The timeline of a run, the strip of a map, and small charts, as SVG."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.hostile import texts
from support.pictures import drawn, parsed, texts_of
from support.run_documents import START, at, details, failed, state, tasks

from pgflowd.core.documents.flows import FlowGrid, GridRun, RunBucket
from pgflowd.core.documents.run_tasks import StripCell
from pgflowd.core.statuses import RunStatus, StepStatus, TaskStatus
from pgflowd.web.svg import MAX_BARS

RUN = UUID(int=7)


def test_each_step_is_a_row_that_says_what_its_bar_shows():
    pay = tasks("pay", attempts=2, running=1, running_since=at(30))
    links = tasks("links", step_type="map", tasks=100_000, completed=61_240, failed=2, running=9)
    run = details(
        (state("pay", "started", 10), pay),
        (state("links", "started", 0), links),
        (state("send", "skipped"), tasks("send", ["pay"], tasks=0)),
        failures=[failed("pay", 1, 10, 25, "timed_out", next_at=at(30))],
    )

    picture = drawn("run_timeline", run, "/steps/")

    rows = {row.attrib["id"]: row for row in parsed(picture).iter("li")}
    assert list(rows) == ["bar-pay", "bar-links", "bar-send"]
    assert set(picture.fragments) == {"timeline-axis", *rows}
    said = {id: "".join(row.find("span[@class='note']").itertext()) for id, row in rows.items()}
    assert said == {
        "bar-pay": "30s (1 timed out)",
        "bar-links": "40s, 61,240 of 100,000, 1,531/s, about 25s left",
        "bar-send": "skipped",
    }
    link = rows["bar-pay"].find("a")
    assert (link.attrib["href"], link.attrib["aria-label"]) == ("/steps/pay", "pay, running")
    bars = rows["bar-pay"].findall("svg/rect")
    assert [bar.attrib["class"] for bar in bars] == ["executed", "waited", "executed"]
    assert texts_of(rows["bar-pay"].find("svg")) == ["✖"]


def test_an_open_bar_has_what_the_script_needs_to_let_it_grow():
    run = details((state("pay", "started", 10), tasks("pay", running=1, running_since=at(10))))

    (bar,) = parsed(drawn("run_timeline", run, "")).iterfind(".//rect")
    start = int(bar.attrib["data-start"]) / 1000 - START.timestamp()
    assert start == pytest.approx(10)
    assert 30 * float(bar.attrib["data-scale"]) == pytest.approx(50, abs=0.01)
    assert bar.attrib["width"] == "50%"  # the axis shows a minute


def test_of_very_many_steps_those_that_failed_or_go_on_are_shown():
    done = [(state(f"s{n}", "completed", 0, 1), tasks(f"s{n}")) for n in range(MAX_BARS + 20)]
    bad = (state("bad", "failed", 2, 3), tasks("bad", failed=1))

    picture = parsed(drawn("run_timeline", details(*done, bad), ""))

    ids = [row.attrib["id"] for row in picture.iter("li")]
    assert len(ids) == MAX_BARS and ids[-1] == "bar-bad"
    assert texts_of(picture)[-1] == "21 more steps are in the table."


def test_a_run_that_has_not_begun_has_no_timeline():
    run = details()
    assert drawn("run_timeline", details(), "").html.strip()
    object.__setattr__(run.run, "started_at", None)
    assert not drawn("run_timeline", run, "").html.strip()


def test_a_cell_has_the_colour_of_its_worst_task_and_leads_to_its_tasks():
    cells = [
        StripCell(0, 499, {TaskStatus.COMPLETED: 500}),
        StripCell(500, 999, {TaskStatus.COMPLETED: 497, TaskStatus.FAILED: 3}),
        StripCell(1000, 1000, {TaskStatus.LEASED: 1}),
        StripCell(1001, 1500, {}),
    ]

    links = parsed(drawn("task_strip", "links", cells, "/tasks?after=")).findall("a")

    assert [link.attrib["aria-label"] for link in links] == [
        "tasks 0\N{EN DASH}499: 500 completed",
        "tasks 500\N{EN DASH}999: 497 completed, 3 failed",
        "task 1,000: running",
        "tasks 1,001\N{EN DASH}1,500",
    ]
    assert [link.find("rect").attrib["class"] for link in links] == [
        "status-completed green few", "status-failed red few", "status-leased cyan few",
        "plain few",
    ]  # fmt: skip
    assert links[1].attrib["href"] == "/tasks?after=499"
    assert [link.attrib.get("tabindex") for link in links] == ["-1", None, None, "-1"]


def test_a_small_chart_says_its_numbers():
    chart = parsed(drawn("spark", [RunBucket(10, 0), RunBucket(0, 0), RunBucket(5, 5)]))
    bars = [(bar.attrib["class"], float(bar.attrib["height"])) for bar in chart.iter("rect")]

    assert chart.attrib["aria-label"] == "15 runs completed, 5 failed"
    assert bars == [("ok", 22), ("none", 1), ("ok", 11), ("failed", 11)]
    assert parsed(drawn("spark", [])).attrib["aria-label"] == "0 runs completed, 0 failed"


def test_a_grid_shows_where_the_newest_runs_failed():
    ok, bad = StepStatus.COMPLETED, StepStatus.FAILED
    runs = [
        GridRun(UUID(int=2), "shop", RunStatus.FAILED, START, at(2), {"pay": ok, "send": bad}),
        GridRun(UUID(int=1), "shop_v1", RunStatus.STARTED, START, None, {"pay": ok, "old": ok}),
    ]

    grid = parsed(drawn("run_grid", FlowGrid("shop", runs), "/runs/"))

    older, newer = grid.findall("a")  # the newest on the right
    assert older.attrib["aria-label"] == "run 00000001, running"
    assert newer.attrib["aria-label"] == "run 00000002, failed after 2s: send"
    assert newer.attrib["href"] == f"/runs/{UUID(int=2)}"
    assert [cell.find("title").text for cell in older.findall("g")] == [
        "pay: completed", "old: completed",
    ]  # fmt: skip
    assert [cell.attrib["class"] for cell in newer.findall("g")] == [
        "status-completed green", "status-failed red",
    ]  # fmt: skip
    rows = {cell.find("title").text: cell.find("rect").attrib["y"] for cell in grid.iter("g")
            if cell.find("title") is not None}  # fmt: skip
    assert len(set(rows.values())) == 3


@settings(max_examples=50, deadline=None)
@given(st.lists(texts(max_size=30), unique=True, max_size=4), texts(max_size=30))
def test_hostile_names_are_text(slugs, link):
    run = details(*((state(slug, "started", 1), tasks(slug, running=1)) for slug in slugs))
    cells = [StripCell(0, 0, {TaskStatus.FAILED: 1})]

    states = dict.fromkeys(slugs, StepStatus.FAILED)
    grid = FlowGrid(link, [GridRun(RUN, link, RunStatus.FAILED, START, None, states)])

    assert len(parsed(drawn("run_grid", grid, link)).findall("a/g")) == len(slugs)
    rows = parsed(drawn("run_timeline", run, link)).findall("ol/li")
    assert len(rows) == len(slugs)
    assert (
        parsed(drawn("task_strip", link, cells, link)).attrib["aria-label"].startswith("Tasks of ")
    )
