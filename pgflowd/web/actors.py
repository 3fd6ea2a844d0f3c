"""
The names that the log of actions has of those who act here.
"""

from __future__ import annotations

from pgflowd.web.users import User

OF_DASHBOARD, OF_API = " (web)", " (api)"


def actor_of(user: User) -> str:
    """Who the log of actions says that it was."""
    return f"{user.name}{OF_API if user.is_program else OF_DASHBOARD}"
