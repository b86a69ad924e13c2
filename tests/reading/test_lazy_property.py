"""A property that is computed once, and waits for nobody."""

import threading

from planner.reading.lazy import lazy_property


class Slow:
    def __init__(self, wait):
        self.wait = wait

    @lazy_property
    def value(self):
        """What it says."""
        self.wait()
        return object()


def test_it_is_computed_once_and_documented():
    waited = []
    slow = Slow(lambda: waited.append(1))
    assert slow.value is slow.value
    assert waited == [1]
    assert Slow.value.__doc__ == "What it says."


def test_no_object_waits_for_another_whose_value_is_computed():
    """Nor does a process that was forked meanwhile, in which that thread is not."""
    inside, go = threading.Event(), threading.Event()

    def hold():
        inside.set()
        go.wait(10)

    slow = Slow(hold)
    busy = threading.Thread(target=lambda: slow.value)
    busy.start()
    assert inside.wait(10)
    assert Slow(lambda: None).value
    assert busy.is_alive()
    slow.wait = lambda: None
    first = slow.value
    go.set()
    busy.join()
    assert slow.value is first, "of two that compute it, both get the one that was kept"
