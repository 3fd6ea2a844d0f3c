"""
Who makes a request.

A page finds its user as `request.state.user`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class User:
    """A person or a program that has logged in."""

    name: str
    may_act: bool = False  # else it may look
    is_program: bool = False  # it has sent a token
    may_leave: bool = False  # he has a login of ours, which he can end


# The names that the log of actions has of those who act here.
OF_DASHBOARD, OF_API = " (web)", " (api)"


def actor_of(user: User) -> str:
    """Who the log of actions says that it was."""
    return f"{user.name}{OF_API if user.is_program else OF_DASHBOARD}"
