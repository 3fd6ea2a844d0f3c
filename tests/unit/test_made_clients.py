"""The plain client, and what else exists twice, is as `make clients` makes it."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOL = runpy.run_path(str(ROOT / "tools/make_clients.py"))


@pytest.mark.parametrize(("path", "source"), TOOL["SOURCES"].items())
def test_a_made_module_is_as_its_source_makes_it(path: str, source: str):
    assert (ROOT / path).read_text("utf-8") == TOOL["made"](source), "do: make clients"


@pytest.mark.parametrize("path", TOOL["SOURCES"])
def test_a_made_module_says_so_at_its_head(path: str):
    head = (ROOT / path).read_text("utf-8").partition("\n")[0]

    assert head.startswith("# Made from ")
    assert "`make clients`" in head


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        ("async def take():\n    await read()\n", "def take():\n    read()\n"),
        (
            "async with a:\n    async for b in c:\n        d\n",
            "with a:\n    for b in c:\n        d\n",
        ),
        ("x = [await one async for one in f_async()]\n", "x = [one for one in f()]\n"),
        ("async def __aenter__(self) -> AsyncOne: ...\n", "def __enter__(self) -> One: ...\n"),
        ("await asyncio.sleep(\n    1\n)\n", "time.sleep(1)\n"),
        ("a = 1\nb = 2  # async\n# sync: b = 3\n", "a = 1\nb = 3\n"),
        ('"""`await AsyncOne()`"""\n', '"""`One()`"""\n'),
        ("a = 1  # not of async\n", "a = 1  # not of async\n"),
    ],
)
def test_what_is_asynchronous_goes(written: str, plain: str):
    assert TOOL["plain_of"](written) == plain
