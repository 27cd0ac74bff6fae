"""Requests to stop: a process hears them, and a run that is in the middle of something."""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

SOON = 0.01  # seconds


def obey() -> None:
    """From now on a termination request ends this process as Ctrl-C does: with its files in order.

    Neither gets lost: what is raised inside a callback of the garbage collector, where Python would
    print it and go on, is raised again a moment later.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    ordinary = sys.unraisablehook

    def again(lost: Any) -> None:
        if lost.exc_type is not KeyboardInterrupt:
            ordinary(lost)
            return
        # a signal also wakes a thread that waits; on Windows it would end the process at once
        repeat = partial(os.kill, os.getpid()) if os.name == "posix" else _thread.interrupt_main
        timer = threading.Timer(SOON, repeat, [signal.SIGTERM])
        timer.daemon = True
        timer.start()

    sys.unraisablehook = again


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
