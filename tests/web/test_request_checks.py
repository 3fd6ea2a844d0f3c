"""Each row of the dashboard's security, through a raw socket."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus

import pytest
from support.covers import covers
from support.dashboard import Log, Running, running

from pgflowd.web.guard import OUR_HEADERS
from pgflowd.web.request_checks import Refusals

HOST = "Host: localhost"


@pytest.fixture(scope="module")
def open_to_all() -> Iterator[Running]:
    """A dashboard that everybody may see; its pages need no database to be refused."""
    with running("", auth="none", hosts=("flows.example",)) as made:
        yield made


REFUSED = {
    "two hosts": (421, "", [HOST, HOST]),
    "two different hosts": (421, "", ["Host: evil.example", HOST]),
    "no host": (421, "", []),
    "a host that is not ours": (421, "", ["Host: evil.example:7460"]),
    "a host that begins like ours": (421, "", ["Host: localhost.evil.example"]),
    "a host with a user": (421, "", ["Host: localhost@evil.example"]),
    "a host with a path": (421, "", ["Host: localhost/x"]),
    "an empty host": (421, "", ["Host:"]),
    "another method": (405, "PUT / HTTP/1.1", [HOST]),
    "options": (405, "OPTIONS / HTTP/1.1", [HOST]),
    "a proxy's target": (400, "GET http://localhost/ HTTP/1.1", [HOST]),
    "a tunnel": (400, "CONNECT evil.example:80 HTTP/1.1", [HOST]),
    "a header with an underscore": (400, "", [HOST, "X_Forwarded_User: root"]),
    "a large head": (431, "", [HOST, f"X-Large: {'x' * 17_000}"]),
    "a very large head": (431, "", [HOST, f"X-Large: {'x' * 200_000}"]),
    "many headers": (431, "", [HOST, *(f"X-{n}: 1" for n in range(2_500))]),
    "two kinds of length": (
        400, "POST / HTTP/1.1", [HOST, "Content-Length: 4", "Transfer-Encoding: chunked"],
    ),
    "two lengths": (400, "POST / HTTP/1.1", [HOST, "Content-Length: 4", "Content-Length: 5"]),
    "a list of lengths": (400, "POST / HTTP/1.1", [HOST, "Content-Length: 4, 4"]),
    "a length with a sign": (400, "POST / HTTP/1.1", [HOST, "Content-Length: +4"]),
    "a coding that nobody knows": (400, "POST / HTTP/1.1", [HOST, "Transfer-Encoding: xchunked"]),
    "a coding of old": (400, "POST / HTTP/1.0", [HOST, "Transfer-Encoding: chunked"]),
    "two codings": (
        400, "POST / HTTP/1.1", [HOST, "Transfer-Encoding: chunked", "Transfer-Encoding: identity"],
    ),
    "a blank before the colon": (400, "", [HOST, "Content-Length : 4"]),
    "a folded header": (400, "", [HOST, "X-Folded: a", " b"]),
    "a large body": (413, "POST / HTTP/1.1", [HOST, "Content-Length: 65537"]),
    "a body of the next century": (400, "POST / HTTP/1.1", [HOST, f"Content-Length: {'9' * 30}"]),
    "an address with NUL": (400, "GET /flows/a%00b HTTP/1.1", [HOST]),
    "a parameter with NUL": (400, "GET /runs?text=a%00b HTTP/1.1", [HOST]),
    "no http at all": (400, "\x16\x03\x01\x02", []),
    "a path that is no ascii": (400, "GET /\xe4 HTTP/1.1", [HOST]),
}  # fmt: skip


@covers("E508")
@pytest.mark.parametrize("what", REFUSED)
def test_it_is_refused_and_the_connection_ends(open_to_all, what):
    status, first, lines = REFUSED[what]
    smuggled = "GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"
    head = "\r\n".join([first or "GET / HTTP/1.1", *lines, "", ""])

    answer = open_to_all.raw(f"{head}0\r\n\r\n{smuggled}")

    assert answer.startswith(f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"), answer
    assert answer.count("HTTP/1.1 ") == 1
    lower = answer.lower()
    assert "connection: close\r\n" in lower
    for name, value in OUR_HEADERS.items():
        assert f"{name}: {value}\r\n".lower() in lower
    assert "cache-control: no-store\r\n" in lower


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:7460", "127.0.0.1", "[::1]:7460", "flows.example", "localhost."],
)
def test_a_host_of_ours_is_known_with_any_port(open_to_all, host):
    assert open_to_all.ask(f"Host: {host}", first="GET /nothing HTTP/1.1")[0] == 404


ORIGINS = [
    (404, ["Sec-Fetch-Site: same-origin"]),
    (404, ["Sec-Fetch-Site: same-origin", "Origin: null"]),
    (404, ["Origin: http://localhost:7460"]),
    (404, ["Origin: HTTP://LOCALHOST:7460"]),
    (403, []),
    (403, ["Sec-Fetch-Site: cross-site", "Origin: http://localhost:7460"]),
    (403, ["Sec-Fetch-Site: same-site", "Origin: http://localhost:7460"]),
    (403, ["Sec-Fetch-Site: none"]),
    (403, ["Origin: null"]),
    (403, ["Origin: http://localhost:9999"]),
    (403, ["Origin: https://localhost:7460"]),
    (403, ["Origin: http://localhost"]),
    (403, ["Origin: http://evil.example"]),
    (403, ["Referer: http://localhost:7460/"]),
    (400, ["Origin: http://evil.example", "Origin: http://localhost:7460"]),
    (400, ["Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-origin"]),
]


@pytest.mark.parametrize(("status", "lines"), ORIGINS)
def test_a_post_comes_from_a_page_of_ours(open_to_all, status, lines):
    host = "Host: localhost:7460"

    found, answer = open_to_all.ask(host, *lines, first="POST /nothing HTTP/1.1")

    assert found == status
    if status == 403:  # it says what arrived, and what was expected
        assert "Sec-Fetch-Site: same-origin" in answer
        assert "http://localhost:7460" in answer
        assert (
            f"Origin: {'absent' if not any('Origin' in each for each in lines) else ''}" in answer
        )


def test_an_error_of_the_api_is_a_document(open_to_all):
    status, answer = open_to_all.ask("Host: evil.example", first="GET /api/1/runs HTTP/1.1")

    assert status == 421
    assert '"errors": [{"code": "E508"' in answer
    assert "content-type: application/json" in answer.lower()


def test_a_request_for_another_protocol_is_answered_and_ends(open_to_all):
    upgrade = [HOST, "Connection: Upgrade", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"]
    head = "\r\n".join(["GET /nothing HTTP/1.1", *upgrade, "", ""])

    answer = open_to_all.raw(head + "GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n")

    assert answer.startswith("HTTP/1.1 404 ")
    assert answer.count("HTTP/1.1 ") == 1


def test_two_requests_at_once_are_answered_one_after_the_other(open_to_all):
    one = "GET /{} HTTP/1.1\r\nHost: localhost\r\n{}\r\n"

    answer = open_to_all.raw(
        one.format("first", "") + one.format("second", "Connection: close\r\n")
    )

    assert answer.count("HTTP/1.1 404 ") == 2
    assert answer.index("/first") < answer.index("/second")


def test_refusals_are_logged_but_not_without_an_end():
    log, time = Log(), [0.0]
    refusals = Refusals(log.write, lambda: time[0])
    for _ in range(60):
        refusals.write(code="E508")
    time[0] = 10.0
    refusals.write(code="E509")

    assert [each.get("code") for each in log.records] == ["E508"] * 20 + [None, "E509"]
    assert log.records[20]["count"] == 40


def test_what_a_log_says_of_a_request_is_one_line():
    with running("", auth="none") as made:
        made.ask("Host: evil.example", first="GET /%1b%5b31m%0ax HTTP/1.1")

    (record,) = made.log.records
    assert (record["event"], record["status"]) == ("web.refused", 421)
    assert record["path"] == "/\\x1b[31m\\nx"
