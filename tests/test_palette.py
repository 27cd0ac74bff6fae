"""Colours that stay apart, lines that mean one thing, and files that are equal."""

from itertools import combinations

import numpy as np
import pytest
from matplotlib.colors import rgb_to_hsv, to_rgb
from matplotlib.figure import Figure

from flamejax import registry
from flamejax.report.palette import COLORS, LINES, Style, color, curve, save, shades, styles

# What linear RGB looks like to those who lack one kind of cone (Machado, Oliveira and Fernandes,
# 2009, severity 1), and to those who lack none.
EYES = {
    "normal": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
XYZ = np.array([[0.4125, 0.3576, 0.1804], [0.2127, 0.7152, 0.0722], [0.0193, 0.1192, 0.9503]])


def linear(shown) -> np.ndarray:
    rgb = np.array(to_rgb(shown))
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def lab(light: np.ndarray) -> np.ndarray:
    """Linear RGB -> CIE L*a*b*, where 2.3 is a just noticeable distance."""
    relative = XYZ @ light.clip(0, 1) / XYZ.sum(1)
    x, y, z = np.where(
        relative > 216 / 24389, np.cbrt(relative), (24389 / 27 * relative + 16) / 116
    )
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("eyes", EYES)
def test_colours_stay_apart(eyes):
    def least(methods):
        seen = [lab(EYES[eyes] @ linear(COLORS[method])) for method in methods]
        return min(np.linalg.norm(a - b) for a, b in combinations(seen, 2))

    assert least(COLORS) > 14
    assert least(["flame", "pfedme", "ditto", "fedavg"]) > 24  # those of the paper


def test_colours_are_seen_on_white():
    for shown in COLORS.values():
        luminance = XYZ[1] @ linear(shown)
        assert 1.05 / (luminance + 0.05) >= 3  # WCAG's contrast for graphics


def test_a_method_keeps_its_hue():
    def colors(*methods):
        return [style.color for style in styles([{"method": method} for method in methods])]

    alone, first, second, third = *colors("flame"), *colors("ditto", "flame", "flame")
    hue = [rgb_to_hsv(color)[0] for color in (alone, second, third)]
    assert alone == second != third != first
    np.testing.assert_allclose(alone, to_rgb(color("flame")))
    np.testing.assert_allclose(hue, hue[0], atol=1e-6)
    assert len(set(colors("mine", "yours", *registry.names("methods")))) == 2 + len(
        registry.names("methods")
    )


def test_shades_go_from_light_to_dark():
    for hue in COLORS.values():
        light = [lab(linear(shade[:3]))[0] for shade in shades(hue, 5)]
        assert (np.diff(light) < -2.3).all()


def test_the_band_is_a_sample_standard_deviation_and_one_seed_has_none():
    axes = Figure().subplots()
    curve(axes, np.arange(3), np.array([[1.0, 2, 3], [3.0, 2, 1]]), "gm", Style("red", ""))
    (line,), (band,) = axes.lines, axes.collections
    assert line.get_linestyle() == LINES["gm"] == "--"
    np.testing.assert_array_equal(line.get_ydata(), [2, 2, 2])
    heights = band.get_paths()[0].vertices[:, 1]
    np.testing.assert_allclose([heights.min(), heights.max()], [2 - 2**0.5, 2 + 2**0.5])
    alone = Figure().subplots()
    curve(alone, np.arange(3), np.array([[1.0, 2, 3]]), "pm", Style("red", ""))
    assert not alone.collections


def test_equal_pictures_are_equal_files(tmp_path):
    def draw(figure, end=3):
        axes = figure.subplots()
        axes.plot([1, 2, end], "o--", clip_on=True)
        axes.fill_between([0, 1, 2], 1, 2, alpha=0.1)
        axes.set_title("λ and ±")
        return figure

    first, again = (save(draw, tmp_path / name) for name in ("v1.5", "again"))
    assert [path.name for path in first] == ["v1.5.png", "v1.5.svg", "v1.5.pdf"]
    other = save(lambda figure: draw(figure, 4), tmp_path / "other")
    for one, same, different in zip(first, again, other, strict=True):
        assert one.read_bytes() == same.read_bytes() != different.read_bytes()
    marks = [path.read_bytes()[:5] for path in first]
    assert marks == [b"\x89PNG\r", b"<?xml", b"%PDF-"]
    assert not any(b"CreationDate" in path.read_bytes() for path in first)
