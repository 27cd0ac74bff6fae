"""Records of runs that were not, for what is made of them."""

from flamejax import grid as grids
from flamejax import swept
from flamejax.comparison import Comparison, gather
from flamejax.plan import plan
from flamejax.records import Record
from flamejax.swept import Sweep

FIGURES = ("accuracy", "accuracy_var", "loss", "loss_var", "worst10", "best10")


def pretend(config, test=0.5, chosen=0.5, status="finished") -> Record:
    """A record of a run with this hybrid accuracy on test, and on the split that chooses."""
    models = {
        model: {**dict.fromkeys(FIGURES, 0.1), "accuracy": test} for model in ("pm", "gm", "hm")
    }
    if config.method.name == "local":
        models |= {"gm": None, "hm": None}
    selection = {"on": config.selection.on, "accuracy": {"pm": 0.0, "gm": 0.0, "hm": chosen}}
    row = {"round": config.rounds, "train_loss": 1.0, **models, "selection": selection}
    clients = config.partition.clients
    last = {key: value for key, value in row.items() if key != "selection"}
    summary = {"status": status, "data": config.data.name, "model": "mlr", "clients": clients}
    benign = clients - config.malicious
    summary |= {"clients_per_round": clients, "benign_clients": benign, "evaluated_clients": benign}
    summary |= {"selection": config.selection.on, "last": last, "rounds": config.rounds}
    each = {"local": 0, "lp_proj": 40}.get(config.method.name, 31_400)  # bytes, of one client
    summary |= dict.fromkeys(("bytes_up", "bytes_down"), config.rounds * clients * each)
    return Record(config.to_toml(), summary, [row])


def in_losses(record: Record, chosen: float) -> Record:
    """As a regression leaves it, without accuracies; chosen: loss on the split that chooses."""

    def without(figures):
        return {k: v for k, v in figures.items() if not k.startswith(("accuracy", "worst", "best"))}

    (row,) = record.rows
    row = {**row, **{m: row[m] and without(row[m]) for m in ("pm", "gm", "hm")}}
    row["selection"] = {"on": "validation", "loss": dict.fromkeys(("pm", "gm", "hm"), chosen)}
    last = {key: value for key, value in row.items() if key != "selection"}
    return record._replace(summary={**record.summary, "last": last}, rows=[row])


def imagine(methods, figures, seeds="0,1", rates=None, **changes) -> Comparison:
    """A comparison of runs that were not; figures: (label, rate, seed) -> keywords of `pretend`."""
    _, runs = plan(None, changes, methods, seeds, rates)
    found = [pretend(run.config, **figures(run.label, run.rate, run.config.seed)) for run in runs]
    return gather(runs, found)


def imagine_sweep(grid, figures, seeds="0,1", **changes) -> Sweep:
    """A sweep of runs that were not; figures: (point, seed) -> keywords of `pretend`."""
    axes, runs = grids.plan(None, changes, grid, seeds)
    found = [pretend(run.config, **figures(run.point, run.config.seed)) for run in runs]
    return swept.gather(axes, runs, found, [0] * len(runs))
