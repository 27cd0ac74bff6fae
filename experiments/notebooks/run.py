"""Execute notebooks from top to bottom, and keep what they show.

    pip install '.[test]'
    python experiments/notebooks/run.py [NAME ...] [--out DIR]

Without names it is all of them, and without --out in place. FLAMEJAX_SMALL=1 makes their settings
small, as in the tests; what is committed comes from the normal ones.
"""

from __future__ import annotations

import argparse
import base64
import io
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from PIL import Image

FOLDER = Path(__file__).parent
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def execute(path: Path) -> nbformat.NotebookNode:
    """The notebook with fresh outputs; warnings and whatever else goes to stderr are refused."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as scratch:  # where its cells find and leave files
        client = NotebookClient(
            notebook,
            kernel_name="python3",
            startup_timeout=180,
            timeout=600,
            resources={"metadata": {"path": scratch}},
            record_timing=False,
            coalesce_streams=True,
        )
        client.execute()
    notebook.metadata = METADATA
    for cell in notebook.cells:
        cell.metadata = {}
        for output in cell.get("outputs", []):
            if output.get("name") == "stderr":
                raise SystemExit(f"{path.name}, cell {cell.id} says: {output.text}")
            data = output.get("data", {})
            if len(data) > 1:  # what front ends show only if they can show nothing else
                data.pop("text/plain", None)
            if "image/png" in data:
                data["image/png"] = slim(data["image/png"])
    return notebook


def slim(picture: str) -> str:
    """The same PNG with a palette: our pictures have few colours."""
    buffer = io.BytesIO()
    image = Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB")
    image.quantize(128, dither=Image.Dither.NONE).save(buffer, "png", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="such as 01_quickstart")
    parser.add_argument("--out", type=Path, default=FOLDER, metavar="DIR")
    options = parser.parse_args()
    known = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
    for name in options.names:
        if name not in known:
            parser.error(f"{name} is none of {', '.join(known)}")
    for name in options.names or known:
        started = time.perf_counter()
        notebook = execute(FOLDER / f"{name}.ipynb")
        path = options.out / f"{name}.ipynb"
        nbformat.write(notebook, path)
        size = path.stat().st_size
        print(f"{name}: {time.perf_counter() - started:.0f} s, {size / 1e3:.0f} kB", flush=True)


if __name__ == "__main__":
    main()
