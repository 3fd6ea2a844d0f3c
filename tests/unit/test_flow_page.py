"""What the page of a flow computes once, although its template asks for it with each step."""

from __future__ import annotations

from support.covers import covers

from pgflowd import Flow
from pgflowd.core.documents.flows import FlowGrid, ListedFlow
from pgflowd.web.pages.flows import ShownFlow


@covers("outside 20")
def test_the_options_of_all_steps_are_read_once():
    flow = Flow("two")

    @flow.step(timeout=5)
    def first(run): ...

    @flow.step
    def second(first): ...

    listed, grid = ListedFlow.__new__(ListedFlow), FlowGrid.__new__(FlowGrid)
    page = ShownFlow(listed, flow.shape(), [], [], [], [], [], None, "24h", grid)

    assert [step.slug for step in page.steps] == ["first", "second"]
    assert page.steps is page.steps
    assert page.columns is page.columns
    assert page.graph is page.graph
    assert page.stats_of(page.steps[0]) is None
