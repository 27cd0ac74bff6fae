"""A table of results in LaTeX, ready to paste."""

from __future__ import annotations

from flamejax.report.sheet import Sheet

WIDE = 7  # more columns than this take both columns of a page
SIGNS = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        "[": "{[}",  # after a line's end it would open an option
        '"': r"\textquotedbl{}",
        "\u00b1": r"$\pm$",
        "\u2212": "$-$",
        "\u2013": "--",
        "\u2026": r"\ldots{}",
        "\u00b7": r"$\cdot$",
        "\u2605": r"$\star$",
        "\u03bb": r"$\lambda$",
        "\u03c1": r"$\rho$",
        "\u03c3": r"$\sigma$",
        "\u2264": r"$\leq$",
        "\n": " ",
    }
)


def escape(text: str) -> str:
    """
    >>> print(escape("50 % of R&D_1 ± .1"))
    50 \\% of R\\&D\\_1 $\\pm$ .1
    """
    return text.translate(SIGNS)


def latex(sheet: Sheet) -> str:
    """A booktabs table: the title is its caption, the best are bold, the notes stand below."""
    columns = "l" * len(sheet.names) + "r" * len(sheet.headings)
    kind = "table*" if len(columns) > WIDE else "table"
    lines = [
        r"% needs \usepackage{booktabs} and \usepackage[T1]{fontenc}",
        rf"\begin{{{kind}}}[t]",
        r"\centering\small",
        rf"\caption{{{escape(sheet.title)}}}",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        _line([escape(heading) for heading in (*sheet.names, *sheet.headings)]),
        r"\midrule",
        *(_line([_cell(text, best) for text, best in row]) for row in sheet.rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    if sheet.notes:
        lines += [r"\par\smallskip", r"\begin{minipage}{\linewidth}\footnotesize"]
        lines += [escape(note) for note in sheet.notes]
        lines += [r"\end{minipage}"]
    return "\n".join([*lines, rf"\end{{{kind}}}"]) + "\n"


def _line(cells: list[str]) -> str:
    return rf"{' & '.join(cells)} \\"


def _cell(text: str, best: bool) -> str:
    return rf"\textbf{{{escape(text)}}}" if best else escape(text)
