"""Pictures of data: examples of every class, and what each client holds."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from flamejax.config import Config
from flamejax.heterogeneity import Clients
from flamejax.report.data import class_name, heading, skew
from flamejax.report.palette import COLOR, GREY
from flamejax.types import Dataset, Generator

EXAMPLES = 12  # of each class
SIDE = 128  # pixels, to which larger images are thinned out
ROWS = 100  # classes, of which no more are drawn
BUBBLES = 60  # clients, of which more are drawn as a map,
COLUMNS = 1000  # and of still more only so many
PALE, DARK = "#e9b7a2", "#222222"
SHARES = LinearSegmentedColormap.from_list("shares", ["#ffffff", PALE, COLOR, "#5c1a00"])


def drawable(data: Dataset) -> bool:
    """Whether samples are pictures of bytes [N, H, W, channels] in classes."""
    classes = np.issubdtype(data.labels.dtype, np.integer)
    return classes and data.images.dtype == np.uint8 and data.images.ndim == 4


def mosaic(data: Dataset) -> bytes:
    """A row of examples for each class, spread evenly over its samples, as a PNG."""
    every = math.ceil(max(data.images.shape[1:3]) / SIDE)  # of large images only so many pixels
    height, width, channels = data.images[:1, ::every, ::every].shape[1:]
    shown = min(data.classes, ROWS)
    zoom = max(1, round(48 / max(height, width)))  # pixels stay squares
    cell_h, cell_w, gap = height * zoom, width * zoom, 4
    deep = 3 if channels == 3 else 1  # what is neither grey nor RGB shows its first channel
    tiles = np.full((shown * (cell_h + gap), EXAMPLES * (cell_w + gap), deep), 255, np.uint8)
    for k in range(shown):
        members = np.flatnonzero(data.labels == k)
        picked = members[np.linspace(0, len(members) - 1, min(EXAMPLES, len(members))).astype(int)]
        for i, image in enumerate(data.images[picked, ::every, ::every, :deep]):
            top, left = k * (cell_h + gap), i * (cell_w + gap)
            large = image.repeat(zoom, 0).repeat(zoom, 1)
            tiles[top : top + cell_h, left : left + cell_w] = large
    names = [class_name(data, k)[:24] for k in range(shown)]
    # a pixel of the tiles is a pixel of the picture
    margin, dpi = 0.25 + 0.085 * max(map(len, names)), 100
    inches = np.array([tiles.shape[1] / dpi + margin, tiles.shape[0] / dpi + 0.1])
    figure = Figure(figsize=tuple(inches), dpi=dpi)
    box = (margin / inches[0], 0.0, 1 - margin / inches[0], 1 - 0.1 / inches[1])
    axes = figure.add_axes(box)
    axes.imshow(tiles if deep == 3 else tiles[..., 0], cmap="gray", vmin=0, vmax=255, aspect="auto")
    axes.set_yticks(
        (np.arange(shown) + 0.5) * (cell_h + gap) - gap / 2, names, fontsize=9, parse_math=False
    )
    axes.tick_params(length=0, pad=6)
    axes.set_xticks([])
    axes.spines[:].set_visible(False)
    return _save(figure, "png")


def partition(config: Config, clients: Clients, data: Dataset | Generator, form: str) -> bytes:
    """Clients x classes; above them the clients' sizes, and their noise if there is any."""
    title = [f"{what}: {figures}" for what, figures in skew(clients).items()]
    everyone = len(clients.counts)
    shown = np.linspace(0, everyone - 1, min(everyone, COLUMNS)).astype(int)
    clients = clients.only(shown)
    many, held, noisy = len(clients.counts) > BUBBLES, clients.held, bool(clients.noise.any())
    tall = 0.0 if held is None else min(max(0.32 * held.shape[1], 1.2), 9.0)
    heights = [1.3, *[0.8] * noisy, *[tall] * (held is not None)]
    wide = min(max(5.5 + 0.1 * len(clients.counts), 7.0), 11.0)
    figure = Figure(figsize=(wide, sum(heights) + 1.4), dpi=150, layout="constrained")
    panels = figure.subplots(
        len(heights), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights}
    )[:, 0]
    margin = 0.5 if many else 0.7
    panels[-1].set(xlabel="client", xlim=(-margin, len(shown) - 1 + margin))
    ticks = np.array(MaxNLocator(12, integer=True).tick_values(0, everyone - 1))
    ticks = ticks[(ticks >= 0) & (ticks < everyone)]
    places = np.interp(ticks, [0, everyone - 1], [0, len(shown) - 1])
    panels[-1].set_xticks(places, [f"{tick:,.0f}" for tick in ticks])
    if len(shown) < everyone:
        panels[-1].set(xlabel=f"client ({len(shown):,} of {everyone:,} are shown)")
    _sizes(panels[0], clients)
    if noisy:
        panels[1].plot(
            clients.noise, "-" if many else "o-", color=COLOR, lw=1.2, ms=3, clip_on=False
        )
        panels[1].set(ylabel="noise\nvariance")
        panels[1].set_ylim(bottom=0)
    if held is not None:
        _name_classes(panels[-1], [class_name(data, k) for k in range(data.classes)])
        (_map if many else _bubbles)(figure, panels[-1], held, clients.malicious)
    for axes in panels[: len(heights) - (held is not None)]:
        axes.grid(alpha=0.25, lw=0.6, axis="y")
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_axisbelow(True)
        axes.yaxis.set_major_locator(MaxNLocator(4))
    between = " · " if len(" · ".join(title)) < 13 * wide else "\n"
    figure.suptitle(f"{heading(config)}\n{between.join(title)}", fontsize=9, parse_math=False)
    return _save(figure, form)


def _sizes(axes: Axes, clients: Clients) -> None:
    """Bars of training samples, held-out ones on top; malicious clients are dark."""
    training, sizes = clients.counts[:, 0], clients.sizes
    edges = np.arange(len(sizes) + 1) - 0.5
    if len(sizes) > BUBBLES:
        axes.stairs(sizes, edges, color=PALE, fill=True, lw=0, label="held out")
        axes.stairs(training, edges, color=COLOR, fill=True, lw=0, label="training")
        if clients.malicious.any():
            lying = np.where(clients.malicious, training, 0)
            axes.stairs(lying, edges, color=DARK, fill=True, lw=0, label="malicious")
    else:
        at, honest = np.arange(len(sizes)), ~clients.malicious
        axes.bar(at, sizes - training, 0.8, training, color=PALE, label="held out")
        axes.bar(at[honest], training[honest], 0.8, color=COLOR, label="training")
        if clients.malicious.any():
            axes.bar(at[~honest], training[~honest], 0.8, color=DARK, label="malicious")
    axes.set(ylabel="samples")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.legend(
        frameon=False, fontsize=8, loc="lower right", bbox_to_anchor=(1.0, 0.96), ncols=3,
        borderaxespad=0.0, handlelength=1.0, columnspacing=1.2,
    )  # fmt: skip


def _bubbles(figure: Figure, axes: Axes, held: np.ndarray, malicious: np.ndarray) -> None:
    """A disc for each client and class; its area is the number of samples."""
    client, k = np.nonzero(held)
    samples, largest = held[client, k], held.max()
    with _any_letters():
        figure.draw_without_rendering()  # settles how much room a disc has
    spot = axes.transData.transform([(0, 0), (1, 1)])
    room = 72 / figure.dpi * min(abs(spot[1] - spot[0]))
    full = max(0.95 * room, 5.0) ** 2  # area of the largest, in points
    look: dict[str, Any] = {"alpha": 0.85, "linewidths": 0, "zorder": 3}
    color = np.where(malicious[client], DARK, COLOR)
    axes.scatter(client, k, np.maximum(full * samples / largest, 0.8), color, **look)
    axes.grid(alpha=0.25, lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    keys = sorted({_round(largest * share) for share in (0.1, 0.4, 1.0)})
    discs = [
        Line2D([], [], ls="", marker="o", color=GREY, mec="none", label=f"{key:,}",
               ms=math.sqrt(full * key / largest))
        for key in keys if key
    ]  # fmt: skip
    axes.legend(
        handles=discs, title="samples", title_fontsize=8, fontsize=8, frameon=False,
        loc="center left", bbox_to_anchor=(1.0, 0.5), labelspacing=1.4, handletextpad=0.8,
    )  # fmt: skip


def _round(value: float) -> int:
    """To one digit."""
    if value < 1:
        return 0
    unit = 10 ** int(math.log10(value))
    return int(value / unit) * unit


def _map(figure: Figure, axes: Axes, held: np.ndarray, malicious: np.ndarray) -> None:
    """The share of each class in a client's samples as a shade."""
    shares = held / held.sum(1, keepdims=True)
    image = axes.imshow(shares.T, cmap=SHARES, vmin=0, vmax=1, aspect="auto", interpolation="none")
    if malicious.any():  # where bars are too low to tell, a strip above the map does
        column = 72 * axes.bbox.width / figure.dpi / len(held)  # in points
        strip: dict[str, Any] = {"transform": axes.get_xaxis_transform(), "clip_on": False}
        axes.vlines(np.flatnonzero(malicious), 1.01, 1.03, DARK, lw=max(column, 0.6), **strip)
    bar = figure.colorbar(image, ax=axes, pad=0.01, aspect=18, format="{x:.0%}")
    bar.set_label("share of the client's samples", fontsize=8)
    bar.ax.tick_params(labelsize=8)
    bar.outline.set_visible(False)


def _name_classes(axes: Axes, names: list[str]) -> None:
    axes.set(ylabel="class", ylim=(-0.6, len(names) - 0.4))
    if len(names) <= 40:
        axes.set_yticks(
            range(len(names)), [name[:20] for name in names], fontsize=8, parse_math=False
        )
    else:
        axes.yaxis.set_major_locator(MaxNLocator(12, integer=True))


@contextmanager
def _any_letters() -> Iterator[None]:
    """No warnings of letters that the font has not: class names are the user's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _save(figure: Figure, form: str) -> bytes:
    buffer = io.BytesIO()
    with _any_letters():
        figure.savefig(buffer, format=form)
    return buffer.getvalue()
