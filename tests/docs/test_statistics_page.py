"""What docs/operate/statistics.md shows is what such numbers look like."""

from __future__ import annotations

from support.pages import blocks_of

from pgflowd.cli.app import App
from pgflowd.cli.terminal.flow_view import print_stats
from pgflowd.core.documents.flows import FlowStats, FlowWork, StepStats


def test_the_table_of_the_page_is_printed_for_its_numbers(capsys) -> None:
    waits = {"signal": 3, "sleep": 2, "quarantined": 1}
    work = FlowWork("analyze_website", 3, 10, 0, 12.0, waits)
    runs = StepStats("analyze_website", "", 116, 2, 0, 0, None, None, None, None, 3600.0)
    step = StepStats("analyze_website", "website", 118, 1, 0, 0, 0.34, 2.1, 0.012, 0.045, 3600.0)

    print_stats(App(), [FlowStats(work, [step], runs, 3600.0)])

    (shown,) = blocks_of("docs/operate/statistics.md", "text")
    assert capsys.readouterr().out == shown
