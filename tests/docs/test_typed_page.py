"""The Python of docs/typed-handlers.md works, and pyright accepts it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from support.pages import ROOT, blocks_of

from pgflowd.testing import run_flow

PAGE = "docs/typed-handlers.md"


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


def test_pyright_accepts_the_listings_strictly(tmp_path: Path) -> None:
    """As mypy does in test_page_programs.py."""
    for name, text in zip(("shop.py", "signups.py"), listings(), strict=True):
        (tmp_path / name).write_text(text)
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')

    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "-p", "."],
        cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout


def _executed(text: str, name: str) -> dict[str, Any]:
    module = ModuleType(name)
    sys.modules[name] = module  # where classes look up the names in their annotations
    exec(compile(text, PAGE, "exec"), vars(module))
    return vars(module)
