"""What `pgflowd top` shows of what was read, without a terminal."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pgflowd.cli.terminal.screen import Screen, columns
from pgflowd.cli.top.lines import (
    PrintedPage,
    head_line,
    is_paused,
    list_rows,
    trouble_lines,
)
from pgflowd.cli.top.source import FlowFacts, Seen, TopSubject, TopView, runs_wanted
from pgflowd.core.documents.flows import ListedFlow, RunBucket, StepStats

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
WIDE = Screen(False, True, 200, True)
ALL = TopSubject()
WIDTHS = (40, 80, 120, 200)


def flow(slug: str, **more: Any) -> ListedFlow:
    given = {
        "flow_slug": slug, "steps": 1, "queue_name": slug, "is_watched": True, "queued": 0,
        "oldest_queued_at": None, "running": 0, "active_runs": 0, "workers": 1,
        "last_run_at": None, "created_at": NOW, "is_asleep": False, "waiting": 0, "planned": 0,
        "paused_at": None, "paused_by": None, "pause_reason": None, "undoes": None,
    }  # fmt: skip
    return ListedFlow(**{**given, **more})


FLOWS = [
    flow("alpha", queued=2, oldest_queued_at=NOW - timedelta(seconds=90)),
    flow("beta", running=3, paused_at=NOW, workers=0),
    flow("gamma", workers=0, is_asleep=True),
    flow("undo_beta", undoes="beta"),
    flow("undo_gamma", undoes="gamma", queued=1, active_runs=1, workers=0),
]
FACTS = FlowFacts(
    FLOWS,
    NOW,
    {"alpha": [RunBucket(0, 0), RunBucket(3, 1), RunBucket(8, 0)]},
    [StepStats("beta", "b", 5, 1, 1, 0, 0.1, 0.2, 0.1, 0.2, 60.0)],
)
SEEN = Seen(facts=FACTS, database_at=100.0)


def rows(subject: TopSubject = ALL, seen: Seen = SEEN, sort: str = "name", screen=WIDE):
    return list_rows(subject, seen, sort, PrintedPage(screen, set()))


def test_flows_of_the_database_have_a_row_each_but_idle_ones_that_undo():
    found = rows()

    assert list(found.keys) == ["alpha", "beta", "gamma", "undo_gamma"]
    assert "P50" not in found.titles and "RESTARTS" not in found.titles  # only a daemon knows
    assert found.lines[0].endswith("▁▅█") and "1m30s" in found.lines[0]
    assert "‖ paused" in found.lines[1] and "asleep" in found.lines[2]
    assert "no worker" in found.lines[3]


def test_a_filter_and_an_order_choose_the_rows():
    assert list(rows(TopSubject(filter="ALP")).keys) == ["alpha"]
    assert rows(sort="running").keys[0] == "beta"
    assert rows(sort="oldest").keys[0] == "alpha"
    assert rows(sort="failures").keys[0] == "beta"
    assert rows(TopSubject(filter="zzz")).empty == "no flow has 'zzz' in its name; Escape shows all"


@pytest.mark.parametrize(
    ("seen", "subject", "empty"),
    [
        (Seen(), TopSubject(), "reading"),
        (Seen(database_error="E301"), TopSubject(), "nothing could be read yet"),
        (Seen(database_at=1.0), TopSubject(), "there are no flows here"),
        (Seen(), TopSubject(TopView.RUNS, "alpha"), "reading"),
        (
            Seen(found=(TopSubject(TopView.RUNS, "alpha"), [])),
            TopSubject(TopView.RUNS, "alpha"),
            "no runs yet",
        ),
    ],
)
def test_an_empty_list_says_why(seen, subject, empty):
    assert empty in rows(subject, seen).empty


def test_what_was_read_of_another_subject_is_not_shown():
    seen = Seen(found=(TopSubject(TopView.RUN, "alpha", "1"), "details"))

    assert seen.of(TopSubject(TopView.RUN, "alpha", "1")) == "details"
    assert seen.of(TopSubject(TopView.RUN, "alpha", "2")) is None


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", TopView)
def test_no_line_is_wider_than_the_screen(kind, width):
    screen, subject = Screen(True, True, width, True), TopSubject(kind, "alpha" * 20, "1" * 36)
    seen = replace(SEEN, database_error="E301 " + "x " * 200, daemon_error="no daemon")

    shown = [
        head_line(subject, seen, screen, NOW, True),
        *trouble_lines(subject, seen, screen, 110.0),
    ]

    assert max(map(columns, shown)) <= width
    assert shown[0].rstrip().endswith("03:04:05")


def test_errors_have_the_age_of_the_numbers():
    seen = replace(SEEN, database_error="E301 gone")

    assert trouble_lines(TopSubject(), seen, WIDE, 107.0) == [" ⚠ numbers are 7s old: E301 gone"]
    seen = Seen(daemon_error="no daemon is running")
    (line,) = trouble_lines(TopSubject(), seen, WIDE, 107.0)
    assert "numbers are the database's: no daemon is running" in line


def test_a_paused_flow_is_known():
    assert is_paused("beta", SEEN) and not is_paused("alpha", SEEN)


def test_a_status_filters_by_status_and_other_words_by_text():
    runs = TopSubject(TopView.RUNS, "beta")

    assert runs_wanted(runs._replace(filter="failed")).statuses == ["failed"]
    assert runs_wanted(runs._replace(filter="bank")).text == "bank"
