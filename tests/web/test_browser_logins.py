"""Logging in and out in Chromium, also from a page of another site."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect
from starlette.responses import HTMLResponse
from support.dashboard import Running, running

from pgflowd.web.auth import hash_of
from pgflowd.web.login_files import LoginFile, LoginLine


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with browser.new_context() as context:
        yield context.new_page()


def overview(made: Running) -> re.Pattern[str]:
    return re.compile(rf"^{re.escape(made.url)}/$")


def test_links_passwords_and_pages_of_other_sites(page, database, shop, serve, tmp_path):
    users = LoginFile(str(tmp_path / "users"), "users")
    users.put(LoginLine("jane", True, hash_of("correct horse")))
    with (
        running(database.dsn) as by_link,
        running(database.dsn, auth="password", users=str(users.path)) as by_password,
    ):
        another_site = serve(
            HTMLResponse(
                f'<a href="{by_link.link}">open</a><form method="post"'
                f' action="{by_link.url}/logout"><button>steal</button></form>'
            )
        ).replace("127.0.0.1", "localhost")

        page.goto(another_site)
        page.get_by_role("link", name="open").click()
        expect(page).to_have_url(overview(by_link))  # without the key, and logged in
        expect(page.get_by_role("link", name="store_items").first).to_be_visible()
        assert page.evaluate("() => document.cookie") == ""

        page.goto(another_site)
        page.get_by_role("button", name="steal").click()
        expect(page.get_by_text("did not come from a page of the dashboard")).to_be_visible()
        page.goto(by_link.url)
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_text("opened by a link with a key")).to_be_visible()

        page.goto(f"{by_password.url}/runs?flow=store_items")
        page.get_by_label("Name").fill("jane")
        page.get_by_label("Password").fill("wrong horse")
        page.get_by_label("Password").press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("wrong")
        page.get_by_label("Name").fill("jane")
        page.get_by_label("Password").fill("correct horse")
        page.get_by_role("button", name="Log in").click()
        expect(page).to_have_url(f"{by_password.url}/runs?flow=store_items")
        page.get_by_role("button", name="Log out jane").click()
        expect(page.get_by_role("heading", name="Log in to pgflowd")).to_be_visible()
