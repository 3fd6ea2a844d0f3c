"""Durations and sizes: their meaning, their errors, and that writing undoes reading."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgflowd.core.settings.values import (
    DURATION_PATTERN,
    SIZE_PATTERN,
    Unreadable,
    format_duration,
    format_size,
    parse_duration,
    parse_size,
)

MILLISECONDS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("250ms", 0.25),
        ("0s", 0.0),
        ("30s", 30.0),
        ("1h30m", 5400.0),
        ("7d", 604800.0),
        ("1.5h", 5400.0),
        ("0.5s", 0.5),
        ("1m 30s", 90.0),
        (" 2 s ", 2.0),
        ("1d2h3m4s5ms", 93784.005),
    ],
)
def test_a_duration_is_read_with_its_units(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("16MiB", 16 * 1024**2),
        ("1B", 1),
        ("1.5KiB", 1536),
        ("2 GiB", 2 * 1024**3),
        ("3MB", 3_000_000),
    ],
)
def test_a_size_is_read_with_its_unit(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["30", "1h30", "30 parsecs", "5S", "5µs", "0", "1e3s"])
def test_a_duration_without_a_known_unit_has_an_error_of_its_own(text: str) -> None:
    with pytest.raises(Unreadable, match="unit"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["16", "16mib", "16 MiBs"])
def test_a_size_without_a_known_unit_has_an_error_of_its_own(text: str) -> None:
    with pytest.raises(Unreadable, match="unit"):
        parse_size(text)


@pytest.mark.parametrize(
    "text", ["", "  ", "s", "soon", "1m1h", "1s1s", "1..5s", "٣s", "1_0s", "9" * 400 + "s"]
)
def test_a_text_that_is_not_a_duration_is_refused(text: str) -> None:
    with pytest.raises(Unreadable):
        parse_duration(text)


def test_a_negative_duration_or_size_has_an_error_of_its_own() -> None:
    with pytest.raises(Unreadable, match="negative"):
        parse_duration("-5s")
    with pytest.raises(Unreadable, match="negative"):
        parse_size(" - 1KiB")


@given(st.integers(0, 400 * MILLISECONDS["d"]))
def test_a_written_duration_is_read_as_the_same_to_the_millisecond(milliseconds: int) -> None:
    seconds = milliseconds / 1000

    assert parse_duration(format_duration(seconds)) == seconds


@given(st.dictionaries(st.sampled_from(list(MILLISECONDS)), st.integers(0, 999), min_size=1))
def test_the_parts_of_a_duration_add_up(parts: dict[str, int]) -> None:
    text = "".join(f"{parts[unit]}{unit}" for unit in MILLISECONDS if unit in parts)

    assert parse_duration(text) == sum(parts[u] * MILLISECONDS[u] for u in parts) / 1000
    assert re.search(DURATION_PATTERN, text)


@given(st.integers(0, 2**40))
def test_a_written_size_is_read_as_the_same(size: int) -> None:
    text = format_size(size)

    assert parse_size(text) == size
    assert re.search(SIZE_PATTERN, text)


@given(st.text(max_size=30))
def test_any_text_is_a_duration_or_is_refused_as_one_of_three(text: str) -> None:
    try:
        assert parse_duration(text) >= 0
    except Unreadable as refusal:
        assert str(refusal)


@given(st.text(alphabet="0123456789.msh dBKiMG-", max_size=12))
def test_the_pattern_for_editors_accepts_every_valid_text(text: str) -> None:
    try:
        parse_duration(text)
    except ValueError:
        return
    assert re.search(DURATION_PATTERN, text)
