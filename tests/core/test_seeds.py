from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fewlink.core.seeds import derive, generator, scramble

numbers = st.integers(0, 2**31 - 1)


def test_derived_seeds_never_change_between_versions() -> None:
    assert derive(0, "episode", 7) == 2703028474035856166
    assert scramble(np.arange(3)).tolist() == [8511881113708039637, 14878849648263992916, 5020727670833692579]


def test_each_purpose_has_a_different_seed() -> None:
    seeds = {derive(0, "a"), derive(1, "a"), derive(0, "b"), derive(0, "a", 0), derive(0, "a", 1), derive(0, "a0")}
    assert len(seeds) == 6


@given(st.integers(), st.text(st.characters(exclude_categories=["Cs"])))
def test_a_generator_depends_only_on_its_seed_and_words(seed: int, word: str) -> None:
    np.random.seed(0)
    first = generator(seed, word).integers(2**60, size=3)
    np.random.seed(1)
    assert (generator(seed, word).integers(2**60, size=3) == first).all()


@given(st.lists(numbers, min_size=1, unique=True), numbers)
def test_scrambling_hashes_each_key_by_itself_without_collisions(keys: list[int], seed: int) -> None:
    together = scramble(np.array(keys), seed).tolist()
    assert together == [int(scramble(np.array([k]), seed)[0]) for k in keys]
    assert len(set(together)) == len(keys)


def test_every_scrambled_bit_is_set_half_of_the_time() -> None:
    bits = np.unpackbits(scramble(np.arange(4000)).view(np.uint8)).reshape(4000, 64).mean(0)
    assert (abs(bits - 0.5) < 0.05).all()
