"""
Plain JSON: the encoder and the decoder that we use where users' code has run before us.

A module may replace `json.dumps` by another library's, or hang functions into the standard
encoder, for its own purposes. Its runner, and the discovery that imported it, still have to
speak to us; so these classes keep the functions that were there when we were imported.
"""

from __future__ import annotations

import json
from typing import Any


class Encoder(json.JSONEncoder):
    """`Encoder(…)(value)` is what `json.dumps(value, …)` was."""

    default = json.JSONEncoder.default
    encode = json.JSONEncoder.encode
    iterencode = json.JSONEncoder.iterencode
    __call__ = json.JSONEncoder.encode


class Decoder(json.JSONDecoder):
    """`Decoder(…)(text)` is what `json.loads(text, …)` was; bytes are UTF-8."""

    decode = json.JSONDecoder.decode
    raw_decode = json.JSONDecoder.raw_decode

    def __call__(self, text: str | bytes) -> Any:
        return self.decode(text if isinstance(text, str) else text.decode())


COMPACT = (",", ":")

dumps = Encoder(ensure_ascii=False, separators=COMPACT)
loads = Decoder()
