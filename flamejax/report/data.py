"""What `flamejax data` says at the terminal, in 80 columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from flamejax.catalog import size
from flamejax.config import Config
from flamejax.heterogeneity import Clients, gini, jensen_shannon, total_variation, variation
from flamejax.registry import GENERATED
from flamejax.report.sheet import SHAPED_BY
from flamejax.types import Dataset, Generator

MANY = 64  # classes, of which no more are listed


def show_data(name: str, data: Dataset, about: str) -> None:
    """A data set: its arrays, its writers, and how often each class occurs."""
    console = Console()
    _print_facts(console, name, {"about": about, **_facts(data)} if about else _facts(data))
    if not np.issubdtype(data.labels.dtype, np.integer):
        return
    counts = np.bincount(data.labels, minlength=data.classes)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("class", no_wrap=True, max_width=24)
    table.add_column("samples", justify="right")
    table.add_column("share", justify="right")
    table.add_column("")
    for k, count in enumerate(counts[:MANY].tolist()):
        bar = ProgressBar(int(counts.max()), count, width=32)
        table.add_row(Text(class_name(data, k)), f"{count:,}", f"{count / counts.sum():.1%}", bar)
    console.print(table)
    if len(counts) > MANY:
        console.print(f"... and {len(counts) - MANY} more classes", highlight=False)


def show_generated(name: str, data: Generator) -> None:
    """Data that are made when they are read: there is nothing to count."""
    example = f"--set data.name={name} --set partition.name=natural"
    facts = {
        "samples": f"generated for each client, by default {data.equal} of them",
        "labels": f"{data.classes} classes" if data.classes else "targets of a regression",
        "clients": f"any number; see flamejax data partition {example}",
    }
    _print_facts(Console(), name, facts)


def _print_facts(console: Console, name: str, facts: Mapping[str, str]) -> None:
    table = Table.grid(padding=(0, 2))
    for what, said in facts.items():
        table.add_row(what, Text(said))
    console.print(f"{name}:", highlight=False, markup=False, soft_wrap=True)
    console.print(table)


def _facts(data: Dataset) -> dict[str, str]:
    images = data.images
    shape = " x ".join(map(str, images.shape[1:])) or "a number"
    classes = np.issubdtype(data.labels.dtype, np.integer)
    facts = {"samples": f"{len(data.labels):,}"}
    facts["each"] = f"{shape}, {images.dtype}; {size(images.nbytes)} in memory"
    if images.dtype == np.uint8:
        facts["normalised"] = f"(x / 255 - {data.mean:g}) / {data.std:g}"
    if classes:
        counts = np.bincount(data.labels, minlength=data.classes)
        facts["classes"] = f"{data.classes}, {spread(counts)}"
    else:
        low, high = data.labels.min(), data.labels.max()
        facts["targets"] = f"{data.labels.dtype}, {low:.4g} to {high:.4g}"
    if data.writers is not None:
        counts = np.unique(data.writers, return_counts=True)[1]
        facts["writers"] = f"{len(counts):,}, {spread(counts)}"
    return facts


def class_name(data: Dataset | Generator, k: int) -> str:
    """A class as it is shown: its name, or its number."""
    names = data.class_names if isinstance(data, Dataset) else ()
    return names[k] if names else str(k)


def spread(counts: np.ndarray) -> str:
    low, middle, high = counts.min(), np.median(counts), counts.max()
    if low == high:
        return f"each with {low:,} samples"
    return f"with {low:,} to {high:,} samples (median {middle:,.0f})"


def heading(config: Config) -> str:
    """What was dealt to whom, in one line."""
    partition: Mapping[str, Any] = config.partition.model_dump()
    keys = SHAPED_BY.get(partition["name"], [])
    shape = [f"{key} = {partition[key]:g}" for key in keys]
    shape += ["overlap"] * partition["overlap"]
    name = config.data.name
    name = name if len(name) <= 40 else f"{name.partition(':')[0]}:...{name[-30:]}"
    limit = "" if config.data.limit == "all" else f" ({config.data.limit:,} samples)"
    return " · ".join(
        [
            f"{name} data{limit}",
            partition["name"] + (f" ({', '.join(shape)})" if shape else ""),
            f"{partition['clients']:,} clients",
            *([f"{config.attack.name} attack by {config.malicious}"] if config.malicious else []),
            f"seed {config.seed}",
        ]
    )


def skew(clients: Clients) -> dict[str, str]:
    """How unlike the clients are, in a line each for labels and sizes."""
    found = {}
    if clients.held is not None:
        distance, divergence = total_variation(clients.held), jensen_shannon(clients.held)
        found["label skew"] = (
            f"total variation {distance.mean():.3f}, Jensen-Shannon {divergence.mean():.3f} bit"
        )
    sizes = clients.sizes
    found["size skew"] = f"coefficient of variation {variation(sizes):.3f}, Gini {gini(sizes):.3f}"
    return found


def show_clients(config: Config, clients: Clients) -> None:
    """Sizes, classes and writers of the clients, and how unlike they are."""
    console = Console()
    console.print(heading(config), highlight=False, markup=False, soft_wrap=True)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("per client", no_wrap=True)
    for column in ("min", "median", "max", "mean", "total"):
        table.add_column(column, justify="right", no_wrap=True)
    rows = {"samples": clients.sizes}
    splits = zip(("training", "validation", "test"), clients.counts.T, strict=True)
    rows |= {f"  {name}": counts for name, counts in splits if counts.any()}
    for name, counts in rows.items():
        table.add_row(name, *_row(counts), f"{counts.sum():,}")
    if clients.held is not None:
        table.add_row("classes", *_row((clients.held > 0).sum(1)))
    if clients.writers is not None:
        table.add_row("writers", *_row(clients.writers))
    if clients.noise.any():
        noise = clients.noise
        figures = noise.min(), np.median(noise), noise.max(), noise.mean()
        table.add_row("noise variance", *(f"{figure:.3g}" for figure in figures))
    console.print(table)
    for line in _remarks(config, clients):
        console.print(line, highlight=False, soft_wrap=True)


def _row(counts: np.ndarray) -> list[str]:
    figures = counts.min(), np.median(counts), counts.max(), counts.mean()
    return [f"{figure:,.1f}".removesuffix(".0") for figure in figures]


def _remarks(config: Config, clients: Clients) -> list[str]:
    copies = int(clients.sizes.sum()) - clients.used
    again = f"and {copies:,} copies of them (overlap)" if copies else "each to one client"
    said = [f"dealt: {clients.used:,} of {clients.samples:,} samples, {again}"]
    if config.data.name in GENERATED:
        said = [f"generated: {clients.used:,} samples, none of them stored"]
    said += [f"{what}: {figures}" for what, figures in skew(clients).items()]
    if clients.malicious.any():
        who = np.flatnonzero(clients.malicious).tolist()
        more = f", ... ({len(who)} in all)" if len(who) > 12 else ""
        said.append(f"malicious: {', '.join(map(str, who[:12]))}{more}")
    return said
