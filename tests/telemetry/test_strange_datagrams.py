"""What a user sends the exporter and is no span: it is counted, and nothing else happens."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pgflowd.host.otlp import OtlpExporter
from pgflowd.host.span_socket import read_datagram

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
