"""
The few files that pages load: script, style, icon.

Their addresses hold a hash of what is in them, so browsers may keep them for ever.
"""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import NamedTuple


class Asset(NamedTuple):
    """A file that pages load."""

    address: str  # below the address of the dashboard
    type: str
    body: bytes


def _asset(name: str, type: str) -> Asset:
    body, (stem, _, ending) = (files(__name__) / name).read_bytes(), name.rpartition(".")
    return Asset(f"assets/{stem}.{hashlib.sha256(body).hexdigest()[:12]}.{ending}", type, body)


_BY_NAME = {
    "pgflowd.css": _asset("pgflowd.css", "text/css; charset=utf-8"),
    "pgflowd.js": _asset("pgflowd.js", "text/javascript; charset=utf-8"),
    "icon.svg": _asset("icon.svg", "image/svg+xml"),
}
BY_ADDRESS = {each.address: each for each in _BY_NAME.values()}


def address_of(name: str) -> str:
    """Where a page loads it from."""
    return _BY_NAME[name].address
