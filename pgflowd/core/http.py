"""
HTTP as far as health checks and scrapes need it: reads the head of a request, writes an answer.

A request is a GET or HEAD without a body, and each connection has one. What is anything else gets
an error with a sentence. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import urlsplit

PLAIN = "text/plain; charset=utf-8"
MAX_HEAD_BYTES = 8 * 1024
_VERSIONS = ("HTTP/1.0", "HTTP/1.1")


@dataclass(frozen=True)
class HttpRequest:
    """The head of a request; the names of headers are in lower case."""

    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    is_head: bool = False

    @property
    def bearer(self) -> str:
        """The token that it brings, or nothing."""
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        return token.strip() if scheme.lower() == "bearer" else ""


@dataclass(frozen=True)
class HttpAnswer:
    """An answer."""

    status: HTTPStatus
    body: str
    type: str = PLAIN
    headers: Mapping[str, str] = field(default_factory=dict)

    def encode(self, date: str, *, is_head: bool = False) -> bytes:
        """Return its bytes; after them the connection is closed."""
        body = self.body.encode()
        headers = {
            "Date": date,
            "Content-Type": self.type,
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "Connection": "close",
            **self.headers,
        }
        lines = [f"HTTP/1.1 {self.status.value} {self.status.phrase}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + (b"" if is_head else body)


def read_request(head: bytes) -> HttpRequest | HttpAnswer:
    """Read a head up to its empty line; return the answer if it is not one of ours."""
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    method, _, rest = first.partition(" ")
    target, _, version = rest.partition(" ")
    if not method.isalpha() or not target or not version.startswith("HTTP/"):
        return refusal(HTTPStatus.BAD_REQUEST, "this is not a request of HTTP")
    if version not in _VERSIONS:
        return refusal(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "only HTTP/1.0 and 1.1 are known")
    if method not in ("GET", "HEAD"):
        return refusal(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are", Allow="GET, HEAD")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            return refusal(HTTPStatus.BAD_REQUEST, "a line of its head is not a header")
        headers[name.lower()] = value.strip()
    if "transfer-encoding" in headers or headers.get("content-length", "0") != "0":
        return refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "no body is read here")
    try:
        path = urlsplit(target).path
    except ValueError:
        return refusal(HTTPStatus.BAD_REQUEST, "its target is not a path")
    return HttpRequest(path, headers, method == "HEAD")


def refusal(status: HTTPStatus, text: str, **headers: str) -> HttpAnswer:
    """An error with its sentence."""
    return HttpAnswer(status, f"{text}\n", headers=headers)


def prefers(accept: str, wanted: str, other: str) -> bool:
    """Whether a header Accept names the wanted type, and prefers no other to it."""
    weights: dict[str, float] = {}
    for each in accept.lower().split(","):
        name, *params = (part.strip() for part in each.split(";"))
        weight = next((part[2:] for part in params if part.startswith("q=")), "1")
        try:
            weights[name] = max(weights.get(name, 0.0), float(weight))
        except ValueError:
            continue
    return weights.get(wanted, 0.0) > 0 and weights[wanted] >= weights.get(other, 0.0)
