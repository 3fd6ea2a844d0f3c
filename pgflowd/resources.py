"""
Shipped: where the files are that travel with the code: `sql/`, `config/` and `systemd/`.

In a checkout (and an editable install) they lie beside the package, at the top of the
project; in a wheel they lie inside it. Everyone asks here.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def shipped(name: str) -> Path:
    """Return the directory `name` ("sql", "config" or "systemd")."""
    inside = _PACKAGE / name
    return inside if inside.is_dir() else _PACKAGE.parent / name
