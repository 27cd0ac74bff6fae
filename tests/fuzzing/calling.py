"""A command, called in this process and watched: what it says, what it writes, how long it takes.

Training is where a case stops unless it is to be carried out: where rounds would be compiled,
processes started or a network used comes an exception of our own.
"""

from __future__ import annotations

import io
import logging
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import jax

from flamejax import cli

from ..standins import stopped_before_work
from .cases import Case, Files, Link

LIMIT = 60.0  # seconds for one case, on a busy machine
ROOM = 4 * 2**30  # bytes of memory that a case may ask for; more is an error of its own
WRITES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate")
WRITES += ("os.chmod", "os.chown", "os.utime", "shutil.move", "shutil.rmtree", "shutil.copyfile")
WRITES += ("shutil.unpack_archive", "shutil.make_archive")
STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "socket.connect")
STARTS += ("socket.bind", "socket.getaddrinfo", "pickle.find_class")
HARMLESS = ("git", "uname", "fc-list")  # which commit, which machine, which fonts


class Enough(BaseException):
    """All checks are passed, and work would begin."""


class Hang(BaseException):
    """It takes too long."""


class Outcome(NamedTuple):
    verdict: str  # "accepted", "refused" or "failed" (exit code 3), or what is wrong
    code: int | None  # None: it was stopped where work would begin
    said: str  # on stderr, or a traceback
    seconds: float

    @property
    def fine(self) -> bool:
        return self.verdict in ("accepted", "refused", "failed")


class Events:
    """What Python's audit hook tells of the command that is running."""

    def __init__(self) -> None:
        self.on, self.seen = False, []
        sys.addaudithook(self._note)

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event == "open":
            path, mode, flags = arguments
            writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) if isinstance(flags, int) else 0
            if not isinstance(path, int) and (writes or set(mode or "") & set("wax+")):
                self.seen.append((event, path))
        elif event in WRITES or event in STARTS:
            self.seen.append((event, arguments[0] if arguments else ""))


_events: list[Events] = []  # hooks cannot be taken away: one for all


class Sandbox:
    """A folder to run commands in, with caches and temporary files of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.here = self.root / "deep" / "er" / "here"  # ../../x is still within the root
        self.cache, self.temporary = self.root / "cache", self.root / "tmp"
        self.here.mkdir(parents=True)
        self.cache.mkdir()
        self.temporary.mkdir()
        (self.root / "sentinel").write_text("untouched")
        if not _events:
            _events.append(Events())
        self.events = _events[0]

    @contextmanager
    def entered(self) -> Iterator[Sandbox]:
        """The process moves in: folder, environment, and no compiled Python beside the sources."""
        folders = {"FLAMEJAX_CACHE": self.cache, "HOME": self.root / "home"}
        folders |= {"XDG_CACHE_HOME": self.cache, "TMPDIR": self.temporary}
        folders |= {"MPLCONFIGDIR": self.temporary, "TFDS_DATA_DIR": self.root / "tfds"}
        before = os.getcwd(), tempfile.tempdir, sys.dont_write_bytecode
        with mock.patch.dict(os.environ, {name: str(path) for name, path in folders.items()}):
            for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
                del os.environ[name]
            os.chdir(self.here)
            tempfile.tempdir, sys.dont_write_bytecode = str(self.temporary), True
            try:
                with _bounded():
                    yield self
            finally:
                os.chdir(before[0])
                tempfile.tempdir, sys.dont_write_bytecode = before[1:]

    def run(self, case: Case, limit: float = LIMIT) -> Outcome:
        """Try a case, judge it, and tidy up."""
        self._lay(case.files)
        before = _tree(self.root)
        self.events.seen.clear()
        found = self._call(case, limit)
        if found.fine:
            wrong = self._elsewhere(case, before, found.verdict) or judge(case, found)
            found = found._replace(verdict=wrong or found.verdict)
        return found

    def _lay(self, files: Files) -> None:
        shutil.rmtree(self.root / "deep")
        shutil.rmtree(self.cache / "data", ignore_errors=True)
        self.here.mkdir(parents=True)
        os.chdir(self.here)
        for name, content in files.items():
            path = Path(os.path.normpath(self.here / name))
            assert path.is_relative_to(self.root)
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, Link):
                path.symlink_to(content.target)
            else:
                path.write_bytes(content)

    def _call(self, case: Case, limit: float) -> Outcome:
        out = io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace")  # as `cli.entry` has it
        err = io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace")
        logger = logging.getLogger("flamejax")
        started = time.monotonic()
        code: int | None = None
        verdict, trace = "", ""
        try:
            with (
                _alarm(limit),
                redirect_stdout(out),
                redirect_stderr(err),
                mock.patch.dict(os.environ),
                warnings.catch_warnings(),
                nullcontext() if case.real else stopped_before_work(Enough),
            ):
                warnings.simplefilter("always")
                self.events.on = True
                code = cli.main(list(case.command))
        except Enough:
            verdict = "accepted"
        except SystemExit as left:  # --help, --version
            code = left.code if isinstance(left.code, int) else 0
        except Hang:
            verdict, trace = "hang", traceback.format_exc()
        except BaseException as error:
            verdict, trace = f"traceback: {type(error).__name__}", traceback.format_exc()
        finally:
            self.events.on = False
            logger.handlers.clear()
            logger.setLevel(logging.NOTSET)
        seconds = time.monotonic() - started
        err.flush()
        said = err.buffer.getvalue().decode() + trace  # type: ignore[attr-defined]
        known = {0: "accepted", 1: "accepted", 2: "refused", 3: "failed"}
        return Outcome(verdict or known.get(code or 0, f"exit code {code}"), code, said, seconds)

    def _elsewhere(self, case: Case, before: set[str], verdict: str) -> str:
        """What was written where nothing should be, or done that never should."""
        given = [Path(os.path.abspath(path)) for path in _after(case.command, ("--out", "--plot"))]
        given += [path.with_suffix("") for path in given if path.suffix == ".html"]
        programs = jax.config.values["jax_compilation_cache_dir"]  # of what ran here before
        own = [self.root, *([Path(programs)] if programs else [])]
        for event, what in self.events.seen:
            if event == "subprocess.Popen" and what in HARMLESS:
                continue
            if event in STARTS:
                return f"elsewhere: {event} {what!r}"
            path = Path(os.path.abspath(os.fsdecode(what)))
            inside = any(path.is_relative_to(p) or p.is_relative_to(path) for p in given)
            inside |= any(path.is_relative_to(p) for p in own)
            if not (inside or path == Path(os.devnull)):
                return f"elsewhere: {event} {what!r}"
        allowed = [self.cache, self.temporary]
        allowed += [self.here, *given] if verdict != "refused" else []
        for name in sorted(_tree(self.root) ^ before):
            path = Path(name)
            if not any(path.is_relative_to(p) or p.is_relative_to(path) for p in allowed):
                return f"elsewhere: {name}"
        return ""


def judge(case: Case, found: Outcome) -> str:
    """What is wrong with what a command said, if anything."""
    if case.valid and found.verdict != "accepted":
        return "unclear: valid, but not accepted"
    if found.verdict == "failed" and not case.real and "memory" not in found.said:
        return "unclear: exit code 3 before any work"
    if found.verdict == "accepted":
        return ""
    *warned, line, end = ["", *found.said.split("\n")]  # what was found on the way comes before
    warned = warned[1:]
    if end or not line.startswith("flamejax: ") or len(warned) > 1:
        return "unclear: not one line"
    if not all(said.startswith("flamejax: warning: ") for said in warned):
        return "unclear: more than a warning and the reason"
    if not found.said.replace("\n", "").isprintable():
        return "unclear: characters that cannot be printed"
    if len(line) < 25 or len(line) > 6000:
        return "unclear: a line too short or too long"
    if found.verdict == "refused" and case.names:
        plain = "".join(c if c.isprintable() else "?" for c in line)
        if not any(name and name in plain for name in case.names):
            return f"unclear: names none of {list(case.names)!r:.200}"
    return ""


def _after(command: list[str], options: tuple[str, ...]) -> Iterator[str]:
    """The values of options, written in either way or shortened."""
    for word, following in zip(command, [*command, ""][1:], strict=True):
        name, equals, value = word.partition("=")
        if len(name) > 2 and any(option.startswith(name) for option in options):
            yield value if equals else following


def _tree(root: Path) -> set[str]:
    """Every file with its size and time, and every folder."""
    found = set()
    for folder, _, names in os.walk(root):
        found.add(folder)
        for name in names:
            path = os.path.join(folder, name)
            about = os.lstat(path)
            found.add(f"{path}/{about.st_size}/{about.st_mtime_ns}")
    return found


@contextmanager
def _bounded() -> Iterator[None]:
    """Never take the memory of others: what asks for too much gets a MemoryError."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + ROOM, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    def ring(*_: Any) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
