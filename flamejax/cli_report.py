"""The command `flamejax report`: what is in results folders, on one page."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from flamejax.arguments import DONE


def add(commands: Any) -> None:
    """The parser of this command."""
    report = commands.add_parser(
        "report",
        help="results folders as one HTML page, with tables and figures",
        description="Read the folders of runs, comparisons, sweeps and experiments, or folders "
        "that hold several of them, and write one page that needs nothing but itself, the same "
        "tables as Markdown, CSV and LaTeX, and the figures as PNG, SVG and PDF.",
    )
    report.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="results")
    report.add_argument(
        "--out",
        type=Path,
        metavar="DIR|FILE.html",
        help="where to; an old report is replaced; default: report in DIR, or here if there are "
        "several",
    )
    report.add_argument("--title", metavar="TEXT", help="of the page; default: what was found")
    report.set_defaults(action=report_command)


def report_command(options: argparse.Namespace) -> int:
    from flamejax.reporter import write_report

    print(f"Report: {write_report(options.folders, out=options.out, title=options.title)}")
    return DONE
