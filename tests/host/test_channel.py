"""The pipe between supervisor and child: whole messages, never a wait."""

from __future__ import annotations

import os
import socket
import time

import pytest

from pgflowd.core.messages import (
    MAX_MESSAGE_BYTES,
    Drain,
    Heartbeat,
    Ready,
    UnreadableMessage,
    Wake,
    WorkerEnded,
)
from pgflowd.host.channel import Channel


@pytest.fixture
def pair():
    one, other = Channel.pair()
    yield one, other
    one.close()
    other.close()


def test_messages_arrive_whole_and_in_order(pair):
    one, other = pair

    one.send(Ready("a"))
    one.send(Heartbeat({"n": 1}))

    assert other.receive() == [Ready("a"), Heartbeat({"n": 1})]
    assert other.receive() == []
    assert not other.at_end


def test_the_end_of_the_other_is_seen_after_its_last_words(pair):
    one, other = pair
    one.send(Ready("a"))
    one.close()

    assert other.receive_all() == [Ready("a")]
    assert other.at_end


def test_the_last_messages_of_an_ended_child_arrive_although_it_had_unread_ones(pair):
    one, other = pair
    other.send(Wake("never read"))
    one.send(Ready("a"))
    one.close()

    assert other.receive_all() == [Ready("a")]
    assert other.at_end


def test_on_a_full_pipe_wakes_are_dropped_and_orders_are_kept(pair):
    one, other = pair
    while one.send(Wake("x" * 1000)):
        pass

    one.send(Drain(1.0))
    one.send(WorkerEnded("w"))

    assert one.is_waiting
    came = other.receive_all()
    one.flush()
    came += other.receive_all()
    assert came[-2:] == [Drain(1.0), WorkerEnded("w")]
    assert not one.is_waiting


def test_nothing_droppable_overtakes_what_is_kept(pair):
    one, other = pair
    while one.send(Wake("x" * 1000)):
        pass
    one.send(Drain(1.0))
    other.receive_all()

    assert one.send(Wake("y")) is False


def test_flush_all_waits_for_room_but_not_for_ever(pair):
    one, _ = pair
    while one.send(Wake("x" * 1000)):
        pass
    one.send(Drain(1.0))
    began = time.monotonic()

    one.flush_all(0.1)

    assert time.monotonic() - began > 0.05
    assert one.is_waiting


def test_garbage_is_a_value(pair):
    one, other = pair
    raw = socket.socket(fileno=os.dup(one.fileno()))
    raw.send(b"\x80\x04pickle")
    raw.send(b"x" * (MAX_MESSAGE_BYTES + 1))
    one.send(Ready("a"))

    first, second, third = other.receive()
    raw.close()

    assert isinstance(first, UnreadableMessage)
    assert isinstance(second, UnreadableMessage)
    assert third == Ready("a")


def test_what_is_too_large_is_a_mistake_of_ours_or_dropped(pair):
    one, _ = pair

    assert one.send(Heartbeat({"n": "x" * MAX_MESSAGE_BYTES})) is False
    with pytest.raises(ValueError, match="bytes"):
        one.send(WorkerEnded("x" * MAX_MESSAGE_BYTES))


def test_sending_to_the_dead_is_not_an_error(pair):
    one, other = pair
    other.close()

    assert one.send(Wake("a")) is False
    one.send(Drain(1.0))
    assert not one.is_waiting
