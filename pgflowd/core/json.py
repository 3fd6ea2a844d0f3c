"""
Encodes the values that handlers return and clients send, and decodes those of the database.

`encode` accepts exactly the values that the database gives back unchanged: dicts with strings as
keys, lists (tuples become lists), strings, numbers, true, false, null. It refuses anything else and
names its place, as in `E403 output.items[3].price is NaN`. A good value costs little more than two
calls into C; only a suspicious one is walked in Python, to find what is wrong with it and where.

A user's module may replace `json.dumps` by another library's, or functions of the standard encoder
by its own. The process that imported it still exchanges JSON with the worker or the supervisor. So
`Encoder` and `Decoder` keep the functions of the time when this module was imported.
"""

from __future__ import annotations

import builtins
import json
import math
import re
from collections.abc import AsyncIterable, Awaitable, Iterable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any, Final
from uuid import UUID

from pgflowd.core.text import with_article
from pgflowd.errors import OutputError

MAX_DEPTH = 1000  # about where the encoder's recursion ends

_SURROGATE = re.compile("[\ud800-\udfff]")
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REMEDIES = {
    "NaTType": "return None",
    "NAType": "return None",
    "DataFrame": "return its to_dict('records')",
    "Period": "return str(…)",
    "Interval": "return str(…)",
    "datetime64": "return str(…)",
    "timedelta64": "return its item().total_seconds()",
    "complexfloating": "return [its real, its imag]",
    "complex": "return [its real, its imag]",
    "bytes": "decode it, or encode it with base64",
    "bytearray": "decode it, or encode it with base64",
    "Decimal": "return str(…) or float(…)",
    "datetime": "return its isoformat()",
    "date": "return its isoformat()",
    "time": "return its isoformat()",
    "timedelta": "return its total_seconds()",
    "UUID": "return str(…)",
    "PurePath": "return str(…)",
}
# which an annotation of the handler encodes
_TYPED = {bytes, bytearray, Decimal, datetime, date, time, timedelta, UUID, set, frozenset}
_FIELDS = ("__dataclass_fields__", "__struct_fields__", "__attrs_attrs__", "model_fields")
_MARKS = {  # what classes have that can be written in another way: pydantic's, numpy's, …
    "model_dump": "return its model_dump(mode='json')",
    "tolist": "return its tolist()",
    "__dataclass_fields__": "return dataclasses.asdict(…)",
    "__struct_fields__": "return msgspec.to_builtins(…)",
    "__attrs_attrs__": "return attrs.asdict(…)",
}


class Encoder(json.JSONEncoder):
    """`Encoder(…)(value)` does what the original `json.dumps(value, …)` does."""

    default = json.JSONEncoder.default
    encode = json.JSONEncoder.encode
    iterencode = json.JSONEncoder.iterencode
    __call__ = json.JSONEncoder.encode


class Decoder(json.JSONDecoder):
    """`Decoder(…)(text)` does what the original `json.loads(text, …)` does; bytes are UTF-8."""

    decode = json.JSONDecoder.decode
    raw_decode = json.JSONDecoder.raw_decode

    def __call__(self, text: str | bytes) -> Any:
        return self.decode(text if isinstance(text, str) else text.decode())


COMPACT = (",", ":")

dumps = Encoder(ensure_ascii=False, separators=COMPACT)
loads = Decoder()


class SqlNull(Enum):
    """
    The type of `SQL_NULL`, which stands for a column without a value.

    `None` is JSON's null, which a handler may return and a client may send.
    """

    SQL_NULL = "sql null"

    def __repr__(self) -> str:
        return "SQL_NULL"

    def __bool__(self) -> bool:
        return False


SQL_NULL: Final = SqlNull.SQL_NULL


def encode(value: Any, *, what: str = "output", max_bytes: int | None = None) -> str:
    """Return the value as JSON text, or raise E403 (not JSON) or E404 (too large)."""
    text, suspicion = _dump(value)
    if suspicion:
        found = next(_faults(value, what), None)
        if found is not None or text is None:
            fault, remedy = found or (f"{what} {suspicion}", None)
            raise OutputError(fault, code="E403", next=remedy)
    assert text is not None
    size = len(text) if max_bytes is None or text.isascii() else len(text.encode("utf-8"))
    if max_bytes is not None and size > max_bytes:
        raise OutputError(
            f"{what} has {_readable_size(size)}, more than the {_readable_size(max_bytes)} allowed",
            code="E404",
            next="store it elsewhere and return a reference to it",
        )
    return text


def decode(text: str | bytes | None) -> Any:
    """Return the value of a JSON text; no text (SQL null) is None, as JSON's null is."""
    if text is None:
        return None
    try:
        return loads(text)
    except ValueError:  # perhaps an integer of thousands of digits, which int() refuses
        return _loads_long(text)


def as_stored(value: Any, *, what: str = "output") -> Any:
    """The value as the database gives it back: keys in the order of jsonb, 1e22 an integer."""
    return _loads_stored(encode(value, what=what))


def jsonb_text(value: Any) -> str:
    """Print a value as PostgreSQL prints jsonb: with its order of keys, blanks after , and :."""
    if isinstance(value, dict):
        keys = sorted(value, key=_jsonb_order)
        return "{" + ", ".join(f"{jsonb_text(key)}: {jsonb_text(value[key])}" for key in keys) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(jsonb_text(element) for element in value) + "]"
    return dumps(value)


def _jsonb_order(key: str) -> tuple[int, bytes]:
    """Short keys first, in jsonb."""
    return len(key.encode()), key.encode()


def deep_copy(value: Any) -> Any:
    """A copy of a JSON value that shares nothing with it."""
    return loads(dumps(value)) if isinstance(value, dict | list) else value


_dumps_strictly = Encoder(ensure_ascii=False, allow_nan=False, separators=COMPACT)
_dumps_ascii = Encoder()
_loads_long = Decoder(parse_int=lambda digits: int(Decimal(digits)))
_loads_stored = Decoder(
    object_pairs_hook=lambda pairs: dict(sorted(pairs, key=lambda pair: _jsonb_order(pair[0]))),
    # there is no -0.0
    parse_float=lambda text: int(Decimal(text)) if "e+" in text else float(text) + 0.0,
)


def _dump(value: Any) -> tuple[str | None, str | None]:
    """The text, and why the value is suspicious. The text is None if there cannot be one."""
    try:
        text = _dumps_strictly(value)
        text.encode("utf-8")
    except RecursionError:
        return None, "is nested too deeply"
    except (TypeError, ValueError, OverflowError) as error:  # surrogates and cycles, too
        return None, f"is not JSON: {error}"
    if "\\u0000" in text:
        return text, "contains a NUL character"
    if _has_other_keys_or_is_deep(value):
        return text, "is changed by JSON"
    return text, None


def _has_other_keys_or_is_deep(root: Any) -> bool:
    """Whether some keys are not strings, or it is nested deeper than every runtime can read."""
    level = [root]
    for _ in range(MAX_DEPTH + 1):
        inside: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                if not all(isinstance(key, str) for key in value):
                    return True
                inside.extend(value.values())
            elif isinstance(value, list | tuple):
                inside.extend(value)
        if not inside:
            return False
        level = inside
    return True


def _faults(root: Any, what: str) -> Iterator[tuple[str, str | None]]:
    """Each thing that JSON or PostgreSQL refuses, in the order of the document."""
    pending: list[tuple[Any, str, tuple[int, ...]]] = [(root, what, ())]
    while pending:
        value, place, above = pending.pop()
        if not isinstance(value, dict | list | tuple):
            if fault := _scalar_fault(value):
                yield f"{place} {fault}", _remedy(value, is_output=what == "output")
            continue
        if id(value) in above:
            yield f"{place} contains itself", None
            continue
        if len(above) >= MAX_DEPTH:
            yield f"{what} is nested more than {MAX_DEPTH} levels deep", None
            return
        inside, children = (*above, id(value)), []
        if isinstance(value, dict):
            for key, inner in value.items():
                if not isinstance(key, str):
                    kind, shown = with_article(type(key).__name__), repr(key)[:60]
                    text = f"{place} has the key {shown}, which is {kind}"
                    yield text, "keys must be strings"
                    continue
                if fault := _text_fault(key):
                    yield f"{place} has the key {ascii(key)[:60]}, which {fault}", None
                is_plain = _PLAIN_KEY.fullmatch(key)
                dotted = f".{key}" if is_plain else f"[{_dumps_ascii(key[:60])}]"
                children.append((inner, f"{place}{dotted}", inside))
        else:
            children = [(each, f"{place}[{at}]", inside) for at, each in enumerate(value)]
        pending += reversed(children)


def _scalar_fault(value: Any) -> str | None:
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, str):
        return _text_fault(value)
    if isinstance(value, int):
        return None if value.bit_length() < 14_000 else "is an integer of over 4,000 digits"
    if isinstance(value, float):
        return None if math.isfinite(value) else f"is {_dumps_ascii(value)}"
    kind = type(value)
    name = kind.__name__
    if name in vars(builtins) and vars(builtins)[name] is not kind:  # such as numpy's bool
        name = f"{kind.__module__}.{name}"
    return f"is {with_article(name)}, which JSON has no type for"


def _remedy(value: Any, *, is_output: bool) -> str | None:
    """What the handler can return instead, if the type shows it."""
    remedy, cls = _other_form(value), type(value)
    is_typed = cls in _TYPED or isinstance(value, (PurePath, Enum))
    if remedy and is_output and (is_typed or any(hasattr(cls, mark) for mark in _FIELDS)):
        return f"{remedy}, or annotate what the handler returns"
    return remedy


def _other_form(value: Any) -> str | None:
    if isinstance(value, str | float | int):
        return None
    for kind in type(value).__mro__:  # pandas' Timestamp is a datetime
        if kind.__name__ in _REMEDIES:
            return _REMEDIES[kind.__name__]
    if isinstance(value, Enum):
        return "return its value"
    for mark, remedy in _MARKS.items():
        if hasattr(type(value), mark):
            return remedy
    if isinstance(value, Awaitable):
        return "await it"
    if isinstance(value, Mapping):
        return "return dict(…)"
    return "return a list" if isinstance(value, Iterable | AsyncIterable) else None


def _text_fault(text: str) -> str | None:
    if "\0" in text:
        return "contains a NUL character, which PostgreSQL cannot store"
    if match := _SURROGATE.search(text):
        return f"contains the lone surrogate {ascii(match[0])[1:-1]}, which is not text"
    return None


def _readable_size(size: int) -> str:
    if size < 1024:
        return f"{size} bytes"
    if size < 1024 * 1024:
        return f"{size / 1024:.1f} KiB"
    return f"{size / 1024 / 1024:.1f} MiB"
