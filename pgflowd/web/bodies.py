"""
Reads the body of a request, a form or JSON, within the limits.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

from starlette.types import Message, Receive

from pgflowd.core.redact import one_line
from pgflowd.web.refusals import Refused
from pgflowd.web.request_checks import MAX_BODY_BYTES, Scope, too_large, value_of

READ_S = 10.0  # so long a client may take to send its body
MAX_FIELDS = 200
DISCARD_S = 2.0
MAX_DISCARDED_BYTES = 1024 * 1024
_FORM = "application/x-www-form-urlencoded"


def limited(receive: Receive) -> Receive:
    """Return a `receive` that refuses a body which is too large or comes too slowly."""
    read, is_whole, deadline = 0, False, asyncio.get_running_loop().time() + READ_S

    async def receive_within_limits() -> Message:
        nonlocal read, is_whole
        if is_whole:
            return await receive()  # waits until the client is gone
        try:
            async with asyncio.timeout_at(deadline):
                message = await receive()
        except TimeoutError:
            text = f"the body did not come within {READ_S:g} s"
            raise Refused(HTTPStatus.REQUEST_TIMEOUT, text) from None
        read += len(message.get("body", b""))
        is_whole = not message.get("more_body", False)
        if read > MAX_BODY_BYTES:
            raise too_large()
        return message

    return receive_within_limits


async def discard(receive: Receive) -> None:
    """Take the rest of a body that is too large: else who sends it does not read the answer."""
    taken = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(DISCARD_S):
            while taken < MAX_DISCARDED_BYTES:
                message = await receive()
                taken += len(message.get("body", b""))
                if not message.get("more_body", False):
                    return


async def read_body(receive: Receive) -> bytes:
    """Return the whole body."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused(HTTPStatus.BAD_REQUEST, "the client has left before the end of its body")
        body += message.get("body", b"")
        if not message.get("more_body", False):
            return bytes(body)


async def read_form(scope: Scope, receive: Receive) -> dict[str, list[str]]:
    """Return the fields of a form, each with its values."""
    _check_type(scope, _FORM)
    body = await read_body(receive)
    if body.count(b"&") >= MAX_FIELDS:
        text = f"the form has more than {MAX_FIELDS} fields"
        raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict")
    except ValueError:
        raise Refused(HTTPStatus.BAD_REQUEST, "the form is not UTF-8") from None
    fields: dict[str, list[str]] = {}
    for name, value in pairs:
        fields.setdefault(name, []).append(value)
    return fields


async def read_json(scope: Scope, receive: Receive) -> Any:
    """Return the JSON value of a body."""
    _check_type(scope, "application/json")
    try:
        return json.loads(await read_body(receive))
    except (ValueError, RecursionError):
        raise Refused(HTTPStatus.BAD_REQUEST, "the body is not JSON") from None


def _check_type(scope: Scope, wanted: str) -> None:
    given = (value_of(scope, "content-type") or "").partition(";")[0].strip().lower()
    if given != wanted:
        text = f"the Content-Type is {one_line(given, 80) or 'absent'}; it must be {wanted}"
        raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, text)
