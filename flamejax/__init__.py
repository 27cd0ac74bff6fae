"""flamejax: a vectorized simulator of personalized federated learning.

Importing this package does not import JAX; the names below do, when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from flamejax.errors import InputError, RunError

if TYPE_CHECKING:
    from flamejax.callbacks import Callback
    from flamejax.catalog import load_data
    from flamejax.comparer import compare
    from flamejax.comparison import Comparison
    from flamejax.config import Config
    from flamejax.lane import Result
    from flamejax.models import from_flax
    from flamejax.registry import register
    from flamejax.reporter import write_report
    from flamejax.runner import run
    from flamejax.sweeper import sweep
    from flamejax.swept import Sweep
    from flamejax.types import Aggregator, Attack, Dataset, Method, Model

__version__ = "0.1.0"

_HOMES = {
    "run": "runner",
    "Result": "lane",
    "compare": "comparer",
    "Comparison": "comparison",
    "sweep": "sweeper",
    "Sweep": "swept",
    "write_report": "reporter",
    "Callback": "callbacks",
    "Config": "config",
    "Aggregator": "types",
    "Attack": "types",
    "Dataset": "types",
    "Method": "types",
    "Model": "types",
    "from_flax": "models",
    "load_data": "catalog",
    "register": "registry",
}

__all__ = [
    "Aggregator",
    "Attack",
    "Callback",
    "Comparison",
    "Config",
    "Dataset",
    "InputError",
    "Method",
    "Model",
    "Result",
    "RunError",
    "Sweep",
    "compare",
    "from_flax",
    "load_data",
    "register",
    "run",
    "sweep",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'flamejax' has no attribute '{name}'")
    return getattr(import_module(f"flamejax.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
