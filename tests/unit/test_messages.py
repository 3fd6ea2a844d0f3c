"""Messages between supervisor and children: whole, or garbage, never an exception."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as some
from support.covers import covers

from pgflowd.core.messages import (
    KINDS,
    Asleep,
    Awake,
    ConnectionGranted,
    ConnectionRefused,
    ConnectionReturned,
    ConnectionsLeft,
    ConnectionWanted,
    Drain,
    Failed,
    FallingAsleep,
    Follow,
    Found,
    HaveRoom,
    Heartbeat,
    Leaving,
    LookAtDaemons,
    LookAtDue,
    LookAtQueues,
    LookAtVersions,
    MakeRoom,
    NextDue,
    QuickStop,
    Ready,
    Released,
    ServeVersions,
    SleepIfIdle,
    StatusPart,
    StatusWanted,
    StayingAwake,
    UnreadableMessage,
    Waiting,
    Wake,
    WorkerEnded,
    WorkerStanding,
    WorkerStarted,
    WorkerStopped,
    decode,
    encode,
)

ALL = [
    Ready("7f3a"),
    Ready(),
    Waiting("database"),
    Waiting(None),
    Heartbeat({"running": 3, "tasks": {"a": {"completed": 1}}}),
    Wake("alpha"),
    Wake(),
    Follow("7f3a"),
    MakeRoom(),
    HaveRoom(),
    Failed("E306", "no step \u2028 'x'"),
    Leaving("deprecated"),
    FallingAsleep(30.0),
    FallingAsleep(5.0, 1234.5),
    SleepIfIdle(),
    Asleep("alpha", "7f3a", 30.0),
    Awake("alpha"),
    LookAtQueues(),
    LookAtDue(),
    NextDue("alpha", 1234.5),
    ServeVersions("alpha", {"alpha": 3, "alpha_2": None}),
    LookAtVersions(),
    LookAtDaemons(),
    StatusWanted(),
    StatusPart('{"name": ', False),
    Released("7f3a", 3),
    Found('{"flows": ['),
    Drain(1.5),
    Drain(None),
    QuickStop(),
    WorkerEnded("7f3a"),
    WorkerStarted("7f3a"),
    WorkerStopped("7f3a"),
    WorkerStanding("7f3a", "ok", 3, 0.5, None, "run1"),
    ConnectionsLeft(40),
    ConnectionRefused(),
    ConnectionWanted(),
    ConnectionGranted(),
    ConnectionReturned(),
    StayingAwake(),
]


@pytest.mark.parametrize("message", ALL, ids=lambda message: type(message).__name__)
def test_a_message_survives_the_way(message):
    assert decode(encode(message)) == message


def test_every_kind_is_tried_here():
    assert {type(message).__name__ for message in ALL} == set(KINDS)


@covers("rule 47")
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"type": "Explode"}',
        b'{"type": ["Ready"]}',
        b'{"type": "Ready", "extra": 1}',
        b'{"type": "Ready", "worker_id": 1}',
        b'{"type": "Failed"}',
        b'{"type": "Drain", "within_s": "soon"}',
        b'{"type": "Drain", "within_s": true}',
        b'{"type": "Heartbeat", "numbers": []}',
        b"\x80\x04\x95",  # a pickle
        b"[" * 10_000,
    ],
)
def test_a_frame_that_is_not_a_message_is_garbage(data):
    assert isinstance(decode(data), UnreadableMessage)


@covers("rule 47")
@given(some.binary(max_size=200))
def test_no_bytes_at_all_raise(data):
    decode(data)


json_values = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats() | some.text(),
    lambda inner: some.lists(inner) | some.dictionaries(some.text(), inner),
    max_leaves=8,
)


@covers("rule 47")
@given(some.sampled_from(sorted(KINDS)), some.dictionaries(some.text(), json_values))
def test_no_json_at_all_raises(kind, fields):
    decode(json.dumps({"type": kind, **fields}).encode())
