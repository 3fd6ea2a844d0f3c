"""
What a request tells about the page that answers it: where it is, and how it shall look.
"""

from __future__ import annotations

from starlette.requests import Request

from pgflowd.web.rendering import Look

THEMES, TIMES = ("light", "dark"), ("local",)


def root_of(request: Request) -> str:
    """The path below which the dashboard is mounted."""
    return str(request.scope.get("root_path", ""))


def back_of(request: Request) -> str:
    """The address of this page below the dashboard's, with its parameters."""
    path = request.scope["path"].removeprefix(root_of(request)) or "/"
    query = request.scope["query_string"].decode("latin-1")
    return f"{path}?{query}" if query else path


def look_of(request: Request) -> Look:
    """How the user wants pages to look, as cookies say."""
    theme, times = request.cookies.get("theme", ""), request.cookies.get("times", "")
    return Look(theme if theme in THEMES else "", times if times in TIMES else "")


def leaver_of(request: Request) -> str:
    """The name of who can log out."""
    user = getattr(request.state, "user", None)
    return str(user.name) if user is not None and user.may_leave else ""


def wants_json(request: Request) -> bool:
    """Whether the answer is for a program or a script."""
    path = str(request.scope["path"]).removeprefix(root_of(request))
    return path.startswith(("/api/", "/live/", "/fragments/"))
