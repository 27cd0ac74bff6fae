"""A table of results in LaTeX."""

from __future__ import annotations

from flamejax.report.sheet import Sheet

SPECIAL = {c: f"\\{c}" for c in "&%$#_{}"} | {"\\": r"\textbackslash{}", "±": r"$\pm$"}


def latex(sheet: Sheet) -> str:
    """A booktabs table, the best in bold."""
    lines = [
        " & ".join(rf"\textbf{{{_plain(text)}}}" if best else _plain(text) for text, best in row)
        + r" \\"
        for row in [[(head, False) for head in [*sheet.names, *sheet.headings]], *sheet.rows]
    ]
    columns = "l" * len(sheet.names) + "r" * len(sheet.headings)
    body = [lines[0], r"\midrule", *lines[1:]]
    begin = [r"\begin{table}", rf"\caption{{{_plain(sheet.title)}}}"]
    begin += [rf"\begin{{tabular}}{{{columns}}}", r"\toprule"]
    return "\n".join([*begin, *body, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])


def _plain(text: str) -> str:
    return "".join(SPECIAL.get(c, c) for c in text)
