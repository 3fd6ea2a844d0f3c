"""
The dashboard: what the commands show, in a browser.

`pgflowd web` serves it; an application mounts it:

    async def user(scope): ...  # User("jane", may_act=True), or None for strangers
    application.mount("/flows", pgflowd.web.app(url, user=user))
"""

from __future__ import annotations

from pgflowd.web.request_checks import User
from pgflowd.web.server import app

__all__ = ["User", "app"]
