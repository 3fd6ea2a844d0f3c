"""The Python of docs/guides/typed-handlers.md does what the page says."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from support.pages import ROOT, blocks_of

from pgflowd.testing import run_flow

PAGE = "docs/guides/typed-handlers.md"


def listings() -> list[str]:
    shop, client, test, pydantic = blocks_of(PAGE, "python")
    return [f"{shop}\n{client}\n{test}", pydantic]


def test_the_listings_do_what_the_page_says() -> None:
    shop, signups = map(_executed, listings(), ("shop_of_page", "signups_of_page"))

    shop["test_an_order_is_shipped"]()
    assert run_flow(signups["signups"], {"email": "a@b", "numberOfSeats": 2}).output == {
        "invoice": [{"email": "a@b", "numberOfSeats": 2}] * 2
    }
    failed = run_flow(signups["signups"], {"email": "a@b", "numberOfSeats": 0})
    assert "E417 run.numberOfSeats: expected greater than 0" in str(failed)
    wrong = {"id": str(shop["UUID"](int=7)), "lines": [{"article": "tea", "price": "abc"}]}
    page = (ROOT / PAGE).read_text("utf-8")
    error = str(run_flow(shop["orders"], wrong).steps["lines"].error).partition(";")[0]
    assert error.replace("lines[0]", "lines[2]") in page
    assert shop["orders"].check() == signups["signups"].check() == []


def _executed(text: str, name: str) -> dict[str, Any]:
    module = ModuleType(name)
    sys.modules[name] = module  # where classes look up the names in their annotations
    exec(compile(text, PAGE, "exec"), vars(module))
    return vars(module)
