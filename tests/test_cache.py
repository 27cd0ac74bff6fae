"""Programs that were compiled before."""

import os
import subprocess
import sys

import jax
import pytest

from flamejax import cache

PROGRAM = """
import flamejax as fj
r = fj.run(rounds=1, data={"limit": 600}, partition={"name": "iid", "clients": 2}, quiet=True)
print(r.summary["compile_seconds"], r.summary["last"]["pm"]["loss"])
"""


def start(folder, **variables):
    environment = {**os.environ, "FLAMEJAX_CACHE": str(folder), **variables}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    )
    seconds, loss = map(float, done.stdout.split())
    return seconds, loss


def test_a_second_start_compiles_nothing_anew(tmp_path):
    first, loss = start(tmp_path)
    programs = list(tmp_path.glob("compiled/*/jit_many-*"))
    assert len(programs) == 1
    assert programs[0].parent.stat().st_mode & 0o077 == 0
    second, again = start(tmp_path)
    assert again == loss
    assert second < first / 2
    programs[0].write_bytes(b"damaged")
    assert start(tmp_path)[1] == loss


def test_no_cache_is_no_obstacle(tmp_path):
    (tmp_path / "file").write_text("")
    start(tmp_path / "file")
    start(tmp_path / "other", JAX_ENABLE_COMPILATION_CACHE="false")
    assert not (tmp_path / "other").exists()


def test_the_oldest_programs_go(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "MOST_PROGRAMS", 2)
    for i in range(4):
        (tmp_path / str(i)).touch()
        os.utime(tmp_path / str(i), (i, i))
    cache._prune(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2", "3"]


@pytest.fixture
def _no_choice():
    chosen = jax.config.jax_compilation_cache_dir
    yield
    jax.config.update("jax_compilation_cache_dir", chosen)


@pytest.mark.usefixtures("_no_choice")
def test_a_folder_chosen_for_jax_stays(tmp_path):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "mine"))
    cache.keep_programs()
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "mine")
