"""Bad input, thousands of times: configs, command lines and data files that are nearly right.

    python experiments/reliability/fuzz.py --configs 20000 --data 2000 --jobs 2 --out fuzz.md

Every case is a command in a folder of its own, called in one of --jobs worker processes. It has to
be accepted, or refused with exit code 2 and one printable line that names the key or the file; no
traceback, no hang, no more memory than a bound, nothing written but in the folder of the command,
the one named by --out and the cache, no process started, no connection made, nothing unpickled.
What is refused must leave nothing in the folder at all, and what is made to be valid must be
accepted.

What is covered: parsing, validation, reading of data, dealing it to clients, and for seeds that
divide by 4 the tracing of the model; then a case ends where the first round would be compiled.
Cases of the kind `carried_out` go on from there: a round of training, evaluation and all records.
Pictures of reports are drawn in one form of three. Not covered: `bench` beyond its options,
downloads, runs of several processes, checkpoints, and code that a library runs in its own threads.
Real time bounds a case, so on a machine that is busy otherwise a slow one may look like a hang.

Some cases are also given to `python -m flamejax` as they are, to see that it does the same.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from random import Random
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.fuzzing import commands, configs, files, results  # noqa: E402
from tests.fuzzing.calling import LIMIT, Sandbox, judge  # noqa: E402
from tests.fuzzing.cases import Case, Kind  # noqa: E402

# kinds by what they are counted as, and each one's share
CONFIGS: dict[Kind, float] = {
    configs.one_value: 0.27,
    configs.changed_text: 0.18,
    configs.nonsense: 0.04,
    configs.setting: 0.16,
    configs.generated: 0.03,
    configs.good: 0.08,
    configs.experiment_file: 0.06,
    commands.options: 0.15,
    commands.wild: 0.03,
}
DATA: dict[Kind, float] = {files.data: 0.8, results.report: 0.1, results.trained_report: 0.1}
KINDS = {kind.__name__: kind for kind in (*CONFIGS, *DATA, configs.carried_out)}
KILL = 3 * LIMIT  # seconds after which a worker that does not answer is ended
WORDS = ("accepted", "refused", "failed", "traceback", "hang", "elsewhere", "unclear", "differs")


class Found(NamedTuple):
    kind: str
    number: int
    verdict: str
    said: str
    seconds: float

    @property
    def word(self) -> str:
        return self.verdict.partition(":")[0]

    @property
    def fine(self) -> bool:
        return self.word in WORDS[:3]


def make(seed: int, kind: str, number: int) -> Case:
    return KINDS[kind](Random(f"{seed}/{kind}/{number}"))


def work(seed: int) -> None:
    """In a worker: read kinds and numbers, write what came of them."""
    import jax

    jax.config.update("jax_disable_most_optimizations", True)  # the time is in compiling
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    with tempfile.TemporaryDirectory() as root, Sandbox(Path(root)).entered() as box:
        for line in sys.stdin:
            kind, number = line.split()
            case = make(seed, kind, int(number))
            faulthandler.dump_traceback_later(2 * LIMIT, exit=True)  # deaf to the alarm
            outcome = box.run(case)
            faulthandler.cancel_dump_traceback_later()
            told = Found(kind, int(number), outcome.verdict, outcome.said[-4000:], outcome.seconds)
            print(json.dumps(told), file=answers, flush=True)


class Worker:
    """A process that tries cases; when it dies another takes its place."""

    def __init__(self, seed: int) -> None:
        self.seed, self.process = seed, None

    def __call__(self, kind: str, number: int) -> Found:
        if self.process is None:
            self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (lives as long as it does)
            self.process = subprocess.Popen(
                [sys.executable, __file__, "--worker", "--seed", str(self.seed)], text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
            )  # fmt: skip
        started = time.monotonic()
        print(kind, number, file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if line:
            return Found(*json.loads(line))
        self.process.wait()
        self.errors.seek(0)
        said, seconds = self.errors.read()[-4000:], time.monotonic() - started
        how = "hang" if "Timeout" in said else f"traceback: died with {self.process.returncode}"
        self.process = None
        return Found(kind, number, how, said, seconds)

    def close(self) -> None:
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait()


def tried(todo: list[tuple[str, int]], seed: int, jobs: int) -> Iterator[Found]:
    """What comes of every case, as it comes; so many workers take them one by one."""
    waiting, results = iter(todo), SimpleQueue()
    stop, taking = threading.Event(), threading.Lock()

    def take() -> None:
        worker = Worker(seed)
        while not stop.is_set():
            with taking:
                case = next(waiting, None)
            if case is None:
                break
            results.put(worker(*case))
        worker.close()

    threads = [threading.Thread(target=take) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    try:
        for _ in todo:
            yield results.get()
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def for_real(seed: int, found: Found) -> Found:
    """The same case as a command of its own; `found`, unless something else came of it."""
    case = make(seed, found.kind, found.number)
    with tempfile.TemporaryDirectory() as root:
        box = Sandbox(Path(root))
        box._lay(case.files)
        variables = {"FLAMEJAX_CACHE": str(box.cache), "HOME": root, "PYTHONPATH": str(ROOT)}
        words = [os.fsencode(word) for word in case.command]
        done = subprocess.run(
            [sys.executable, "-m", "flamejax", *words], cwd=box.here, timeout=10 * LIMIT,
            env={**os.environ, **variables}, capture_output=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    said = done.stderr.decode("utf-8", "replace").replace(root, "")
    same = done.returncode == 2 and not judge(case, _outcome(said))
    if same:
        return found
    return found._replace(verdict=f"differs: exit code {done.returncode}", said=said[-4000:])


def _outcome(said: str) -> Any:
    from tests.fuzzing.calling import Outcome

    return Outcome("refused", 2, said, 0.0)


def can_be_typed(case: Case) -> bool:
    """Whether an operating system would pass these words on."""
    try:
        return all("\0" not in word and len(os.fsencode(word)) < 10**5 for word in case.command)
    except UnicodeEncodeError:
        return False


def shares(kinds: dict[Kind, float], total: int) -> Iterator[tuple[str, int]]:
    for kind, share in kinds.items():
        yield from ((kind.__name__, number) for number in range(round(share * total)))


@contextmanager
def watched(total: int) -> Iterator[Progress]:
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn())
    console = Console(stderr=True)
    with Progress(*columns, TimeRemainingColumn(), console=console,
                  disable=not console.is_terminal) as bar:  # fmt: skip
        bar.add_task("cases", total=total)
        yield bar


def show(seed: int, found: Found) -> None:
    """A failure, and what is needed to repeat it."""
    case = make(seed, found.kind, found.number)
    print(f"\n{found.kind} {found.number}: {found.verdict}")
    print(f"  repeat: python {sys.argv[0]} --seed {seed} --only {found.kind}:{found.number}")
    print(f"  command: {[word[:300] for word in case.command]!r}")
    for path, content in case.files.items():
        print(f"  file {path}: {content!r:.600}")
    print("  said: " + found.said[-1500:].replace("\n", "\n        "), flush=True)


def table(seed: int, command: str, found: list[Found], checked: int, seconds: float) -> str:
    """What came of all cases, in Markdown."""
    lines = ["# Bad input", "", f"    {command}", ""]
    names = ["cases", *WORDS, "slowest, s"]
    lines += [f"| kind | {' | '.join(names)} |", "|---" + "|---:" * len(names) + "|"]
    seen = {one.kind for one in found}
    for kind in [*(kind for kind in KINDS if kind in seen), "all"]:
        mine = [one for one in found if kind in (one.kind, "all")]
        counts = Counter(one.word for one in mine)
        slowest = max(one.seconds for one in mine)
        figures = [len(mine), *(counts[word] for word in WORDS), f"{slowest:.1f}"]
        lines.append(f"| {kind} | {' | '.join(map(str, figures))} |")
    slow = max(found, key=lambda one: one.seconds)
    packages = ", ".join(f"{name} {version(name)}" for name in ("flamejax", "jax", "numpy"))
    lines += [
        "",
        "accepted: it went on to where work begins, or was done; refused: exit code 2, one line; "
        "failed: exit code 3, one line, of runs that were carried out or do not fit in memory. "
        "The others are defects: a traceback (a crash among them), a hang, something done "
        "elsewhere, an unclear message, another outcome as a process of its own.",
        "",
        f"{checked} refused cases were repeated as processes of their own. Slowest: {slow.kind} "
        f"{slow.number}, {slow.seconds:.1f} s. In all {seconds:.0f} s; seed {seed}; {packages}, "
        f"Python {platform.python_version()}, {os.cpu_count()} cores.",
        "",
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--configs", type=int, default=20_000, help="and command lines")
    parser.add_argument("--data", type=int, default=2_000, help="files, and results folders")
    parser.add_argument("--real", type=int, default=300, help="small runs to carry out")
    parser.add_argument("--processes", type=int, default=60, help="cases to repeat as processes")
    parser.add_argument("--jobs", type=int, default=1, help="cases at a time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", metavar="KIND:NUMBER", help="one case")
    parser.add_argument("--out", type=Path, metavar="FILE.md")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        work(given.seed)
        return 0
    real = [("carried_out", number) for number in range(given.real)]
    todo = [*shares(CONFIGS, given.configs), *shares(DATA, given.data), *real]
    if given.only:
        kind, _, number = given.only.partition(":")
        todo = [(kind, int(number))]
    Random(given.seed).shuffle(todo)  # so that a run that is stopped has seen all kinds
    started, found = time.monotonic(), []
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with watched(len(todo)) as bar:
            for one in tried(todo, given.seed, given.jobs):
                found.append(one)
                if not one.fine:
                    show(given.seed, one)
                bar.update(0, advance=1)
    except KeyboardInterrupt:
        given.processes = 0
    refused = [i for i, one in enumerate(found) if one.verdict == "refused"]
    Random(given.seed).shuffle(refused)
    typed = (i for i in refused if can_be_typed(make(given.seed, *found[i][:2])))
    chosen = list(islice(typed, given.processes))
    for i in chosen:
        found[i] = for_real(given.seed, found[i])
        if not found[i].fine:
            show(given.seed, found[i])
    command = " ".join(["python experiments/reliability/fuzz.py", *sys.argv[1:]])
    text = table(given.seed, command, found, len(chosen), time.monotonic() - started)
    if len(found) < len(todo):
        text += f"\nStopped after {len(found)} of {len(todo)} cases, which are in random order.\n"
    print(text)
    if given.out:
        given.out.write_text(text)
    return 0 if all(one.fine for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
