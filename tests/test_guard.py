"""What keeps tests apart from the inside of the package, so that code can move without them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent
OURS = ("flamejax", "experiments")
STANDINS = "standins.py"  # the one file that puts something in the place of parts of the package
FILES = [path for path in sorted(HERE.rglob("*.py")) if path.name != STANDINS]


def of_the_package(tree: ast.Module) -> set[str]:
    """Names in a file that stand for the package, its modules, and what is taken from them."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            taken = [(alias.name, alias.asname or alias.name.split(".")[0]) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            taken = [(str(node.module), alias.asname or alias.name) for alias in node.names]
        else:
            continue
        names |= {name for module, name in taken if module.split(".")[0] in OURS}
    return names


def root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def reached(text: str) -> list[str]:
    """Where a file names something private of the package, or replaces a part of it."""
    tree = ast.parse(text)
    ours = of_the_package(tree)
    found = []
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("flamejax"):
            found += [(line, alias.name) for alias in node.names if alias.name.startswith("_")]
        elif isinstance(node, ast.Attribute) and root(node) in ours:
            private = node.attr.startswith("_") and not node.attr.endswith("__")
            named_tuple = node.attr in ("_replace", "_asdict", "_fields", "_make")
            if private and not named_tuple and not node.attr.startswith("_repr_"):
                found.append((line, node.attr))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            replaces = node.func.attr in ("setattr", "delattr", "setitem", "patch", "object")
            target = node.args[0] if node.args else None
            if not replaces or target is None:
                continue
            if isinstance(target, ast.Constant) and str(target.value).startswith("flamejax"):
                found.append((line, f"{node.func.attr} {target.value}"))
            elif root(target) in ours:
                found.append((line, f"{node.func.attr} {ast.unparse(target)}"))
    return [f"line {line}: {what}" for line, what in found]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(HERE)))
def test_nothing_private_is_named_and_no_part_replaced(path):
    assert not reached(path.read_text())


@pytest.mark.parametrize(
    "text",
    [
        "from flamejax.lane import _start",
        "from flamejax import lane\nlane._start()",
        "import flamejax as fj\nfj.lane.Lane._x = 1",
        "from flamejax import lane\ndef test(monkeypatch): monkeypatch.setattr(lane, 'x', 1)",
        "from flamejax.lane import Lane\ndef test(patch): patch.setattr(Lane, 'x', 1)",
        "def test(monkeypatch): monkeypatch.setattr('flamejax.lane.x', 1)",
        "from unittest import mock\ndef test(): mock.patch('flamejax.lane.x')",
    ],
)
def test_what_it_looks_for_is_found(text):
    assert len(reached(text)) == 1


def test_every_test_that_the_readme_names_is_there():
    named = re.findall(r"(test_\w+\.py)::(test_\w+)", (HERE / "README.md").read_text())
    assert len(named) > 40
    for file, test in named:
        assert f"\ndef {test}(" in (HERE / file).read_text(), f"{file}::{test}"
