"""The last lines of an attempt: which are kept, how they are stored and read."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from pgflowd.core.output_stream import CUT_TEXT, KeptLine, KeptOutput, read
from pgflowd.core.redact import redact

LINES = some.lists(some.tuples(some.sampled_from(["stdout", "stderr", "error"]), some.text()))


def stored(*lines: tuple[str, str], size: int = 1000) -> str:
    kept = KeptOutput(size, redact)
    for number, (source, text) in enumerate(lines):
        kept.add(number / 4, source, text)
    return kept.text()[0]


def test_each_line_has_its_time_and_its_source():
    text = stored(("stdout", "page 7"), ("stderr", ""), ("warning", "mind the gap"))

    assert text == "0.000 stdout page 7\n0.250 stderr \n0.500 warning mind the gap\n"
    assert read(text) == (
        [
            KeptLine(0.0, "stdout", "info", "page 7"),
            KeptLine(0.25, "stderr", "info", ""),
            KeptLine(0.5, "log", "warning", "mind the gap"),
        ],
        False,
    )


def test_the_last_lines_are_kept_whole():
    text = stored(*[("stdout", f"line {number}") for number in range(1000)], size=1024)
    lines, is_cut = read(text)

    assert is_cut
    assert text.startswith(f"0 cut {CUT_TEXT}\n")
    assert [line.text for line in lines] == [f"line {n}" for n in range(1000 - len(lines), 1000)]
    assert 900 < len(text) <= 1024 + len(f"0 cut {CUT_TEXT}\n")


def test_a_long_line_is_cut_at_a_word_so_that_half_a_secret_is_not_shown():
    text = stored(("stdout", "x" * 5000 + " password=" + "hunter2" * 140 + " the end"), size=1000)

    assert "hunter2" not in text
    assert text.endswith("the end\n")


def test_secrets_are_hidden_as_in_the_log():
    text = stored(("stdout", "password=hunter2"), ("info", "postgresql://u:hunter2@h/d"))
    assert "hunter2" not in text


@given(LINES, some.integers(1024, 4096))
def test_whatever_is_printed_can_be_stored_and_read_within_its_size(lines, size):
    kept = KeptOutput(size, lambda text: text)
    for source, text in lines:
        kept.add(1.0, source, text)
    text, count = kept.text()

    text.encode()
    assert "\0" not in text
    assert len(text.encode()) <= size + 40
    found, is_cut = read(text) if text else ([], False)
    assert len(found) == count
    if not is_cut:
        expected = [one for _, text in lines for one in text.replace("\0", "�").split("\n")]
        assert [line.text for line in found] == expected


def test_what_came_too_fast_for_the_log_comes_last_from_its_first_whole_line_on():
    kept = KeptOutput(1000, redact)
    kept.add(0.1, "stdout", "first")
    kept.add_tail(2.0, "stdout", b"f a line\nlast but one\nl\xffst\n")

    lines, is_cut = read(kept.text()[0])
    assert [line.text for line in lines] == ["first", "last but one", "l\\xffst"]
    assert is_cut
