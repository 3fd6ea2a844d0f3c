"""Values, times and names in few words."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.covers import covers

from pgflowd.core.text import (
    ago,
    between,
    brief,
    counted,
    cut,
    duration,
    short_id,
    size,
    with_article,
)

NOW = datetime(2026, 1, 15, 12, 0, tzinfo=UTC)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=200),
    lambda inner: st.lists(inner, max_size=30) | st.dictionaries(st.text(max_size=9), inner),
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0s"),
        (0, "0s"),
        (0.0004, "0.4ms"),
        (0.0034, "3.4ms"),
        (0.304, "304ms"),
        (0.9999, "1s"),
        (2.754, "2.75s"),
        (4.0, "4s"),
        (9.999, "10s"),
        (12.4, "12s"),
        (125, "2m05s"),
        (12_000, "3h20m"),
        (360_000, "4d4h"),
    ],
)
def test_a_duration_is_short(seconds, text):
    assert duration(seconds) == text


def test_a_moment_in_the_future_by_a_wrong_clock_was_just_now():
    assert ago(NOW - timedelta(seconds=4.4), NOW) == "4s ago"
    assert ago(NOW + timedelta(seconds=9), NOW) == "0s ago"
    assert between(NOW, NOW - timedelta(seconds=1)) == 0.0
    assert between(None, NOW) is None


def test_long_texts_are_shown_with_their_length():
    assert brief({"html": "x" * 1200}) == '{"html": "' + "x" * 40 + '… 1.2 kB"}'
    assert brief(list(range(100))).endswith('19, "… 80 more"]')
    assert brief([[[[["deep"]]]]]) == '[[[[["…"]]]]]'


def test_a_short_value_is_itself():
    assert brief({"a": [1, None, True, "ü"]}) == '{"a": [1, null, true, "ü"]}'


@given(JSON, st.integers(min_value=1, max_value=300))
def test_no_value_is_longer_than_its_room(value, width):
    assert len(brief(value, width)) <= width
    assert "\n" not in brief(value, width)


@given(JSON)
def test_what_fits_is_json(value):
    shown = brief(value, 10_000_000)

    json.loads(shown)


def test_names_and_numbers():
    assert short_id("019bc0de-4a51-7c02-9f6e-12ab7f3a9c12") == "7f3a9c12"
    assert (cut("abcdef", 4), cut("abcd", 4)) == ("abc…", "abcd")
    sizes = (812, 1200, 15_000_000, 471_000_000_000, 1.2e15)

    assert [size(number) for number in sizes] == ["812 B", "1.2 kB", "15 MB", "471 GB", "1200 TB"]
    assert (counted(1, "run"), counted(3, "run")) == ("1 run", "3 runs")


@covers("newcomer 21")
def test_a_type_has_the_article_with_which_it_is_spoken():
    spoken = (
        "an int, a str, an ndarray, an object, a UUID, an HTTPError, a Model, a NoneType, an ORM"
    )

    assert ", ".join(with_article(each.split()[1]) for each in spoken.split(", ")) == spoken
