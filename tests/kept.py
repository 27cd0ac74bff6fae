"""Results folders for tests of what reads them: small real ones, and ones of runs that were not."""

import json
import shutil
from pathlib import Path

from flamejax import records
from flamejax.cli import main
from flamejax.plan import plan

from .imagined import pretend

TINY = "rounds=3 eval_every=1 data.limit=400 partition.name=iid partition.clients=4 model.name=mlr"
SETTINGS = [w for word in [*TINY.split(), "engine.devices=1"] for w in ("--set", word)]


def train(folder: Path, theory: bool = True) -> None:
    """A comparison, a sweep and a run of FLAME that may record the theory."""
    methods = "flame,flame:published,local"
    for name, *words in (
        ("compare", "--methods", methods, "--seeds", "0,1"),
        ("sweep", "--grid", "method.lam=0.1,10"),
        ("run", "--set", f"record.theory={str(theory).lower()}"),
    ):
        assert main([name, *SETTINGS, *words, "--quiet", "--out", str(folder / name)]) == 0


def pretended(folder: Path, methods="flame,ditto", **figures) -> Path:
    """A comparison of runs that were not."""
    _, runs = plan(None, {"rounds": 3}, methods, "0,1")
    places = []
    for run in runs:
        record = pretend(run.config, **figures)
        kept = records.Folder(folder / run.path, record.config)
        kept.write_lines("metrics.jsonl", record.rows)
        kept.write_json("environment.json", {"backend": "cpu"})
        kept.write_json("summary.json", record.summary)
        seed = run.config.seed
        place = {"label": run.label, "rate": None, "seed": seed, "folder": str(run.path)}
        places.append(place)
    (folder / "comparison.json").write_text(json.dumps({"runs": places}))
    return folder


def experiment(folder: Path, comparison: Path, **changes) -> Path:
    """An experiment of one group, with the runs of a comparison beside it."""
    folder.mkdir(parents=True)
    shutil.copytree(comparison / "runs", folder.parent / "runs")
    runs = json.loads((comparison / "comparison.json").read_text())["runs"]
    keys = ("label", "seed", "folder")
    group = {"data": "mnist_mini", "partition": "iid", "point": {}}
    group["runs"] = [{key: run[key] for key in keys} for run in runs]
    for run in group["runs"]:
        run["folder"] = f"../{run['folder']}"
    labels = list(dict.fromkeys(run["label"] for run in runs))
    whole = {"name": "table2", "title": "Accuracy by partition", "kind": "table"}
    whole |= {"forms": {"standard": [x for x in labels if ":" not in x]}, "groups": [group]}
    whole["forms"]["published"] = [x for x in labels if x.endswith(":published")]
    whole |= {
        "missing": ["mnist_mini, iid: ditto, seed 0"],
        "about": {"command": "experiment table2"},
    }
    (folder / "experiment.json").write_text(json.dumps({**whole, **changes}))
    return folder
