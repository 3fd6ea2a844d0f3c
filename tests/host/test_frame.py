"""Frames are read from pieces of any size, and other bytes are refused."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.covers import covers

from pgflowd.host.channel import MAX_HEAD, PIECE, BadFrame, Frame, Frames, pack

heads = st.dictionaries(st.text(max_size=10), st.integers() | st.text(max_size=50), max_size=5)


@given(st.lists(st.tuples(heads, st.binary(max_size=200)), max_size=5), st.integers(1, 50))
def test_frames_arrive_whole_in_whatever_pieces(sent, size):
    wire = b"".join(pack(head, body) for head, body in sent)
    frames, came = Frames(1000), []

    for start in range(0, len(wire), size):
        frames.feed(wire[start : start + size])
        while frame := frames.take():
            came.append(frame)

    assert came == [Frame(head, body) for head, body in sent]
    assert frames.is_empty


@given(st.binary(max_size=400))
def test_noise_is_refused_or_waited_for_and_never_anything_else(noise):
    frames = Frames(1000)
    frames.feed(noise)

    try:
        while frames.take():
            pass
    except BadFrame as error:
        assert str(error)


@covers("row 48")
def test_a_length_over_the_limit_is_refused_on_sight():
    frames = Frames(1000)
    frames.feed(struct.pack("!II", 2, 1 << 30))

    with pytest.raises(BadFrame, match="1073741824 bytes, more than the 1000") as refused:
        frames.take()

    assert refused.value.is_too_large


def test_a_head_over_64_kib_is_neither_sent_nor_taken():
    with pytest.raises(ValueError, match="a head of"):
        pack({"x": "y" * MAX_HEAD})
    frames = Frames(1000)
    frames.feed(struct.pack("!II", MAX_HEAD + 1, 0))

    with pytest.raises(BadFrame, match="a head of 65537 bytes"):
        frames.take()


@covers("row 108")
@pytest.mark.parametrize("head", [b"no json", b"[1]", b"\x80\x04pickle.", b"[" * 5000])
def test_a_head_that_is_not_an_object_is_refused_and_nothing_is_unpickled(head):
    frames = Frames(1000)
    frames.feed(struct.pack("!II", len(head), 0) + head)

    with pytest.raises(BadFrame):
        frames.take()


def test_a_large_body_is_not_kept_once_it_is_taken():
    wire = pack({"say": "done"}, b"x" * (PIECE + 1))
    frames = Frames(2 * PIECE)

    frames.feed(wire[:100])
    assert frames.take() is None
    frames.feed(wire[100:])

    assert frames.take() == Frame({"say": "done"}, b"x" * (PIECE + 1))
    assert frames.is_empty
