"""
The types of a flow: what is wrong with its annotations, its codecs and its JSON Schemas.

An annotation that names a shape is decoded, unless the flow says `decode=False`; any other one is a
note. A step whose output does not fit what another step takes is an error (E217) where that is
decoded, since each run would fail there; of a note it is a warning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from pgflowd.core.definition.spec import ITEM, RUN, FlowSpec, StepSpec, UndoSpec
from pgflowd.core.json import as_stored
from pgflowd.core.typed.annotations import contents, type_name
from pgflowd.core.typed.codec import OUTPUT, Codec, codec_of, faults_of, step_codec
from pgflowd.core.typed.comparison import misfit
from pgflowd.errors import OutputError, Problem


def with_codecs(flow: FlowSpec) -> FlowSpec:
    """A flow without errors, with the codecs of its handlers."""
    if not flow.decodes:
        return flow
    return replace(
        flow,
        steps=tuple(replace(step, codec=step_codec(step.annotations)) for step in flow.steps),
        undos=tuple(replace(undo, codec=step_codec(undo.annotations)) for undo in flow.undos),
        retired=tuple(
            (since, replace(step, codec=step_codec(step.annotations)))
            for since, step in flow.retired
        ),
    )


def type_problems(flow: FlowSpec) -> Iterator[Problem]:
    """What is wrong with the annotations of a flow, each by itself, and from step to step."""
    handlers: list[tuple[str, StepSpec | UndoSpec]] = [
        *((f"step {step.slug}", step) for step in flow.steps),
        *((f"undo of {undo.step}", undo) for undo in flow.undos),
        *((f"retired step {step.slug}", step) for _, step in flow.retired),
    ]
    for handler, spec in handlers if flow.decodes else ():
        for name, fault in faults_of(spec.annotations):
            what = "its output" if name == OUTPUT else f"parameter '{name}'"
            text = f"{handler}: {what} cannot be decoded: {fault.text}"
            yield Problem("E216", text, spec.place, fault.remedy)
    steps = {step.slug: step for step in flow.steps}
    for step in flow.steps:
        for name, annotation in step.annotations.items():
            if name in steps and name in step.deps:
                yield from _misfit(flow, step, name, annotation, _output(steps[name]), name)
        if step.is_map and len(step.over) == 1 and step.over[0] in steps:
            item = step.annotations.get(ITEM, Any)  # without one, any list will do
            items: Any = list[item]  # type: ignore[valid-type]
            output = _output(steps[step.over[0]])
            yield from _misfit(flow, step, ITEM, items, output, step.over[0])
    for undo in flow.undos:
        if undo.step in steps and undo.step in undo.annotations:
            given = steps[undo.step].annotations.get(OUTPUT)
            taken = undo.annotations[undo.step]
            yield from _misfit(flow, undo, undo.step, taken, given, undo.step)


def _output(step: StepSpec) -> Any:
    """The annotation of what dependents get; of a map the list of what its tasks return."""
    annotation = step.annotations.get(OUTPUT)
    is_list = step.is_map and OUTPUT in step.annotations
    return list[annotation] if is_list else annotation  # type: ignore[valid-type]


def _misfit(
    flow: FlowSpec, spec: StepSpec | UndoSpec, name: str, taken: Any, given: Any, producer: str
) -> Iterator[Problem]:
    """Where the output of a step does not fit the parameter of another step or of an undo."""
    why = None if given is None else misfit(taken, given)
    if why is None:
        return
    is_decoded = flow.decodes and contents(taken).has_shape
    wants = f"parameter '{name}' is {type_name(spec.annotations.get(name))}"
    if name == ITEM and ITEM not in spec.annotations:
        wants = "it maps over a list"
    handler = f"step {spec.slug}" if isinstance(spec, StepSpec) else f"undo of {spec.step}"
    text = f"{handler}: {wants}, but step {producer} returns {type_name(given)}: {why}"
    yield Problem("E217" if is_decoded else "W217", text, spec.place)


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
