"""The dashboard in applications, as docs/operate/dashboard.md mounts it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import httpx
import pytest
from django.conf import settings
from support.pages import executed

from pgflowd.web import User, app

JANE = {"cookie": "session=of-jane"}


@pytest.fixture
def page(database, shop, monkeypatch) -> dict[str, Any]:
    """What the page's Python defines."""
    monkeypatch.setenv("PGFLOW_DSN", database.dsn)
    if not settings.configured:
        settings.configure(ALLOWED_HOSTS=["*"], ROOT_URLCONF=())
    return executed("docs/operate/dashboard.md")


@pytest.mark.parametrize("name", ["starlette", "fastapi", "application"])
def test_an_application_mounts_it_and_knows_its_users(page, serve, name, shop):
    run = shop.start("store_items", ["a"])
    address = serve(page[name])
    with httpx.Client(base_url=address, timeout=30) as client:
        stranger = client.get("/flows/")
        overview = client.get("/flows/", headers=JANE)
        runs = client.get("/flows/api/1/runs", headers=JANE).json()["runs"]
        style = overview.text.partition('rel="stylesheet" href="')[2].partition('"')[0]
        post = client.post("/flows/appearance", headers=JANE)
        missing = client.get("/flows/nothing", headers=JANE)
        outside = client.get("/nothing", headers=JANE)

    assert (stranger.status_code, overview.status_code) == (401, 200)
    assert "log in to the application" in stranger.text
    assert "store_items" in overview.text
    assert [each["run_id"] for each in runs] == [str(run)]
    assert style.startswith("/flows/assets/") and 'href="/flows/runs"' in overview.text
    assert httpx.get(address + style).status_code == 200
    assert (post.status_code, missing.status_code, outside.status_code) == (403, 404, 404)
    assert "E507" in missing.text and "E507" not in outside.text
    for answer in (stranger, overview, post, missing):
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (400, {"content-length": "5", "transfer-encoding": "chunked"}),
        (400, {"content-length": "5, 6"}),
        (400, {"transfer-encoding": "chunked, identity"}),
        (413, {"content-length": "65537"}),
        (403, {"content-length": "0"}),
        (403, {"origin": "http://evil.example"}),
    ],
)
def test_a_mounted_one_checks_requests_whatever_server_has_read_them(status, headers):
    """A parser may be less strict than ours: here it passes on all that it has read."""
    sent: list[Any] = []
    scope = {
        "type": "http", "method": "POST", "path": "/runs", "query_string": b"", "scheme": "https",
        "http_version": "1.1", "root_path": "", "client": ("10.0.0.1", 5), "raw_path": b"/runs",
        "headers": [(name.encode(), value.encode())
                    for name, value in {"host": "any.example", **headers}.items()],
    }  # fmt: skip

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    answering = app("", user=jane)(scope, receive, send)
    thread = threading.Thread(target=lambda: asyncio.run(answering))  # Chromium's driver has a loop
    thread.start()
    thread.join()

    assert sent[0]["status"] == status
    assert (b"connection", b"close") in sent[0]["headers"]


def test_without_a_way_to_act_nobody_may(database, serve):
    asked = []

    async def user(scope: Any) -> User:
        asked.append(scope["path"])
        return User("jane", may_act=True)

    with httpx.Client(base_url=serve(app(database.dsn, user=user))) as client:
        answer = client.get("/", timeout=30)

    assert asked == ["/"]
    assert '<form method="post" action="/runs' not in answer.text


def test_a_function_that_fails_is_a_page_with_a_number(database, serve, caplog):
    async def user(scope: Any) -> User:
        raise RuntimeError("no such session")

    answer = httpx.get(serve(app(database.dsn, user=user)), timeout=30)

    assert answer.status_code == 500
    number = answer.text.partition("unexpected exception, number ")[2][:8]
    assert "no such session" not in answer.text and "Traceback" not in answer.text
    assert number in caplog.text and "no such session" in caplog.text


def test_a_function_that_is_not_async_knows_its_users(database, serve):
    def user(scope: Any) -> User | None:
        return User("jane") if (b"cookie", b"session=of-jane") in scope["headers"] else None

    address = serve(app(database.dsn, user=user))

    assert httpx.get(address, headers=JANE, timeout=30).status_code == 200
    assert httpx.get(address, timeout=30).status_code == 401


def test_a_function_that_returns_no_user_is_named_in_the_log(database, serve, caplog):
    def name_of(scope: Any) -> Any:
        return "jane"

    answer = httpx.get(serve(app(database.dsn, user=name_of)), timeout=30)

    assert answer.status_code == 503 and "nobody can log in now" in answer.text
    assert "E103" in caplog.text and "name_of(scope) has returned" in caplog.text
    assert "it must return a pgflowd.web.User, or None" in caplog.text


async def jane(scope: Any) -> User:
    return User("jane", may_act=True)
