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
