r"""
The forms that texts of the config have: a pattern, what it means, and an example.

Reading the config and its JSON Schema apply the same patterns. So these mean the same in Python and
in JavaScript: no class such as \w is in them, and each begins with ^ and ends with $. Pure.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from pgflowd.core.needs import RULE
from pgflowd.errors import TITLES

SCHEMES = ("env", "file", "cred")
TRACE_ID = "{trace_id}"  # in the URL of a trace
REFERENCE_PATTERN = f"^({'|'.join(SCHEMES)}):"
CONTROL_PATTERN = r"[\x00-\x1f\x7f-\x9f]"  # which no text has
ZERO_PATTERN = "^[^1-9]*$"  # a duration or size of nothing
_PART = r"[^\x00-@\[-^`{-\x7f][^\x00-/:-@\[-^`{-\x7f]*"  # an identifier, in any script
_DOTTED = rf"{_PART}(\.{_PART})*"
_BYTE = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_PORT = r"(?!0+$)([0-5]?[0-9]{1,4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"


class Form(NamedTuple):
    """What a text must look like; `example` is written as in the config."""

    pattern: str
    means: str
    example: str = ""

    def fits(self, text: str) -> bool:
        return re.fullmatch(self.pattern, text) is not None


NAME = Form("^[A-Za-z0-9_-]{1,32}$", "1 to 32 letters, digits, '_' or '-'")
FLOW = Form(rf"^{_DOTTED}(:{_DOTTED})?$", '"module" or "module:name"')
WORD = Form(r"^[!-+\x2d-~]{1,64}$", RULE)
WARNING = Form(
    f"^({'|'.join(sorted(code for code in TITLES if code.startswith('W')))})$",
    "the code of a warning",
    '"W320"',
)
LOGGER = Form(r"^[!-~]{1,200}$", "the name of a logger", "httpx")
ADDRESS = Form(
    rf"^(unix:.+|(localhost|{_BYTE}(\.{_BYTE}){{3}}|\[[0-9A-Fa-f.:]+(%[^\]]+)?\]):{_PORT})$",
    'an IP address and a port, or "unix:PATH"',
    '"127.0.0.1:7461"',
)
ELSEWHERE = Form(rf"{REFERENCE_PATTERN}.*$", "elsewhere", '"file:/etc/pgflowd/http_token"')
TRACE_URL = Form(
    rf"^https?://.*\{{{TRACE_ID[1:-1]}\}}.*$",
    f"a URL with {TRACE_ID} in it",
    f'"https://traces.example/{TRACE_ID}"',
)
HEADER = Form("^[A-Za-z0-9][A-Za-z0-9-]{0,63}$", "the name of a header", '"X-Forwarded-User"')
HOST = Form(
    "^([A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?|[0-9a-fA-F:]+)$",
    "the name of a host, without https:// and without a port",
    '"flows.example.com"',
)
NETWORK = Form(
    r"^(unix|[0-9A-Fa-f.:]+(%[^/]+)?(/[0-9.]+)?)$",
    'an address, a network or "unix"',
    '"10.0.0.7" or "10.0.0.0/24"',
)
BASE_PATH = Form(
    "^(/[A-Za-z0-9._~-]+)+$", "a path that begins with / and does not end with it", '"/flows"'
)
