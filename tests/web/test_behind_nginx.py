"""The dashboard behind Debian's nginx, as docs/operate/dashboard.md configures both."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from support.dashboard import Running, running
from support.event_lines import events_of
from support.nginx import nginx
from support.pages import blocks_of

NAME = "flows.example.com"
HOST = f"Host: {NAME}"
GET, POST = "GET /nothing HTTP/1.1", "POST /nothing HTTP/1.1"


def config(number: int) -> dict[str, Any]:
    """The keys of a block of the page that matter behind a proxy."""
    web = tomllib.loads(blocks_of("docs/operate/dashboard.md", "toml")[number])["web"]
    kept = ("auth", "proxy_user", "operators", "trusted_proxies", "hosts")
    return {key: tuple(web[key]) if isinstance(web[key], list) else web[key]
            for key in kept if key in web}  # fmt: skip


SERVICE, PROXY = 2, 3  # blocks of the page


@pytest.fixture(scope="module")
def open_to_all(tmp_path_factory) -> Iterator[tuple[Running, Running]]:
    """A dashboard for everybody, and the same through nginx."""
    web = {**config(SERVICE), "auth": "none"}
    with (
        running("", **web) as made,
        nginx(tmp_path_factory.mktemp("nginx"), int(made.place)) as port,
    ):
        yield made, replace(made, place=port)


def test_the_page_names_the_blocks_that_are_tested_here():
    assert config(SERVICE)["auth"] == "password"
    assert config(PROXY)["auth"] == "proxy"


SMUGGLED = "GET /smuggled HTTP/1.1\r\nHost: flows.example.com\r\n\r\n"
PAIRS = {
    "two lengths": ["Content-Length: 5", f"Content-Length: {5 + len(SMUGGLED)}"],
    "length and coding": [f"Content-Length: {5 + len(SMUGGLED)}", "Transfer-Encoding: chunked"],
    "coding and length": ["Transfer-Encoding: chunked", f"Content-Length: {5 + len(SMUGGLED)}"],
    "two codings": ["Transfer-Encoding: chunked", "Transfer-Encoding: identity"],
    "a coding with a tab": ["Transfer-Encoding:\tchunked", "Content-Length: 5"],
    "a coding that is no coding": ["Transfer-Encoding: xchunked", "Content-Length: 5"],
    "a coding with a blank": ["Transfer-Encoding : chunked", "Content-Length: 5"],
    "a folded coding": ["X: y\r\n Transfer-Encoding: chunked", "Content-Length: 5"],
    "a coding with an underscore": ["Transfer_Encoding: chunked", "Content-Length: 5"],
}


@pytest.mark.parametrize("pair", PAIRS)
def test_nothing_is_smuggled_past_nginx(open_to_all, pair):
    """nginx answers or we do, but nobody takes the body for a request of its own."""
    direct, proxied = open_to_all
    lines = [HOST, "Sec-Fetch-Site: same-origin", *PAIRS[pair]]
    head = "\r\n".join([POST, *lines, "Connection: close", "", ""])
    direct.log.records.clear()

    answer = proxied.raw(f"{head}0\r\n\r\n{SMUGGLED}")

    assert answer.count("HTTP/1.1 ") == 1
    assert "/smuggled" not in answer
    assert "/smuggled" not in str(direct.log.records)


@pytest.mark.parametrize(
    ("status", "first", "lines"),
    [
        (404, GET, [HOST]),
        (421, GET, ["Host: evil.example"]),
        (400, GET, [HOST, HOST]),  # by nginx
        (400, GET, []),
        (404, POST, [HOST, "Sec-Fetch-Site: same-origin"]),
        (404, POST, [HOST, f"Origin: https://{NAME}"]),
        (403, POST, [HOST]),
        (403, POST, [HOST, "Origin: https://evil.example"]),
        (403, POST, [HOST, "Sec-Fetch-Site: cross-site", f"Origin: https://{NAME}"]),
        (413, POST, [HOST, "Sec-Fetch-Site: same-origin", "Content-Length: 70000"]),
        (405, "DELETE /nothing HTTP/1.1", [HOST]),
        (431, GET, [HOST, *[f"X-Large-{n}: {'x' * 4000}" for n in range(5)]]),
        (404, GET, [HOST, "X_Forwarded_User: root"]),  # nginx leaves it out
        (404, "GET /assets/../../etc/passwd HTTP/1.1", [HOST]),
    ],
)
def test_a_request_is_judged_as_it_is_without_a_proxy(open_to_all, status, first, lines):
    body = "x" * 70_000 if status == 413 else ""
    found, _ = open_to_all[1].ask(*lines, first=first, body=body)

    assert found in ({400, 404} if ".." in first else {status})


def test_the_address_of_a_client_is_the_one_that_nginx_has_seen(open_to_all):
    direct, proxied = open_to_all
    direct.log.records.clear()
    proxied.ask(HOST, "X-Forwarded-For: 203.0.113.9", "X-Forwarded-For: 198.51.100.7", first=POST)

    # nginx has added its client, the test, whose address is that of a trusted proxy here
    assert direct.log.records[-1]["client"] == "198.51.100.7"
    proxied.ask("Host: evil.example", first=GET)
    assert direct.log.records[-1]["client"] == "127.0.0.1"


def test_events_pass_at_once(database, shop, tmp_path):
    web = {**config(SERVICE), "auth": "none"}
    with (
        running(database.dsn, **web) as made,
        nginx(tmp_path, int(made.place)) as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client,
        client.stream("GET", "/live/", headers={"host": NAME}) as answer,
    ):
        assert answer.status_code == 200
        events = events_of(answer)
        next(events)
        made.dashboard.live.end_streams("reconnect")
        assert "reconnect" in [each.data for each in events]


def test_nginx_names_the_user_and_nobody_else_does(tmp_path):
    users = tmp_path / "htpasswd"
    users.write_text("jane:{PLAIN}correct\njoe:{PLAIN}battery\n")
    with running("", **config(PROXY)) as made, nginx(tmp_path, int(made.place), users) as port:
        client = httpx.Client(base_url=f"http://127.0.0.1:{port}", headers={"host": NAME})
        forged = {"x-forwarded-user": "jane"}

        assert client.get("/nothing", headers=forged).status_code == 401
        assert client.get("/nothing", auth=("joe", "battery")).status_code == 404
        joe = client.post("/logout", auth=("joe", "battery"), headers=forged)
        assert joe.status_code == 403  # from no page of ours
        assert client.get("/nothing", auth=("jane", "wrong")).status_code == 401
        client.close()
    assert made.log.events() == ["web.refused"]
