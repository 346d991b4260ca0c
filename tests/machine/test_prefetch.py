"""Prefetch: the same items in the same order, errors in their place, no thread left behind."""

import gc
import threading
import time
import weakref

import pytest

from refgf.machine.prefetch import Prefetch


def slowly(n, seconds, loaded=None):
    for i in range(n):
        time.sleep(seconds)
        if loaded is not None:
            loaded.append(i)
        yield i


def running():
    return [thread for thread in threading.enumerate() if thread.name == "prefetch"]


@pytest.fixture(autouse=True)
def no_thread_stays():
    yield
    assert running() == []


@pytest.mark.parametrize("depth", [0, 1, 2, 50])
def test_items_and_their_order(depth):
    for n in (0, 1, 7):
        with Prefetch(slowly(n, 0), depth) as items:
            assert list(items) == list(range(n))
            assert list(items) == []  # the end stays the end


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_an_error_comes_in_its_place(depth):
    def broken():
        yield 1
        yield 2
        raise ValueError("file three")

    with Prefetch(broken(), depth) as items:
        assert [next(items), next(items)] == [1, 2]
        with pytest.raises(ValueError, match="file three"):
            next(items)


def test_exactly_depth_items_are_loaded_ahead():
    for depth in (1, 3):
        loaded = []
        with Prefetch(slowly(20, 0, loaded), depth) as items:
            for taken in range(5):
                end_s = time.monotonic() + 5
                while len(loaded) < taken + depth and time.monotonic() < end_s:
                    time.sleep(0.001)
                time.sleep(0.01)
                assert len(loaded) == taken + depth
                next(items)


def test_loading_runs_while_the_loop_computes():
    """8 items of 20 ms each, and 25 ms of work each: almost all of the loading is hidden."""
    waited_s = {}
    for depth in (0, 1):
        with Prefetch(slowly(8, 0.02), depth) as items:
            for _ in items:
                time.sleep(0.025)
        waited_s[depth] = items.waited_s
    assert waited_s[0] >= 0.16 and waited_s[1] < 0.5 * waited_s[0]


def test_leaving_early_ends_the_thread_and_drops_what_it_holds():
    class Item:
        pass

    made = []

    def source():
        while True:
            item = Item()
            made.append(weakref.ref(item))
            yield item

    with Prefetch(source(), 3) as items:
        next(items)
        items.close()
        with pytest.raises(StopIteration):
            next(items)
    with pytest.raises(RuntimeError, match="in the loop"), Prefetch(source(), 2) as items:
        raise RuntimeError("in the loop")
    assert running() == []
    del items
    gc.collect()
    assert len(made) >= 3 and [one for one in made if one() is not None] == []


def test_threads_end_with_the_iterators_that_nobody_closes():
    for _ in range(20):
        next(Prefetch(iter(range(100)), 2))
    gc.collect()
    end_s = time.monotonic() + 10
    while running() and time.monotonic() < end_s:
        time.sleep(0.01)
    assert running() == []


@pytest.mark.parametrize("depth, wanted", [(-1, "0 or more"), (1.5, "a whole number")])
def test_a_wrong_depth(depth, wanted):
    with pytest.raises(ValueError, match=f"got depth={depth}; wanted {wanted}; next: "):
        Prefetch([], depth)
