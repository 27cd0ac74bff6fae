"""Packs of runs shared out among processes, each with its share of the cores.

A process takes the next pack when it is free. It is told in a line of JSON on its standard input
what to run, and answers in a line on its standard output.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Queue
from typing import IO, Any

from flamejax.config import make
from flamejax.errors import RunError
from flamejax.many import Job
from flamejax.stopping import obey

Begin = Callable[[Sequence[int]], list[Job]]
End = Callable[[Sequence[int], Sequence[RunError | None]], None]


def share_out(packs: Sequence[Sequence[int]], begin: Begin, end: End, processes: int) -> None:
    """Carry out packs, given as numbers of jobs, in so many processes."""
    workers = [_start(number, processes) for number in range(processes)]
    answers: Queue[tuple[int, str]] = Queue()  # a worker's number, and what it says

    def listen(number: int, out: IO[str]) -> None:
        for line in out:
            answers.put((number, line))
        answers.put((number, ""))  # it has gone

    for number, worker in enumerate(workers):
        assert worker.stdout
        threading.Thread(target=listen, args=(number, worker.stdout), daemon=True).start()
    waiting, doing = list(packs), {}

    def give(number: int) -> None:
        if waiting:
            doing[number] = waiting.pop(0)
            runs = [(job.config.model_dump(), str(job.folder)) for job in begin(doing[number])]
            stdin = workers[number].stdin
            assert stdin
            stdin.write(json.dumps(runs) + "\n")
            stdin.flush()

    try:
        for number in range(processes):
            give(number)
        while doing:
            number, line = answers.get()
            if number not in doing:
                continue
            if not line:
                raise RunError(f"a process of --jobs ended with code {workers[number].wait()}")
            said = json.loads(line)
            end(doing.pop(number), [None if text is None else RunError(text) for text in said])
            give(number)
    finally:
        for worker in workers:
            if worker.poll() is None and doing:
                worker.send_signal(signal.SIGTERM)  # it leaves checkpoints
            if worker.stdin:
                worker.stdin.close()
        for worker in workers:
            worker.wait()


def _start(number: int, of: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "flamejax.processes", str(number), str(of)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for this process, which passes it on
    )


def _work(number: int, of: int) -> None:
    """What such a process does, until there is nothing more."""
    if hasattr(os, "sched_setaffinity"):
        share = sorted(os.sched_getaffinity(0))[number::of]
        os.sched_setaffinity(0, share or os.sched_getaffinity(0))
    obey()
    threading.Thread(target=_mind, args=(os.getppid(),), daemon=True).start()

    from flamejax.together import run_together

    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed is not an answer
    for line in sys.stdin:
        runs = json.loads(line)
        configs, folders = [make(values) for values, _ in runs], [Path(at) for _, at in runs]
        failures: list[Any] = list(run_together(configs, folders, quiet=True))
        answer.write(json.dumps([failure and str(failure) for failure in failures]) + "\n")
        answer.flush()


def _mind(parent: int) -> None:
    """Stop, with checkpoints, when nobody waits for the runs any more."""
    while os.getppid() == parent:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    try:
        _work(int(sys.argv[1]), int(sys.argv[2]))
    except KeyboardInterrupt:
        sys.exit(130)
