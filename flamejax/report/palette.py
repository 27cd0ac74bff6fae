"""Saving a figure as PNG, SVG and PDF."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

STAMPS = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}


def save(draw: Callable[[Figure], Figure], stem: Path) -> list[Path]:
    """STEM.png, STEM.svg and STEM.pdf; equal results give equal files."""
    paths = []
    with matplotlib.rc_context({"svg.hashsalt": "flamejax"}):
        figure = draw(Figure(dpi=150, layout="constrained"))
        for form, metadata in STAMPS.items():
            paths.append(stem.with_name(f"{stem.name}.{form}"))
            figure.savefig(paths[-1], format=form, metadata=metadata)
    return paths
