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

    type: str
    body: bytes


_TYPES = {
    "pgflowd.css": "text/css; charset=utf-8",
    "pgflowd.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


def _read() -> dict[str, Asset]:
    folder = files("pgflowd.web.assets")
    return {name: Asset(type, (folder / name).read_bytes()) for name, type in _TYPES.items()}


def _hashed(name: str, asset: Asset) -> str:
    stem, _, ending = name.rpartition(".")
    return f"{stem}.{hashlib.sha256(asset.body).hexdigest()[:12]}.{ending}"


_BY_NAME = _read()
_HASHED = {_hashed(name, asset): name for name, asset in _BY_NAME.items()}
_ADDRESSES = {name: f"assets/{hashed}" for hashed, name in _HASHED.items()}


def address_of(name: str) -> str:
    """Where a page loads it from, below the address of the dashboard."""
    return _ADDRESSES[name]


def asset(hashed: str) -> Asset | None:
    """The file of an address; None for any other name."""
    name = _HASHED.get(hashed)
    return None if name is None else _BY_NAME[name]
