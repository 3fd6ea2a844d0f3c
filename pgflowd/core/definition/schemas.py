"""The JSON Schemas of what a flow takes and returns, as far as its handlers are decoded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pgflowd.core.definition.spec import ITEM, RUN, FlowSpec, StepSpec
from pgflowd.core.json import as_stored
from pgflowd.core.typed.codec import Codec, codec_of
from pgflowd.errors import OutputError

Schema = dict[str, Any]
_DEFS = "#/$defs/"


def input_schema(flow: FlowSpec) -> Schema | None:
    """What a run takes, by all handlers that take it; None if none of them says so by a shape."""
    found: list[Codec] = []
    for step in flow.steps:
        if step.codec is None or step.undoes is not None:  # which takes the input of another run
            continue
        of_run = step.codec.parameters.get(RUN)
        of_item = step.codec.parameters.get(ITEM) if step.is_map and not step.deps else None
        if of_item is not None:
            of_item = codec_of(list[of_item.annotation])  # type: ignore[name-defined]
        found += [each for each in (of_run, of_item) if each and each not in found]
    return _all_of(found) if found else None


def step_schemas(step: StepSpec) -> dict[str, Any]:
    """What a step takes, by parameters, and what it returns; none for a note."""
    if step.codec is None:
        return {"parameters": {}, "output": None}
    parameters = {name: _all_of([codec]) for name, codec in step.codec.parameters.items()}
    output = step.codec.output
    return {"parameters": parameters, "output": output and _all_of([output], of_output=True)}


def _all_of(codecs: Iterable[Codec], *, of_output: bool = False) -> Schema | None:
    """One schema for what fits all of these; None if one of them has none."""
    schemas: list[Schema] = []
    defs: Schema = {}
    for number, codec in enumerate(codecs):
        prefix = f"{number}_" if number else ""
        schema = codec.schema(f"{_DEFS}{prefix}", of_output=of_output)
        if schema is None:
            return None
        defs |= {f"{prefix}{name}": each for name, each in schema.pop("$defs", {}).items()}
        schemas.append(schema)
    whole = schemas[0] if len(schemas) == 1 else {"allOf": schemas}
    try:
        return dict(as_stored(whole | ({"$defs": defs} if defs else {})))
    except OutputError:  # a default that JSON does not have
        return None
