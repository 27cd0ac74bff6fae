"""How all pictures look: a colour per method, a line per model, and files of a figure."""

from __future__ import annotations

import colorsys
import io
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from flamejax import records

Draw = Callable[[Figure], Figure]

GREY = "#555555"
# A method looks the same in every picture. The colours stay apart for the colour-blind as well:
# tests/test_palette.py measures it.
COLORS = {
    "flame": "#c1440e",
    "pfedme": "#219cd2",
    "ditto": "#397154",
    "fedadmm": "#7b4fa0",
    "fedavg": "#222222",
    "fedprox": "#7c8935",
    "per_fedavg": "#d28201",
    "lp_proj": "#0c4672",
    "flame_lp_proj": "#d556a0",
    "local": "#825831",
}
COLOR = COLORS["flame"]  # of what a picture is about
OTHERS = ("#3f51b5", "#b0006d", "#00796b", "#ef8a17", "#9575cd", "#6d4c41")
MARKERS = "osD^vP*X"
LINES = {"pm": "-", "gm": "--", "hm": ":"}
MODEL_NAMES = {"pm": "PM, personalized", "gm": "GM, global", "hm": "HM, hybrid"}
BAND = "\u00b1 one std over seeds"  # the sample standard deviation
PAPER: dict[
    Any, Any
] = {  # for pictures in the size in which they are printed, 7.2 inches being a page's width
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7.5,
    "legend.title_fontsize": 7.5,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "ytick.minor.size": 1.5,
}
# equal figures give equal files: no dates, no random names, no versions
METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
FILES: dict[Any, Any] = {
    "svg.hashsalt": "flamejax",
    "pdf.fonttype": 42,
}  # fonts that publishers take


class Style(NamedTuple):
    color: Any
    marker: str


def color(method: str, unknown: Sequence[str] = ()) -> str:
    """The colour of a method; `unknown` are the picture's methods that have none of their own."""
    if method in COLORS:
        return COLORS[method]
    return OTHERS[unknown.index(method) % len(OTHERS) if method in unknown else 0]


def styles(rows: Sequence[Mapping[str, Any]]) -> list[Style]:
    """A hue per method; its presets and aggregators differ in shade and marker."""
    unknown = list(dict.fromkeys(row["method"] for row in rows if row["method"] not in COLORS))
    met: Counter[str] = Counter()
    found = []
    for row in rows:
        name = row["method"]
        marker = MARKERS[met[name] % len(MARKERS)]
        found.append(Style(_shade(color(name, unknown), met[name]), marker))
        met[name] += 1
    return found


def _shade(color: str, number: int) -> tuple[float, float, float]:
    """The colour itself, then in turn lighter and darker ones; only lighter ones of black."""
    hue, light, saturation = colorsys.rgb_to_hls(*to_rgb(color))
    step = (number + 1) // 2
    if light < 0.2:
        light += 0.18 * number
    else:
        light = light + step * 0.2 if number % 2 else light * 0.62**step
    return colorsys.hls_to_rgb(hue, min(light, 0.82), saturation)


def shades(color: str, number: int) -> list[Any]:
    """So many shades of a colour from light to dark, for values in order."""
    hue, _, saturation = colorsys.rgb_to_hls(*to_rgb(color))
    lights = np.linspace(0.72, 0.16, number) if number > 1 else [0.4]
    return [colorsys.hls_to_rgb(hue, light, saturation) for light in lights]


def curve(axes: Axes, x: np.ndarray, values: np.ndarray, model: str, style: Style) -> None:
    """The mean over seeds of values [seeds, R], and around it one sample standard deviation."""
    std = values.std(0, ddof=1) if len(values) > 1 else None
    trace(axes, x, values.mean(0), std, model, style)


def trace(
    axes: Axes, x: np.ndarray, mean: np.ndarray, std: np.ndarray | None, model: str, style: Style
) -> None:
    """A line in the way of its model, in a band of so much."""
    unit = mpl.rcParams["font.size"]
    # dashes lie on top: another method's solid line may run where they do
    order = {"pm": 2.2, "gm": 2.4, "hm": 2.3}[model]
    marker = style.marker or ("o" if len(x) < 3 else "")
    look: dict[str, Any] = {"marker": marker, "ms": 0.4 * unit, "markevery": max(1, len(x) // 8)}
    look |= {"lw": 0.15 * unit * (1.3 if model == "hm" else 1), "zorder": order}
    axes.plot(x, mean, LINES[model], color=style.color, **look)
    if std is not None:
        axes.fill_between(x, mean - std, mean + std, color=style.color, alpha=0.15, lw=0, zorder=1)


def plain(axes: Axes) -> None:
    """A light grid, and no frame where there is no scale."""
    axes.grid(alpha=0.25, lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def render(draw: Draw, form: str = "png", dpi: int = 150) -> bytes:
    """A picture as a "png", "svg" or "pdf" file."""
    buffer = io.BytesIO()
    with mpl.rc_context(FILES):
        figure = draw(Figure(dpi=dpi, layout="constrained"))
        figure.savefig(buffer, format=form, metadata=METADATA[form])
    return buffer.getvalue()


def save(draw: Draw, stem: Path) -> list[Path]:
    """The picture as STEM.png, STEM.svg and STEM.pdf; equal pictures are equal files."""
    paths = []
    for form in METADATA:
        paths.append(stem.with_name(f"{stem.name}.{form}"))
        records.write(paths[-1], render(draw, form, dpi=200))
    return paths
