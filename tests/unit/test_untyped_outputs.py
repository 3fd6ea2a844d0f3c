"""What JSON does not have is refused with the remedy for exactly that type."""

from __future__ import annotations

import datetime
import decimal
import enum
import pathlib
import uuid
from dataclasses import dataclass
from typing import Any

import attrs
import msgspec
import numpy as np
import pandas as pd
import pydantic
import pytest

from pgflowd.core.json import encode
from pgflowd.errors import OutputError

ANNOTATE = ", or annotate what the handler returns"


@dataclass
class Point:
    x: int


@attrs.define
class Parcel:
    x: int


class Struct(msgspec.Struct):
    x: int


class Model(pydantic.BaseModel):
    x: int


class Color(enum.Enum):
    RED = 1


@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        (uuid.UUID(int=1), f"return str(…){ANNOTATE}"),
        (datetime.datetime(2026, 1, 1), f"return its isoformat(){ANNOTATE}"),
        (datetime.date(2026, 1, 1), f"return its isoformat(){ANNOTATE}"),
        (datetime.time(1), f"return its isoformat(){ANNOTATE}"),
        (datetime.timedelta(1), f"return its total_seconds(){ANNOTATE}"),
        (decimal.Decimal(1), f"return str(…) or float(…){ANNOTATE}"),
        (pathlib.Path("a"), f"return str(…){ANNOTATE}"),
        (b"x", f"decode it, or encode it with base64{ANNOTATE}"),
        ({1}, f"return a list{ANNOTATE}"),
        (Color.RED, f"return its value{ANNOTATE}"),
        (Point(1), f"return dataclasses.asdict(…){ANNOTATE}"),
        (Parcel(1), f"return attrs.asdict(…){ANNOTATE}"),
        (Struct(1), f"return msgspec.to_builtins(…){ANNOTATE}"),
        (Model(x=1), f"return its model_dump(mode='json'){ANNOTATE}"),
        (1j, "return [its real, its imag]"),
        (np.int64(1), "return its tolist()"),
        (np.float32(1), "return its tolist()"),
        (np.bool_(True), "return its tolist()"),
        (np.array([1]), "return its tolist()"),
        (np.complex64(1j), "return [its real, its imag]"),
        (np.datetime64("2026-01-01"), "return str(…)"),
        (np.timedelta64(3, "s"), "return its item().total_seconds()"),
        (pd.DataFrame({"a": [1]}), "return its to_dict('records')"),
        (pd.Series([1]), "return its tolist()"),
        (pd.Index([1]), "return its tolist()"),
        (pd.Categorical(["a"]), "return its tolist()"),
        (pd.Timestamp("2026-01-01"), "return its isoformat()"),
        (pd.Timedelta(1, "s"), "return its total_seconds()"),
        (pd.Period("2026-01"), "return str(…)"),
        (pd.Interval(0, 1), "return str(…)"),
        (pd.NaT, "return None"),
        (pd.NA, "return None"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_remedy_is_for_this_type(value: Any, remedy: str) -> None:
    with pytest.raises(OutputError) as refused:
        encode({"at": [value]})

    assert (refused.value.code, refused.value.next) == ("E403", remedy)
    assert refused.value.text.startswith("output.at[0] is ")
