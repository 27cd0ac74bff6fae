"""The closed forms of federated linear regression on random parameter sets, beside the engine.

    python experiments/theory/regression_sets.py [--sets 20] [--draws 200000] [--out FOLDER]

Writes regression.json after every set, and goes on with it when it is there; regression.md at the
end. The rule for judging was fixed beforehand: a comparison beyond 3 standard errors, as chance
alone gives in 0.27 % of them, is repeated with four times as many fresh draws.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from flamejax.records import environment, write
from flamejax.theory import monte_carlo, printed, regression, study

HERE = Path(__file__).parent
SEED = 20240607  # of the parameter sets
MORE = 4  # times as many draws, where a comparison is repeated
COLUMNS = ["figure", "attack", "method", "model", "q", "closed", "measured", "error", "z"]
COLUMNS += ["printed", "printed_z"]
NORMAL = {1: 0.6827, 2: 0.9545, 3: 0.9973}


def settings(number: int) -> dict[str, Any]:
    """Parameter set `number`, as nested settings of a config."""
    rng = np.random.default_rng([SEED, number])

    def between(low: float, high: float) -> float:
        """Evenly on a logarithmic scale."""
        return float(f"{np.exp(rng.uniform(np.log(low), np.log(high))):.3g}")

    clients = int(rng.integers(3, 9))
    malicious = int(rng.integers(1, clients - 1))  # two or more are benign
    features = int(rng.integers(1, 5))
    samples = features + int(rng.integers(1, 5))
    lam = between(0.1, 10)
    return {
        "seed": int(rng.integers(2**32)),
        "data": {
            "features": features,
            "samples": samples,
            "scale": between(0.3, 3),
            "noise": between(0.2, 3),
            "spread": between(0.2, 2),
        },
        "partition": {"clients": clients},
        "method": {"lam": lam, "rho": float(f"{lam / clients * between(0.1, 10):.3g}")},
        "attack": {"fraction": malicious / clients, "gamma2": between(0.05, 10)},
    }


def carry_out(number: int, draws: int) -> dict[str, Any]:
    """All comparisons of one set, and those that were repeated."""
    started = time.perf_counter()
    lab = study.set_up(study.configure(settings(number), {}), draws)
    rows = []
    for method in study.METHODS:
        for attack in study.ATTACKS:
            rows += study.compare(lab, method, attack, study.simulate(lab, method, attack))
    again = [study.repeat(lab, row, MORE) for row in rows if abs(row["z"]) > 3]
    return {
        "number": number,
        "settings": settings(number),
        "q": lab.q,
        "rows": [brief(row) for row in rows],
        "again": [brief(row) for row in again],
        "seconds": round(time.perf_counter() - started, 1),
    }


def brief(row: dict[str, Any]) -> list[Any]:
    """The values of a row, in few digits."""
    values = [row[column] for column in COLUMNS]
    return [float(f"{x:.7g}") if isinstance(x, float) else x for x in values]


def counterexample(draws: int) -> dict[str, Any]:
    """Clients to whom FLAME is less fair, by formula and by the engine."""
    wanted = regression.counterexample()
    clients, features = wanted.theta.shape
    config = study.configure(
        {
            "data": {"features": features, "samples": wanted.samples, "scale": wanted.scale,
                     "noise": wanted.noise},
            "partition": {"clients": clients},
            "method": {"lam": wanted.lam, "rho": 0.2},
            "attack": {"fraction": 1 / clients},  # by nobody: the attack is "none" below
        },
        {},
    )  # fmt: skip
    federation, problem = monte_carlo.clients_of(config)
    moved = monte_carlo.relocate(federation, problem, wanted.theta)
    qs = [regression.q_of(wanted.lam, 0.2, clients, wanted.scale), 1.0]
    rhos = [regression.rho_of(wanted.lam, q, clients, wanted.scale) for q in qs]
    losses = monte_carlo.compile_draws(config, "flame", moved, rhos, draws)("none", 0)
    rows = []
    for k, q in enumerate(qs):
        for j, model in enumerate(regression.MODELS):
            closed = regression.loss_variance(wanted, "none", q, model)
            found = monte_carlo.loss_variance(losses[:, k, :, j])
            z = float(study.score(found, closed))
            rows.append({"q": q, "model": model, "closed": closed, **found._asdict(), "z": z})
    return {"theta": wanted.theta.tolist(), "rows": rows}


def report(found: dict[str, Any]) -> str:
    sets = found["sets"]
    rows = [dict(zip(COLUMNS, row, strict=True)) | {"set": s["number"]} for s in sets
            for row in s["rows"]]  # fmt: skip
    again = [dict(zip(COLUMNS, row, strict=True)) | {"set": s["number"]} for s in sets
             for row in s["again"]]  # fmt: skip
    versions = ", ".join(f"{k} {v}" for k, v in found["environment"]["versions"].items())
    lines = [
        "# Federated linear regression: closed forms beside the engine",
        "",
        f"`{found['command']}`: {len(sets)} random parameter sets, {found['draws']:,} draws of the "
        f"engine's own round for each of 12 pairs of method and attack, "
        f"{sum(s['seconds'] for s in sets) / 60:.0f} minutes on {found['environment']['cores']} "
        f"shared cores. {versions}.",
        "",
        "z is the difference of estimate and formula in standard errors. Figures of the same set, "
        "method and attack come from the same draws and are not independent.",
        "",
        "## The corrected formulas",
        "",
        "| figure | comparisons | within 1 SE | within 2 SE | within 3 SE | largest \\|z\\| |",
        "|---|---|---|---|---|---|",
        *[coverage(name, [r for r in rows if r["figure"] == name]) for name in figures(rows)],
        coverage("all", rows),
        "| normal law | | " + " | ".join(f"{100 * p:.2f} %" for p in NORMAL.values()) + " | |",
        "",
        *beyond(rows, again),
        "",
        "## The formulas as printed",
        "",
        "| figure | attack | model | what is wrong | sets | outside 3 SE | largest \\|z\\| |",
        "|---|---|---|---|---|---|---|",
        *[wrong(key, rows) for key in printed.ERRORS],
        "",
        *less_fair(found["counterexample"]),
        "",
        "## The parameter sets",
        "",
        *parameter_sets(sets),
    ]
    return "\n".join(lines) + "\n"


def figures(rows: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["figure"] for row in rows))


def coverage(name: str, rows: list[dict[str, Any]]) -> str:
    z = np.abs([row["z"] for row in rows])
    shares = " | ".join(f"{100 * np.mean(z <= k):.2f} %" for k in NORMAL)
    return f"| {name} | {len(rows)} | {shares} | {z.max():.2f} |"


def beyond(rows: list[dict[str, Any]], again: list[dict[str, Any]]) -> list[str]:
    """What lay beyond 3 standard errors, and what became of it."""
    doubtful = [row for row in rows if abs(row["z"]) > 3]
    chance = (1 - NORMAL[3]) * len(rows)
    lines = [
        f"Beyond 3 SE: {len(doubtful)} of {len(rows)}, where chance alone gives about "
        f"{chance:.1f}. Each was repeated with {MORE} times as many fresh draws."
    ]
    if not doubtful:
        return lines
    lines += ["", "| set | figure | attack | method | model | z | z of the repetition |"]
    lines.append("|---|---|---|---|---|---|---|")
    for first, second in zip(doubtful, again, strict=True):
        where = [first[c] for c in ("set", "figure", "attack", "method", "model")]
        lines.append(f"| {' | '.join(map(str, where))} | {first['z']:.2f} | {second['z']:.2f} |")
    return lines


def wrong(key: tuple[str, str, str], rows: list[dict[str, Any]]) -> str:
    """In how many sets a printed formula is refuted: by any of the methods it is for."""
    mine = [r for r in rows if key == (r["figure"], r["attack"], r["model"])]
    mine = [r for r in mine if r["printed_z"] is not None]
    sets = {r["set"] for r in mine}
    refuted = {r["set"] for r in mine if abs(r["printed_z"]) > 3}
    largest = max(abs(r["printed_z"]) for r in mine)
    what = " | ".join((*key, printed.ERRORS[key]))
    return f"| {what} | {len(sets)} | {len(refuted)} | {largest:,.0f} |"


def less_fair(found: dict[str, Any]) -> list[str]:
    lines = [
        "## Fairness: a counterexample",
        "",
        f"Clients with true parameters {found['theta']}: the variance of their losses is larger "
        "with FLAME's q < 1 than with q = 1, which is pFedMe and Ditto.",
        "",
        "| model | q | closed form | simulated | SE | z |",
        "|---|---|---|---|---|---|",
    ]
    for row in found["rows"]:
        numbers = [f"{row[c]:.5g}" for c in ("q", "closed", "value")]
        lines.append(
            f"| {row['model'].upper()} | {' | '.join(numbers)} | {row['error']:.2g} "
            f"| {row['z']:.2f} |"
        )
    return lines


def parameter_sets(sets: list[dict[str, Any]]) -> list[str]:
    lines = ["| set | m | m_a | d | N | b | sigma | spread | lam | rho | q | gamma2 | seconds |"]
    lines.append("|---" * 13 + "|")
    for one in sets:
        of = one["settings"]
        data, clients = of["data"], of["partition"]["clients"]
        values = [one["number"], clients, round(of["attack"]["fraction"] * clients)]
        values += [data[k] for k in ("features", "samples", "scale", "noise", "spread")]
        values += [of["method"]["lam"], of["method"]["rho"], f"{one['q']:.3f}"]
        values += [of["attack"]["gamma2"], one["seconds"]]
        lines.append(f"| {' | '.join(map(str, values))} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sets", type=int, default=20)
    parser.add_argument("--draws", type=int, default=200_000)
    parser.add_argument("--out", type=Path, default=HERE)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "regression.json"
    asked = f"--sets {options.sets} --draws {options.draws}"
    found: dict[str, Any] = {
        "command": f"python experiments/theory/regression_sets.py {asked}",
        "draws": monte_carlo.Size.of(options.draws).draws,
        "columns": COLUMNS,
        "sets": [],
    }
    if path.exists():
        earlier = json.loads(path.read_text())
        if earlier["draws"] == found["draws"]:
            found["sets"] = earlier["sets"][: options.sets]
    for number in range(len(found["sets"]), options.sets):
        found["sets"].append(carry_out(number, options.draws))
        save(path, found)
        done = found["sets"][-1]
        worst = max(abs(row[COLUMNS.index("z")]) for row in done["rows"])
        said = f"largest |z| {worst:.2f}, {len(done['again'])} repeated, {done['seconds']} s"
        print(f"set {number}: {said}", flush=True)
    found["counterexample"] = counterexample(options.draws)
    found["environment"] = environment()
    save(path, found)
    write(options.out / "regression.md", report(found).encode())


def save(path: Path, found: dict[str, Any]) -> None:
    """A line for every set."""
    sets = [json.dumps(one) for one in found["sets"]]
    text = json.dumps({**found, "sets": "SETS"}, indent=1)
    write(path, (text.replace('"SETS"', "[\n" + ",\n".join(sets) + "\n]") + "\n").encode())


if __name__ == "__main__":
    main()
