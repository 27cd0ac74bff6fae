"""The user's cache folder: decoded data sets and compiled programs. It may be deleted any time."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
from pathlib import Path

MOST_PROGRAMS = 2000  # of some 100 kB each


def folder() -> Path:
    """$FLAMEJAX_CACHE, or else flamejax in $XDG_CACHE_HOME or ~/.cache."""
    cache = os.environ.get("FLAMEJAX_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(os.path.abspath(cache or os.path.join(base, "flamejax")))


def keep_programs(most: int = MOST_PROGRAMS) -> None:
    """Have JAX keep what it compiles, so that the next start of the same shape is quick.

    most: programs kept from earlier; the oldest go. A folder that the user has chosen for JAX
    stays, and so does a choice against keeping.
    """
    import jax

    chosen = jax.config.values
    if chosen["jax_compilation_cache_dir"] or not chosen["jax_enable_compilation_cache"]:
        return
    programs = folder() / "compiled" / _processor()
    try:
        programs.mkdir(parents=True, exist_ok=True, mode=0o700)
        _prune(programs, most)
    except OSError:  # nothing can be kept there: compile every time
        return
    jax.config.update("jax_compilation_cache_dir", str(programs))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


def _processor() -> str:
    """A name for this kind of processor: programs hold its instructions, and a home folder may be
    shared by several machines."""
    kind = platform.machine() + platform.processor()
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as lines:
        kind += "".join(sorted({x for x in lines if x.startswith(("flags", "model name"))}))
    return hashlib.sha256(kind.encode()).hexdigest()[:16]


def _prune(programs: Path, most: int) -> None:
    kept = sorted(programs.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in kept[most:]:
        path.unlink(missing_ok=True)
