"""The pages of the dashboard, without a browser."""

from __future__ import annotations

import pytest
from support.covers import covers


def test_the_overview_shows_each_flow(web, shop):
    shop.start("store_items", ["a"])

    answer = web.get("/")

    assert answer.status_code == 200
    assert "store_items" in answer.text
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert answer.headers["cache-control"] == "no-store"


def test_a_page_and_the_api_show_the_same_document(web, shop):
    run = shop.start("store_items", ["a"])

    (listed,) = web.get("/api/1/runs?flow=store_items").json()["runs"]

    assert listed["run_id"] == str(run)
    assert str(run) in web.get("/runs?flow=store_items").text


@covers("E506", "E507")
@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/api/1/runs?flw=x", 400, "E506"),
        ("/api/1/runs?flow=x&flow=y", 400, "E506"),
        ("/api/1/nothing", 404, "E507"),
        ("/api/1/assets/x", 404, "E507"),
    ],
)
def test_an_error_is_what_commands_print(web, path, status, code):
    answer = web.get(path)

    assert answer.status_code == status
    assert [problem["code"] for problem in answer.json()["errors"]] == [code]
