"""Rows of daemons that are no status documents: no page minds."""

from __future__ import annotations

import pytest
from support.covers import covers
from support.odd_documents import ODD, addresses, plant


@covers("row 105", "attack 6")
@pytest.mark.parametrize("what", ODD)
def test_no_page_is_lost_by_an_odd_row_of_a_daemon(web, shop, what):
    daemon = plant(shop, what)

    for address in addresses(daemon):
        page = web.get(address)
        twin = web.get("/api/1" + ("/overview" if address == "/" else address))

        assert (page.status_code, twin.status_code) == (200, 200), (address, page.text, twin.text)
        assert len(page.content) < 500_000 and len(twin.content) < 500_000, address


def test_the_frame_shows_a_few_problems_and_says_how_many_more(web, shop):
    plant(shop, "300,000 problems")
    plant(shop, "flows of 20 MB")

    page = web.get("/runs").text

    assert "x5" in page and "x11" not in page
    assert "41 more" in page
    assert "is not shown" in page
