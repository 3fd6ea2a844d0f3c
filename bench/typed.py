"""
What annotations cost a task: those that are notes, and those that are decoded.

    python bench/typed.py [--rounds 200]

Measures what a runner does in Python between the frame of a task and the body of its result: the
arguments, the call, the output. Each way takes an order of three lines, and takes turns with the
others. "As before" is the same without a look for codecs. Prints the table of "Types" in
docs/background/benchmarks.md, as Markdown.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pydantic
from waits import row

from pgflowd import Flow
from pgflowd.core.definition.spec import StepSpec, arguments_for
from pgflowd.core.json import SQL_NULL, decode, encode
from pgflowd.core.typed.codec import encode_output
from pgflowd.host.channel import Frame
from pgflowd.processes.runner.context import TaskGiven, arguments_of
from pgflowd.testing import fake_context

CTX = fake_context()
CALLS = 500  # of each way, in a turn
ORDER = {"id": 7, "lines": [{"article": name, "price": 1.5} for name in ("tea", "cup", "pot")]}


@dataclass
class Line:
    article: str
    price: float


@dataclass
class Order:
    id: int
    lines: list[Line]


class LineStruct(msgspec.Struct):
    article: str
    price: float


class OrderStruct(msgspec.Struct):
    id: int
    lines: list[LineStruct]


class LineModel(pydantic.BaseModel):
    article: str
    price: float


class OrderModel(pydantic.BaseModel):
    id: int
    lines: list[LineModel]


def step_of(annotation: Any) -> StepSpec:
    def handler(run):  # type: ignore[no-untyped-def]
        return run

    if annotation is not None:
        handler.__annotations__ = {"run": annotation, "return": annotation}
    flow = Flow("bench")
    flow.step(slug="only")(handler)
    return flow.steps["only"]


def as_before(step: StepSpec, frame: Frame) -> bytes:
    given = TaskGiven(decode(frame.body[: frame.head["split"]]), SQL_NULL)
    arguments = arguments_for(step, given, CTX.flow_input, None)
    return encode(step.handler(**arguments), max_bytes=1_000_000).encode()


def as_now(step: StepSpec, frame: Frame) -> bytes:
    arguments = arguments_of(step, frame, CTX)  # type: ignore[arg-type]
    return encode_output(step.codec, step.handler(**arguments or {}), max_bytes=1_000_000).encode()


WAYS: dict[str, tuple[Callable[[StepSpec, Frame], bytes], Any]] = {
    "no annotation, as before": (as_before, None),
    "no annotation": (as_now, None),
    "a note: `dict[str, Any]`": (as_now, dict[str, Any]),
    "dataclasses, by msgspec": (as_now, Order),
    "Structs, by msgspec": (as_now, OrderStruct),
    "models, by pydantic": (as_now, OrderModel),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="What annotations cost a task.")
    parser.add_argument("--rounds", type=int, default=200)
    rounds = parser.parse_args().rounds
    body = json.dumps({"run": ORDER}).encode()
    frame = Frame({"split": None}, body)
    took: dict[str, list[float]] = {name: [] for name in WAYS}
    steps = {name: step_of(annotation) for name, (_, annotation) in WAYS.items()}
    for _ in range(rounds):
        for name, (call, _annotation) in WAYS.items():
            step, began = steps[name], time.perf_counter()
            for _ in range(CALLS):
                call(step, frame)
            took[name].append((time.perf_counter() - began) / CALLS * 1e6)
    medians = {name: statistics.median(each) for name, each in took.items()}
    first = next(iter(medians.values()))
    print(
        row("arguments, call and output of a task", "µs", "ratio"),
        "| --- | ---: | ---: |",
        sep="\n",
    )
    for name, us in medians.items():
        print(row(name, f"{us:.1f}", f"{us / first:.2f}"))


if __name__ == "__main__":
    main()
