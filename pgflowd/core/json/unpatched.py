"""
The JSON encoder and decoder for processes in which users' code has run.

A user's module may replace `json.dumps` by another library's, or functions of the standard encoder
by its own. The process that imported it still exchanges JSON with the worker or the supervisor. So
these classes keep the functions of the time when this module was imported.
"""

from __future__ import annotations

import json
from typing import Any


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
