"""What live pages decide without a database: which fragments have changed, and when to read."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from pgflowd.core.documents.runs import TimelineEntry
from pgflowd.web.watcher import Fragments, Numbers, OutputLines, ReadingTimes, event


def test_a_tab_gets_the_newest_version_of_what_has_changed_and_what_is_gone():
    fragments = Fragments(Numbers("s"))
    fragments.replace({"a": "1", "b": "1"})
    seen = fragments.after(0)[-1].number
    fragments.replace({"a": "2", "b": "1"})
    fragments.replace({"a": "3"}, "it ended")

    assert [(each.kind, each.data) for each in fragments.after(seen)] == [
        ("removed", "b"), ("fragment", "a\n3"), ("announce", "it ended"),
    ]  # fmt: skip
    assert not fragments.replace({"a": "3"})
    assert fragments.after(fragments.after(0)[-1].number) == []


def test_words_that_the_browser_keeps_right_are_no_change():
    fragments = Fragments(Numbers("s"))
    row = '<tr><time datetime="2026" data-ago>{}</time><b>{}</b></tr>'
    fragments.replace({"a": row.format("4s ago", "x")})

    assert not fragments.replace({"a": row.format("6s ago", "x")})
    assert fragments.replace({"a": row.format("8s ago", "y")})
    assert "8s ago" in fragments.after(0)[-1].data


def test_an_id_of_another_process_is_before_everything():
    numbers = Numbers("s")
    assert numbers.read(numbers.id(7)) == 7
    assert [numbers.read(id) for id in ("t.7", "s.", "s.x", "s.-1", "", "s." + "9" * 30)] == [0] * 6


def test_lines_within_data_are_lines_of_the_event():
    assert event("x", "a\r\nb\rc\nd\x85e", "1") == (
        "event: x\nid: 1\ndata: a\ndata: b\ndata: c\ndata: d\x85e\n\n".encode()
    )
    assert event("", "") == b"data: \n\n"


def test_a_document_is_read_soon_after_a_notification_and_seldom_if_it_takes_long():
    times = ReadingTimes(0.0)
    times.was_read(0.0, 1.0, 2.0)  # the first time a template is compiled, too
    assert times.due_at == 3.0
    times.was_read(3.0, 3.0, 2.0)
    assert times.due_at == 5.0
    times.hurry()
    assert times.due_at == 3.25
    times.was_read(4.0, 5.0, 2.0)
    times.hurry()
    assert times.due_at == 25.0


def test_of_lines_that_are_not_kept_their_number_is_known():
    lines = OutputLines(1000)
    entry = TimelineEntry("task:output", "r", "shop", datetime(2026, 1, 1, tzinfo=UTC), 0.0)
    for number in range(1100):
        lines.add(replace(entry, text=str(number)), 0.0)

    missed, found = lines.after(1020)
    assert (missed, len(found), found[0].number) == (80, 1000, 1101)
    assert lines.after(2100) == (0, [])
    assert lines.after(5)[0] is None  # of an earlier time
    lines.add(replace(entry, text="late"), 61.0)
    assert [line.entry.text for line in lines.after(1020)[1]] == ["late"]
