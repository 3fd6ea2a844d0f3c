"""What a request is, which error anything else gets, and which format a scraper prefers."""

from __future__ import annotations

import pytest

from pgflowd.core.http import HttpAnswer, HttpRequest, prefers, read_request

OPEN, CLASSIC = "application/openmetrics-text", "text/plain"
PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)


@pytest.mark.parametrize(
    ("head", "request_"),
    [
        ("GET /livez HTTP/1.0", HttpRequest("/livez")),
        ("HEAD /metrics?x=1 HTTP/1.1", HttpRequest("/metrics", is_head=True)),
        ("GET http://[::1]:1/readyz HTTP/1.1", HttpRequest("/readyz")),
        (
            "GET / HTTP/1.1\r\nX-A:  b \r\nContent-Length: 0",
            HttpRequest("/", {"x-a": "b", "content-length": "0"}),
        ),
    ],
)
def test_the_head_of_a_request(head, request_):
    assert read_request(f"{head}\r\n\r\n".encode()) == request_


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"POST /livez HTTP/1.1", 405),
        (b"GET /livez HTTP/2.0", 505),
        (b"GET  /livez", 400),
        (b"GET http://[x/ HTTP/1.1", 400),
        (b"GET /livez HTTP/1.1\r\n folded: x", 400),
        (b"GET /livez HTTP/1.1\r\nno header", 400),
        (b"GET /livez HTTP/1.1\r\nTransfer-Encoding: chunked", 413),
        (b"GET /livez HTTP/1.1\r\nContent-Length: 7", 413),
        (b"\x16\x03\x01\x02", 400),
    ],
)
def test_what_is_not_a_request_of_ours_gets_an_error(head, status):
    answer = read_request(head + b"\r\n\r\n")

    assert isinstance(answer, HttpAnswer)
    assert answer.status == status
    assert answer.encode("now").startswith(b"HTTP/1.1 %d " % status)


def test_only_a_bearer_brings_a_token():
    def brought(value: str) -> str:
        return HttpRequest("/", {"authorization": value}).bearer

    assert brought("Bearer  abc ") == brought("bearer abc") == "abc"
    assert brought("Basic abc") == brought("") == brought("Bearer") == ""


@pytest.mark.parametrize(
    ("accept", "is_open"),
    [
        (PROMETHEUS, True),
        ("", False),
        ("*/*", False),
        ("text/plain", False),
        (f"{OPEN};q=0", False),
        (f"{OPEN};q=0.1, {CLASSIC};q=0.2", False),
        (f"{OPEN};q=x", False),
        (OPEN.upper(), True),
    ],
)
def test_openmetrics_is_for_those_who_ask_for_it(accept, is_open):
    assert prefers(accept, OPEN, CLASSIC) is is_open
