"""The tests of docs/guides/testing.md are tests."""

from __future__ import annotations

from typing import Any

import pytest
from support.pages import blocks_of

page: dict[str, Any] = {}
for block in blocks_of("docs/guides/testing.md", "python"):
    exec(block, page)
TESTS = [value for name, value in page.items() if name.startswith("test_")]


@pytest.mark.parametrize("test", TESTS, ids=lambda test: test.__name__)
def test_each_test_of_the_page_passes(test: Any, request: pytest.FixtureRequest) -> None:
    for marker in getattr(test, "pytestmark", []):
        request.applymarker(getattr(pytest.mark, marker.name)(*marker.args, **marker.kwargs))
    test(request.getfixturevalue("pgflow_db"))
