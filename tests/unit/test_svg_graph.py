"""The graph of a flow, or of a run, as SVG."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.hostile import ATTACKS, texts
from support.pictures import drawn, parsed, texts_of
from support.run_documents import details, state, tasks

from pgflowd.core.documents.run_tasks import StepUndo
from pgflowd.web.rendering import Rendered
from pgflowd.web.svg import MAX_STEPS, flow_graph, run_graph
from pgflowd.web.text import as_id


def run():
    return details(
        (state("website", "completed", 0, 0.3), tasks("website", completed=1)),
        (state("summary", "started", 1), tasks("summary", ["website"], running=1, attempts=2)),
        (
            state("links", "started", 2),
            tasks("links", ["website"], step_type="map", tasks=100_000, completed=61_240, failed=10,
                  running=10, share=0.6124),
        ),
        (state("save", "created"), tasks("save", ["summary", "links"], tasks=0)),
        undos={"website": StepUndo("website", 1, 1, 0, 0, None)},
    )  # fmt: skip


def shape(*steps: str) -> dict:
    """Each step as `slug < dep dep`."""
    parts = [step.partition(" < ") for step in steps]
    return {"steps": [{"slug": slug, "dependencies": deps.split()} for slug, _, deps in parts]}


def links(picture: Rendered) -> dict[str, Element]:
    """The link of each step, by its name for those who hear the page."""
    return {link.attrib["aria-label"]: link for link in parsed(picture).iter("a")}


def test_each_step_is_a_link_that_says_how_it_is():
    found = links(drawn("graph_picture", run_graph(run(), "summary"), "/runs/1/steps/"))

    assert list(found) == [
        "website, completed, undone",
        "summary, running, attempt 2 of 3",
        "links, map, running, 61,240 of 100,000 tasks completed, 10 failed",
        "save, created",
    ]
    summary = found["summary, running, attempt 2 of 3"]
    assert summary.attrib["href"] == "/runs/1/steps/summary"
    assert summary.attrib["aria-current"] == "true"
    assert texts_of(summary)[1:] == ["summary", "▶", "running", "39s", "2/3"]
    (ticking,) = summary.iterfind(".//tspan[@data-since]")
    assert ticking.attrib["datetime"] == "2026-01-15T11:59:21.000Z"


def test_a_map_has_a_bar_of_what_is_done():
    found = links(drawn("graph_picture", run_graph(run()), ""))
    (box,) = (link for name, link in found.items() if name.startswith("links"))

    whole, done = (box.find(f"rect[@class='{kind}']") for kind in ("whole", "done"))
    assert texts_of(box)[-1] == "61,240/100,000"
    share = float(done.attrib["width"]) / float(whole.attrib["width"])
    assert share == pytest.approx(0.6124, abs=0.001)


def test_each_step_is_a_fragment_that_fits_in_place_of_the_one_before():
    before = details((state("pay", "created"), tasks("pay", tasks=0)))
    after = details((state("pay", "failed", 1, 4, error="no"), tasks("pay", failed=1, attempts=3)))

    old, new = (drawn("graph_picture", run_graph(each), "").fragments for each in (before, after))

    assert list(old) == list(new) == ["node-pay"]
    boxes = [parsed(each["node-pay"]).find(".//rect[@class='box']").attrib for each in (old, new)]
    assert boxes[0] == boxes[1]
    assert 'class="step status-failed red"' in new["node-pay"]
    assert new["node-pay"] in drawn("graph_picture", run_graph(after), "").html


def test_boxes_do_not_overlap_and_edges_go_from_left_to_right():
    picture = parsed(
        drawn(
            "graph_picture",
            flow_graph(shape("a", "b < a", "c < a", "d < b c", "e < a", "f < d e a", "g")),
            "",
        )
    )

    boxes = [
        tuple(float(rect.attrib[key]) for key in ("x", "y", "width", "height"))
        for rect in picture.iterfind(".//rect[@class='box']")
    ]
    for index, (x, y, width, height) in enumerate(boxes):
        for other_x, other_y, other_width, other_height in boxes[:index]:
            is_beside = x >= other_x + other_width or other_x >= x + width
            assert is_beside or y >= other_y + other_height or other_y >= y + height
    for path in picture.iterfind(".//path[@class='edge']"):
        for line in path.attrib["d"].split("M")[1:]:
            start, end = float(line.split()[0]), float(line.rpartition("H")[2])
            assert start < end


def test_of_a_large_graph_the_neighbours_of_one_step_are_shown():
    chain = [f"s{index} < s{index - 1}" if index else "s0" for index in range(MAX_STEPS + 1)]

    picture = drawn("graph_picture", flow_graph(shape(*chain), "s7"), "/steps/")
    addresses = {name: link.attrib["href"] for name, link in links(picture).items()}
    assert addresses == {"s6": "?step=s6", "s7": "/steps/s7", "s8": "?step=s8"}
    assert "Of 301 steps s7 and its neighbours" in picture.html
    assert list(links(drawn("graph_picture", flow_graph(shape(*chain)), ""))) == ["s0", "s1"]
    assert len(links(drawn("graph_picture", flow_graph(shape(*chain[1:])), ""))) == MAX_STEPS


def test_an_empty_flow_is_an_empty_picture():
    assert not links(drawn("graph_picture", flow_graph(shape()), ""))


@settings(max_examples=60, deadline=None)
@given(st.lists(texts(max_size=40), unique=True, max_size=4), texts(max_size=20))
def test_hostile_names_are_text_and_have_ids_of_their_own(slugs, link):
    steps = [{"slug": slug, "dependencies": slugs[:index]} for index, slug in enumerate(slugs)]
    run = details(
        *((state(slug, "started", 1), tasks(slug, slugs[:at], running=1))
          for at, slug in enumerate(slugs)),
        undos={slug: StepUndo(slug, 1, 1, 0, 0, None) for slug in slugs},
    )  # fmt: skip

    for graph in (flow_graph({"steps": steps}), run_graph(run)):
        picture = drawn("graph_picture", graph, link)
        assert len(links(picture)) == len(set(slugs)) == len(picture.fragments)


def test_ids_are_plain_and_differ():
    ids = {as_id(attack) for attack in ATTACKS}

    assert len(ids) == len(ATTACKS)
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+", id) for id in ids)
    assert as_id("a b") != as_id("a.20.b")
