"""Delta debugging, without worlds."""

from hypothesis import given
from hypothesis import strategies as st

from tests.simulation.shrink import reduce


def never() -> bool:
    return False


@given(st.integers(1, 60), st.sets(st.integers(0, 59), max_size=5))
def test_what_is_left_is_what_is_needed(size: int, wanted: set[int]):
    needed = {n for n in wanted if n < size}
    left = reduce(range(size), lambda some: needed <= set(some), never)
    assert set(left) == needed


@given(st.integers(2, 40), st.integers(1, 40))
def test_no_single_item_can_go(size: int, floor: int):
    def fails(some):
        return len(some) >= min(floor, size)

    left = reduce(range(size), fails, never)
    assert fails(left)
    assert not fails(left[1:])


def test_time_is_a_bound():
    asked: list[int] = []

    def fails(some) -> bool:
        asked.append(len(some))
        return 7 in some

    left = reduce(range(100), fails, lambda: len(asked) >= 3)
    assert len(asked) == 3
    assert 7 in left
    assert reduce(range(5), fails, lambda: True) == [0, 1, 2, 3, 4]
