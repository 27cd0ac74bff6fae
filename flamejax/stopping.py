"""Requests to stop, while a run is in the middle of something."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def stop_requests() -> Iterator[list[int]]:
    """Ctrl-C and termination requests, gathered so that a run ends between two calls.

    An exception from a signal handler can get lost in JAX's callbacks; a note cannot. The second
    request interrupts at once.
    """
    asked: list[int] = []

    def note(number: int, _: Any) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    signals = [signal.SIGINT, signal.SIGTERM]
    if threading.current_thread() is not threading.main_thread():
        signals = []  # only the main thread may handle signals
    heard = [s for s in signals if signal.getsignal(s) not in (signal.SIG_IGN, None)]
    before = [(s, signal.signal(s, note)) for s in heard]
    try:
        yield asked
    finally:
        for number, handler in before:
            signal.signal(number, handler)
    if asked:  # too late to stop this run: it is for whatever comes next
        signal.raise_signal(asked[0])
