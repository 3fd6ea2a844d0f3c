r"""
How values of settings are written: references, addresses, durations, sizes, and forms of texts.

A reference is `env:NAME` (an environment variable), `file:PATH` (the content of a file) or
`cred:NAME` (a systemd credential); any other text is the value itself. A `Ref` shows the place of
the value and never the value, even in a traceback. `host.config` reads it when it is needed.

An address is `HOST:PORT`, where the host is an IP address or localhost, or `unix:PATH`.

Durations and sizes are written like "250ms", "1h30m" and "16MiB". A number without a unit is
refused, because 30 could mean seconds or milliseconds. Durations become float seconds, sizes become
whole bytes.

Needs and caps are what a step needs of a worker and what a worker has, as words such as "gpu". A
worker may begin a task if its caps hold all that the task needs. In the database several needs are
one text, sorted, with commas between.

Reading and the JSON Schema apply the same patterns. So these mean the same in Python and in
JavaScript: no class such as \w is in them, and each begins with ^ and ends with $. Pure.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from pgflowd.core.redact import redact, secrets_in
from pgflowd.errors import TITLES

SCHEMES = ("env", "file", "cred")
URL_NEXT = "it should look like postgresql://user@host:5432/dbname"
SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
BYTES = {"B": 1, "kB": 1000, "MB": 1000**2, "GB": 1000**3}
BYTES |= {"KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}

_NUMBER = r"[0-9]{1,20}(\.[0-9]{1,12})?"  # a longer one is a mistake
_BLANKS = r"[ \t\r\n]*"  # not \s, which means more in Python than in JavaScript
_DURATIONS = "".join(rf"({_BLANKS}{_NUMBER}{_BLANKS}{unit})?" for unit in reversed(SECONDS))
DURATION_PATTERN = rf"^(?=[^0-9]*[0-9]){_DURATIONS}{_BLANKS}$"  # as in `keys`
SIZE_PATTERN = rf"^{_BLANKS}{_NUMBER}{_BLANKS}({'|'.join(BYTES)}){_BLANKS}$"

_PART = re.compile(rf"{_BLANKS}([0-9]+(?:\.[0-9]+)?){_BLANKS}([A-Za-zµ]*){_BLANKS}")

TRACE_ID = "{trace_id}"  # in the URL of a trace
REFERENCE_PATTERN = f"^({'|'.join(SCHEMES)}):"
_IDENTIFIER = r"[^\x00-@\[-^`{-\x7f][^\x00-/:-@\[-^`{-\x7f]*"  # an identifier, in any script
_DOTTED = rf"{_IDENTIFIER}(\.{_IDENTIFIER})*"
_BYTE = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_PORT = r"(?!0+$)([0-5]?[0-9]{1,4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"


@dataclass(frozen=True, repr=False)
class Ref:
    """A value, or the place that holds it."""

    written: str

    @property
    def scheme(self) -> str | None:
        """Return "env", "file" or "cred", or None for the value itself."""
        head, colon, _ = self.written.partition(":")
        return head if colon and head in SCHEMES else None

    @property
    def target(self) -> str:
        """Return the name or path after the scheme, or the value itself."""
        return self.written.partition(":")[2] if self.scheme else self.written

    @property
    def shown(self) -> str:
        """Return the text that may be shown: the place, or the value without its password."""
        return self.written if self.scheme else redact(self.written, secrets_in(self.written))

    def __bool__(self) -> bool:
        return bool(self.written)

    def __repr__(self) -> str:
        return f"Ref({self.shown!r})"

    __str__ = __repr__


@dataclass(frozen=True)
class Address:
    """Where a server listens: a host and a port, or the path of a Unix socket."""

    host: str = ""
    port: int = 0
    path: str = ""

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        return not self.host or ipaddress.ip_address(self.host).is_loopback


def parse_address(text: str) -> Address:
    """Read an address; ValueError for anything else, a name of a host included."""
    if text.startswith("unix:") and text != "unix:":
        return Address(path=text.removeprefix("unix:"))
    host, _, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = str(ipaddress.IPv6Address(host[1:-1]))
    elif host == "localhost":
        host = "127.0.0.1"
    else:
        host = str(ipaddress.IPv4Address(host))
    if not re.fullmatch("[0-9]{1,5}", port) or not 0 < int(port) < 2**16:
        raise ValueError(f"{port} is not a port")
    return Address(host, int(port))


class Unreadable(ValueError):
    """The text is not a duration or size; `code` says whether its unit or its sign is wrong."""

    def __init__(self, text: str, code: str = "E103") -> None:
        super().__init__(text)
        self.code = code


def parse_duration(text: str) -> float:
    """Return the seconds of a text such as "1h30m"."""
    parts = _parts(text, SECONDS)
    units = [SECONDS[unit] for _, unit in parts]
    if any(larger <= smaller for larger, smaller in pairwise(units)):
        raise Unreadable("units must go from the largest to the smallest, each once")
    # added up in milliseconds, so that 0.1 + 0.2 has no rounding error
    thousandths = sum(float(number) * SECONDS[unit] * 1000 for number, unit in parts)
    return round(thousandths, 6) / 1000


def parse_size(text: str) -> int:
    """Return the bytes of a text such as "16MiB"."""
    parts = _parts(text, BYTES)
    if len(parts) != 1:
        raise Unreadable("a size has one number and one unit")
    number, unit = parts[0]
    return int(float(number) * BYTES[unit]) if "." in number else int(number) * BYTES[unit]


def format_duration(seconds: float) -> str:
    """Write seconds as `parse_duration` reads them, to the millisecond."""
    left = round(seconds * 1000)
    if left <= 0:
        return "0s"
    written = ""
    for unit, factor in reversed(SECONDS.items()):
        count, left = divmod(left, round(factor * 1000))
        written += f"{count}{unit}" if count else ""
    return written


def format_size(size: int) -> str:
    """Write bytes as `parse_size` reads them."""
    for unit in ("GiB", "MiB", "KiB"):
        if size and size % BYTES[unit] == 0:
            return f"{size // BYTES[unit]}{unit}"
    return f"{size}B"


def _parts(text: str, units: dict[str, float] | dict[str, int]) -> list[tuple[str, str]]:
    if re.match(r"\s*-\s*\d", text):
        raise Unreadable("it is negative", "E105")
    parts = _PART.findall(text)
    if not text:
        raise Unreadable("it is empty")
    are_numbers = all(re.fullmatch(_NUMBER, number) for number, _ in parts)
    if _PART.sub("", text) or not are_numbers or not all(unit for _, unit in parts[:-1]):
        raise Unreadable("it is not a number with a unit")
    for _, unit in parts:
        if unit not in units:
            raise Unreadable(f"the unit '{unit}' is unknown" if unit else "it has no unit", "E104")
    return parts


class Form(NamedTuple):
    """What a text must look like; `example` is written as in the config."""

    pattern: str
    means: str
    example: str = ""

    def fits(self, text: str) -> bool:
        return re.fullmatch(self.pattern, text) is not None


NAME = Form("^[A-Za-z0-9_-]{1,32}$", "1 to 32 letters, digits, '_' or '-'")
FLOW = Form(rf"^{_DOTTED}(:{_DOTTED})?$", '"module" or "module:name"')
WORD = Form(r"^[!-+\x2d-~]{1,64}$", "1 to 64 printable ASCII characters, without blanks and commas")
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
MAX_NEEDS = 32


def needs_fault(needs: object) -> str | None:
    """What is wrong with the needs of a step, or of a task that is handed on."""
    if isinstance(needs, str) or not isinstance(needs, list | tuple | set | frozenset):
        return 'must be a list, such as ["gpu"]'
    if not 1 <= len(needs) <= MAX_NEEDS:
        return f"must have 1 to {MAX_NEEDS} words"
    if not all(isinstance(need, str) and WORD.fits(need) for need in needs):
        return f"must have words of {WORD.means}"
    return None


def sorted_needs(needs: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(needs)))


def in_words(name: str) -> str:
    """The database's text of needs, for people."""
    return f"needs {name.replace(',', ', ')}"
