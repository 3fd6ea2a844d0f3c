"""What a user sends the exporter and is no span: it is counted, and nothing else happens."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from support.collector import read_spans

from pgflowd.host.otlp import OtlpExporter
from pgflowd.host.span_socket import MAX_DATAGRAM, SpanSender, listen, read_datagram

SPAN: dict[str, Any] = {
    "trace": "2" * 32, "id": "3" * 16, "parent": None, "state": None, "name": "one", "start": 1,
    "end": 2, "error": None, "attributes": {}, "scope": ["of a library", "1.0"],
}  # fmt: skip


@pytest.mark.parametrize("lost", [-1, 1 << 40, 10**300, True, 0.5, None, "1", [], {}])
def test_a_number_of_lost_spans_that_is_none_counts_as_one(lost: Any) -> None:
    assert read_datagram(json.dumps([lost, SPAN]).encode()) == ([], 1)


@pytest.mark.parametrize(
    "datagram", [b"", b"[", b"[0", b"\xff", b"[]", b"{}", b"7", b"[" * 100_000]
)
def test_what_is_no_list_counts_as_one(datagram: bytes) -> None:
    assert read_datagram(datagram) == ([], 1)


@pytest.mark.parametrize("version", [0, 0.0, False, [], {}, 5])
def test_a_span_whose_library_has_no_version_of_letters_is_none(version: Any) -> None:
    good = OtlpExporter.encode(SPAN)

    with pytest.raises((AttributeError, TypeError)):
        OtlpExporter.encode(SPAN | {"scope": ["of a library", version]})

    assert good[0] == ("of a library", "1.0")


RUN = "019bc0de-4a51-7c02-9f6e-12ab7f3a9c12"
ATTEMPT = [RUN, "a", 0, 7, 1, "completed", "completed", 1, 2, None, None, None, 5, None]


def portion(**given: Any) -> dict[str, Any]:
    return {"flow": "alpha", "attempts": [ATTEMPT], "parts": [], "traces": {}, **given}


@pytest.mark.parametrize(
    "wrong",
    [
        portion(attempts=[ATTEMPT, ATTEMPT[:-1]]),
        portion(parts=[["a", "completed", None, math.nan, f"{RUN} 1", []]]),
        portion(parts=[["a", "completed", None, 5.0, None, []]]),
        portion(parts=[[None, "completed", None, 5.0, f"{'a' * 34}- 1", []]]),  # 17 bytes
        portion(
            parts=[[None, "completed", None, 5.0, f"{'b' * 37} 1", []]],
            traces={"b" * 37: ["a" * 30, None, None, None]},
        ),
    ],
)
def test_what_is_no_span_is_counted_and_spoils_no_other(wrong: dict[str, Any]) -> None:
    _, encoded = OtlpExporter.encode(wrong)

    assert (encoded.number, encoded.wrong, bool(encoded.why)) == (1, 1, True)
    [span] = read_spans(encoded.data)
    assert (span.name, span.trace) == ("attempt 1", RUN.replace("-", ""))


def test_a_portion_with_larger_spans_than_any_worker_tells_is_none() -> None:
    runs = " ".join([f"{RUN} 1"] * 1000)
    deps = [f"step_{nr}" for nr in range(1000)]

    with pytest.raises(ValueError, match="more than 4000000 bytes"):
        OtlpExporter.encode(portion(parts=[["a", "completed", None, 5.0, runs, deps]]))


def test_true_is_not_taken_for_the_first_attempt() -> None:
    odd = [*ATTEMPT[:4], True, *ATTEMPT[5:]]
    OtlpExporter.encode(portion(attempts=[odd]))

    assert [each.name for each in read_spans(OtlpExporter.encode(portion())[1].data)] == [
        "attempt 1"
    ]


def test_a_span_that_no_datagram_holds_is_counted_as_lost(tmp_path: Path) -> None:
    end, sender = listen(tmp_path / "span"), SpanSender(tmp_path / "span")

    sender.send(SPAN | {"name": "x" * MAX_DATAGRAM})
    sender.send(SPAN)

    assert read_datagram(end.recv(MAX_DATAGRAM)) == ([SPAN], 1)
    end.close()
