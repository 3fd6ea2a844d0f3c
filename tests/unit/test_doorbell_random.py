"""No wake is lost: the worker's engine and the rules of the database, in random orders."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from support.covers import covers
from support.doorbell_world import SENDERS, DoorbellWorld, ModelStore, play

pauses = st.sampled_from([0.0, 0.0, 0.0005, 0.003, 0.012, 0.05, 0.3])
steps = st.tuples(st.integers(0, 199), st.integers(0, SENDERS - 1), pauses)


@covers("G9")
@settings(max_examples=500, deadline=None)
@given(st.lists(steps, min_size=20, max_size=150))
def test_every_message_is_claimed_without_any_fallback(life: list[tuple[int, int, float]]):
    store = ModelStore()
    world = DoorbellWorld(store)

    play(world, life)

    assert store.visible() == 0
    assert store.is_up, "it rests armed"
