"""
The dashboard: what the commands show, in a browser.

`pgflowd web` serves it; an application mounts it: `app.mount("/flows", pgflowd.web.app(url))`.
"""

from __future__ import annotations

from pgflowd.web.application import app

__all__ = ["app"]
