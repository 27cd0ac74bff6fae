"""Programs that were compiled before."""

import os
import subprocess
import sys

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

import flamejax as fj
from flamejax import cache

from .problems import blobs, small_net

PROGRAM = """
import flamejax as fj
r = fj.run(rounds=1, data={"limit": 600}, partition={"name": "iid", "clients": 2}, quiet=True)
print(r.summary["compile_seconds"], r.summary["last"]["pm"]["loss"])
"""


@pytest.fixture
def start(monkeypatch):
    """A run as if the process had just started, with a cache at a folder of one's own: its loss,
    and how many programs were found there, and how many not."""
    before, counts = jax.config.jax_compilation_cache_dir, {}

    def listen(event, **_):
        if event in counts:
            counts[event] += 1

    def begin(folder):
        monkeypatch.setenv("FLAMEJAX_CACHE", str(folder))
        jax.config.update("jax_compilation_cache_dir", None)
        compilation_cache.reset_cache()
        jax.clear_caches()
        counts.update({f"/jax/compilation_cache/cache_{name}": 0 for name in ("hits", "misses")})
        result = fj.run(rounds=1, data=blobs(), model=small_net(), quiet=True, **TWO)
        return result.summary["last"]["pm"]["loss"], *counts.values()

    jax.monitoring.register_event_listener(listen)
    yield begin
    jax.monitoring.unregister_event_listener(listen)
    jax.config.update("jax_compilation_cache_dir", before)
    compilation_cache.reset_cache()


TWO = {"partition": {"name": "iid", "clients": 2}}


def test_a_second_start_compiles_nothing_anew(start, tmp_path):
    loss, _, misses = start(tmp_path)
    assert misses > 1
    programs = list(tmp_path.glob("compiled/*/jit_many-*"))
    assert len(programs) == 1
    assert programs[0].parent.stat().st_mode & 0o077 == 0
    again, hits, new = start(tmp_path)
    assert (again, new) == (loss, 0)
    assert hits >= misses
    programs[0].write_bytes(b"damaged")
    assert start(tmp_path)[0] == loss


@pytest.mark.usefixtures("_no_choice")
def test_no_cache_is_no_obstacle(tmp_path, monkeypatch):
    def kept_at(folder):
        monkeypatch.setenv("FLAMEJAX_CACHE", str(folder))
        cache.keep_programs()
        return jax.config.jax_compilation_cache_dir

    (tmp_path / "file").write_text("")
    assert kept_at(tmp_path / "file") is None
    jax.config.update("jax_enable_compilation_cache", False)
    assert kept_at(tmp_path / "other") is None
    jax.config.update("jax_enable_compilation_cache", True)
    assert not (tmp_path / "other").exists()
    assert kept_at(tmp_path / "other").startswith(str(tmp_path))


@pytest.mark.full
def test_a_second_process_compiles_nothing_anew(tmp_path):
    def process(folder, **variables):
        environment = {**os.environ, "FLAMEJAX_CACHE": str(folder), **variables}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return map(float, done.stdout.split())

    first, loss = process(tmp_path)
    programs = list(tmp_path.glob("compiled/*/jit_many-*"))
    assert len(programs) == 1
    second, again = process(tmp_path)
    assert again == loss
    assert second < first / 2
    programs[0].write_bytes(b"damaged")
    assert list(process(tmp_path))[1] == loss
    (tmp_path / "file").write_text("")
    process(tmp_path / "file")
    process(tmp_path / "other", JAX_ENABLE_COMPILATION_CACHE="false")
    assert not (tmp_path / "other").exists()


@pytest.fixture
def _no_choice():
    chosen = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", None)
    yield
    jax.config.update("jax_compilation_cache_dir", chosen)
    jax.config.update("jax_enable_compilation_cache", True)


@pytest.mark.usefixtures("_no_choice")
def test_the_oldest_programs_go(tmp_path, monkeypatch):
    monkeypatch.setenv("FLAMEJAX_CACHE", str(tmp_path))
    cache.keep_programs()
    [programs] = tmp_path.glob("compiled/*")
    for i in range(4):
        (programs / str(i)).touch()
        os.utime(programs / str(i), (i, i))
    jax.config.update("jax_compilation_cache_dir", None)
    cache.keep_programs(most=2)
    assert sorted(path.name for path in programs.iterdir()) == ["2", "3"]


@pytest.mark.usefixtures("_no_choice")
def test_a_folder_chosen_for_jax_stays(tmp_path):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "mine"))
    cache.keep_programs()
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "mine")
