"""The theory's quantities of a round, as each device of the mesh sees it."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array, lax

from flamejax import tree
from flamejax.config import Config
from flamejax.engine.cohort import select
from flamejax.engine.devices import AXIS, total
from flamejax.engine.rounds import Client, Rules, Setting, State, everyone, make_shard
from flamejax.engine.visit import visit
from flamejax.federation import Federation
from flamejax.theory.lagrangian import Measured, Round, Rule, Terms, finish, terms
from flamejax.types import Model

Measure = Callable[[Setting, State, State], Measured]  # setting, state before and after a round


def make_measure(
    config: Config, rules: Rules, model: Model, federation: Federation, width: int
) -> Measure | None:
    """What `record.theory` asks for, if it does: it costs a pass over the training samples of all
    clients, and room for their states before the round."""
    variables, clients = rules.method.admm, federation.clients
    if not config.record.theory or not variables:
        return None
    scheduled = getattr(config.method, "local_solver", None) == "until_epsilon"
    rule = Rule(model, config.record.prox_steps, scheduled)

    def measure(setting: Setting, before: State, after: State) -> Measured:
        chosen = None
        if not rules.everyone_speaks:
            chosen = select(setting.key, before.round, rules.selected, clients)

        def one(both: tuple[Client, Client], number: Array) -> tuple[None, Terms, tuple]:
            shard = make_shard(federation, setting, number)
            old, new = (variables(setting.hyper, client.state, shard) for client in both)
            took_part = jnp.array(True) if chosen is None else jnp.any(chosen == number)
            seen = Round(
                setting.hyper, setting.smoothness, before.server, after.server, took_part, shard
            )
            found, ratio, left = terms(rule, seen, old, new)
            there = number < clients
            return None, found, (jnp.where(there, ratio, 0), jnp.where(there, left, 0))

        both = (before.clients, after.clients)
        _, sums, largest = visit(one, both, everyone(setting), width, clients)
        ratio, left = (lax.pmax(jnp.max(x), AXIS) for x in largest)
        w_moved = tree.squared_norm(tree.subtract(after.server, before.server))
        return finish(total(sums), w_moved, clients, ratio, left)

    return measure
