"""The errors: what somebody could have written in the place of what is there."""

from __future__ import annotations

from typing import NamedTuple


class Error(NamedTuple):
    name: str  # what is wrong, in a few words
    old: str  # text that is there exactly once in flamejax/,
    new: str  # and what stands there instead
    tests: str  # arguments of pytest: who should see it


FIGURES = "tests/test_figures.py"

PLANTED = [
    # errors that figures compared with themselves do not show
    Error(
        "the best round is chosen on the test split",
        "models, losses = evaluation.selection.accuracy, evaluation.selection.loss",
        "models, losses = evaluation.test.accuracy, evaluation.test.loss",
        f"{FIGURES} -k best_round",
    ),
    Error(
        "the summary's best round is the last row",
        "best = {key: by_round[self.best[0]].get(key) for key in keys}",
        "best = {key: self.rows[-1].get(key) for key in keys}",
        f"{FIGURES} -k best_round",
    ),
    Error(
        "the clients' best figures are the last round's",
        'arrays["malicious"] = federation.malicious\n'
        '        found = {"last": self.last, "best": self.best and self.best[1]}',
        'arrays["malicious"] = federation.malicious\n'
        '        found = {"last": self.last, "best": self.best and self.last}',
        f"{FIGURES} -k best_figures",
    ),
    Error(
        "hm_is_global says the opposite",
        "spread(evaluation.picks_global) == 1",
        "spread(evaluation.picks_global) == 0",
        f"{FIGURES} -k last_figures",
    ),
    Error(
        "validation and test change places in the split",
        "np.rint(held * validation)",
        "np.rint(held * (1 - validation))",
        f"{FIGURES} -k held_out",
    ),
    Error(
        "a client that is not finite keeps its weight in the mean",
        "weight = jnp.where(ok, setting.weight[number], 0)",
        "weight = setting.weight[number]",
        f"{FIGURES} -k no_weight",
    ),
    Error(
        "a device without clients believes that nobody was heard",
        "return mean, None, lax.psum(jnp.sum(weights), AXIS) > 0",
        "return mean, None, jnp.sum(weights) > 0",
        f"{FIGURES} -k one_message",
    ),
    Error(
        "evaluation does not personalize",
        "            if method.personalize:\n                shard = make_shard",
        "            if method.personalize and False:\n                shard = make_shard",
        f"{FIGURES} -k fitted",
    ),
    Error(
        "a partial batch counts as a whole one in the training loss",
        "Info(info.loss + samples * loss,",
        "Info(info.loss + len(batch.weight) * loss,",
        f"{FIGURES} -k f_alone",
    ),
    Error(
        "the proximal term is part of the training loss",
        "        loss, grads = loss_and_grad(x, batch)\n        return loss, jax.tree.map(\n",
        "        loss, grads = loss_and_grad(x, batch)\n"
        "        away = jax.tree.map(lambda x, c: ((x - c) ** 2).sum(), x, center)\n"
        "        loss = loss + strength / 2 * sum(jax.tree.leaves(away))\n"
        "        return loss, jax.tree.map(\n",
        f"{FIGURES} -k f_alone",
    ),
    Error(
        "the tolerance of the local solver is epsilon / alpha",
        "tolerance = epsilon / alpha(shard) ** 2",
        "tolerance = epsilon / alpha(shard)",
        f"{FIGURES} -k tolerance",
    ),
    Error(
        "all runs of a pack are told the first one's smoothness",
        "                smoothness_of(config, network, federation)\n",
        "                smoothness_of(configs[0], network, found[0])\n",
        f"{FIGURES} -k smoothness",
    ),
    Error(
        "the suspects of a selection are rounded down",
        "malicious=-(-malicious * meeting // federation.clients)",
        "malicious=malicious * meeting // federation.clients",
        f"{FIGURES} -k attackers",
    ),
    Error(
        "the oracle is the better of two means",
        'np.maximum(models["pm"], models["gm"]).mean()',
        'max(models["pm"].mean(), models["gm"].mean())',
        f"{FIGURES} -k oracle",
    ),
    Error(
        "the worst tenth is truncated",
        "tail = max(1, round(0.1 * len(accuracy)))",
        "tail = max(1, int(0.1 * len(accuracy)))",
        f"{FIGURES} -k tenth",
    ),
    Error(
        "the proximal term in the subspace is part of the training loss",
        "return loss, tree.add(grads, tree.scale(hyper.lam, pull(projection, x, w)))",
        "away = project(projection, x) - w\n"
        "        loss = loss + hyper.lam / 2 * jnp.sum(away**2)\n"
        "        return loss, tree.add(grads, tree.scale(hyper.lam, pull(projection, x, w)))",
        f"{FIGURES} -k f_alone",
    ),
    Error(
        "the rounds of a pack measure all runs with the first one's smoothness",
        "settings_of(config, plan.rules, federation, layout, curvature)",
        "settings_of(config, plan.rules, federation, layout, smoothness[0])",
        f"{FIGURES} -k smoothness",
    ),
    # the engine
    Error(
        "every round has the same randomness",
        "key = jax.random.fold_in(setting.key, state.round)",
        "key = jax.random.fold_in(setting.key, 0)",
        "tests/test_flame.py",
    ),
    Error(
        "the messages of other devices are not added",
        "summed, weight = total((heard.total, heard.weight))",
        "summed, weight = heard.total, heard.weight",
        "tests/test_flame.py",
    ),
    Error(
        "what an attacker sent is forgotten, and the message before stays",
        "after = Client(new, message if rules.keeps_messages else None)",
        "after = Client(new, client.sent if rules.keeps_messages else None)",
        "tests/test_attacks.py -k flame",
    ),
    Error(
        "guests' states do not travel back",
        "return send_back(store, trips) if guests else store, heard, log",
        "return store, heard, log",
        "tests/test_flame.py tests/test_engine.py",
    ),
    Error(
        "malicious clients are in the training loss",
        "counts = (ok & ~malicious).astype(info.loss.dtype)",
        "counts = ok.astype(info.loss.dtype)",
        f"{FIGURES} -k no_weight",
    ),
    Error(
        "bytes down are those of all that the server keeps",
        "bytes_down=tree.nbytes(broadcast)",
        "bytes_down=tree.nbytes(state.server)",
        "tests/test_traffic.py",
    ),
    Error(
        "rounds do not stop for a checkpoint",
        "stops = [config.eval_every, *([every] if isinstance(every, int) else [])]",
        "stops = [config.eval_every]",
        "tests/test_checkpoints.py -k written",
    ),
    Error(
        "a checkpoint of a pack has the first run's clients in all of them",
        "parts = [jax.tree.map(lambda x: x[run], part)",
        "parts = [jax.tree.map(lambda x: x[0], part)",
        "tests/test_checkpoints.py -k pack",
    ),
    Error(
        "all runs of a pack start at the same model",
        "jnp.stack([key for key, _ in told])",
        "jnp.stack([told[0][0] for _ in told])",
        "tests/test_pack.py",
    ),
    Error(
        "who was in the window before comes with a stale state",
        "if self._last:  # who was",
        "if self._last and not self._kept and False:  # who was",
        "tests/test_store.py",
    ),
    Error(
        "the largest inexactness is that of one device",
        "(lax.pmax(jnp.max(x), AXIS) for x in largest)",
        "(jnp.max(x) for x in largest)",
        "tests/test_lagrangian.py",
    ),
    # local training and methods
    Error(
        "a partial last batch is left out",
        "return (shard.samples + size - 1) // size",
        "return jnp.maximum(shard.samples // size, 1)",
        "tests/test_flame.py",
    ),
    Error(
        "momentum is forgotten after every step",
        "params, memory = update(optimizer, grads, params, memory)\n"
        "        return params, memory, count(info, loss, batch)",
        "params, _ = update(optimizer, grads, params, memory)\n"
        "        return params, memory, count(info, loss, batch)",
        "tests/test_flame.py",
    ),
    Error(
        "w_i is made with the new dual",
        "x * (old - w_i)) / (x + hyper.rho)",
        "x * (new - w_i)) / (x + hyper.rho)",
        "tests/test_flame.py",
    ),
    Error(
        "ditto's personalized track is pushed away from w",
        "pulled = gradient(model, hyper, hyper.lam, w)",
        "pulled = gradient(model, hyper, -hyper.lam, w)",
        "tests/test_baselines.py -k ditto",
    ),
    Error(
        "pfedme's beta is on the other side",
        "(1 - hyper.beta) * w + hyper.beta * mean",
        "hyper.beta * w + (1 - hyper.beta) * mean",
        "tests/test_baselines.py -k pfedme",
    ),
    Error(
        "per_fedavg takes the outer batch again as the next inner one",
        "2 * number + j, settings.batch",
        "number + j, settings.batch",
        "tests/test_baselines.py -k per_fedavg",
    ),
    Error(
        "fedadmm's message lacks its dual",
        "lambda theta, pi: theta + pi / hyper.rho",
        "lambda theta, pi: theta + 0 * pi",
        "tests/test_baselines.py -k fedadmm",
    ),
    # evaluation and history
    Error(
        "models are evaluated on training samples",
        "position = counts[TRAIN] + jnp.minimum(place, total - 1)",
        "position = jnp.minimum(place, total - 1)",
        "tests/test_evaluate.py",
    ),
    Error(
        "dropout at evaluation",
        "outputs = [model.apply(params, x) for params in models]",
        "run = model.train or (lambda params, x, key: model.apply(params, x))\n"
        "                outputs = [run(params, x, jax.random.key(0)) for params in models]",
        f"{FIGURES} -k last_figures",
    ),
    Error(
        "the variance over clients is that of a sample",
        '"accuracy_var": accuracy.var(),',
        '"accuracy_var": accuracy.var(ddof=1),',
        "tests/test_evaluate.py",
    ),
    Error(
        "of two models that are equally accurate the one with more loss is taken",
        "(~(a_gm < a_pm) & (l_gm < l_pm))",
        "(~(a_gm < a_pm) & (l_gm > l_pm))",
        f"{FIGURES} -k last_figures",
    ),
    Error(
        "the training loss is that of the first round of a call",
        "self._loss = float(log.loss[-1] / log.samples[-1])",
        "self._loss = float(log.loss[0] / log.samples[0])",
        f"{FIGURES} -k training_loss",
    ),
    Error(
        "what a row says of the selection split is of the test split",
        "for figure, models in evaluation.selection._asdict().items()\n        }",
        "for figure, models in evaluation.test._asdict().items()\n        }",
        f"{FIGURES} -k selection_split",
    ),
    Error(
        "a resumed run has the last figures for the best ones",
        '(plain["best"], evaluation("best"))',
        '(plain["best"], evaluation("last"))',
        "tests/test_checkpoints.py -k goes_on",
    ),
    Error(
        "bytes of one round too few",
        '"up": self.rounds * self.up,',
        '"up": max(0, self.rounds - 1) * self.up,',
        "tests/test_traffic.py",
    ),
    Error(
        "bytes are those of all clients, not of the selected",
        "self.up = facts.selected * facts.bytes_up",
        "self.up = len(facts.evaluated) * facts.bytes_up",
        "tests/test_traffic.py",
    ),
    # data and partitions
    Error(
        "the noise has the variance for its standard deviation",
        "noise=np.sqrt(np.append(variance, 0.0))",
        "noise=np.append(variance, 0.0)",
        "tests/test_federation.py",
    ),
    Error(
        "pixels are normalised with a mean of the wrong scale",
        "(x - 255 * data.mean)",
        "(x - data.mean)",
        "tests/test_federation.py",
    ),
    Error(
        "malicious clients are evaluated",
        "benign = np.flatnonzero(~federation.malicious)",
        "benign = np.arange(federation.clients)",
        "tests/test_attacks.py -k 'not equals'",
    ),
    Error(
        "the Dirichlet law has its concentration shared among the clients",
        "rng.dirichlet(np.full(clients, beta))",
        "rng.dirichlet(np.full(clients, beta / clients))",
        "tests/test_partitions.py",
    ),
    Error(
        "clients have the last sample of the client before, too",
        "return np.split(order[: sizes.sum()], np.cumsum(sizes)[:-1])",
        "ends = zip(np.cumsum(sizes) - sizes, np.cumsum(sizes), strict=True)\n"
        "    return [order[max(0, first - 1) : end] for first, end in ends]",
        "tests/test_partitions.py",
    ),
    Error(
        "the second half of a hybrid shares out all samples",
        "np.split(order, [len(labels) * first // clients])",
        "(order[: len(labels) * first // clients], order)",
        "tests/test_partitions.py",
    ),
    # attacks and aggregators
    Error(
        "a flipped sign has gamma2 for its standard deviation",
        "p = jnp.sqrt(hyper.gamma2) * jax.random.normal(key)\n            return tree.scale",
        "p = hyper.gamma2 * jax.random.normal(key)\n            return tree.scale",
        "tests/test_attacks.py -k sign_flip",
    ),
    Error(
        "alie needs one supporter less",
        "supporters = jnp.floor(n / 2 + 1) - a",
        "supporters = jnp.floor(n / 2) - a",
        "tests/test_attacks.py -k alie",
    ),
    Error(
        "the trimmed mean trims one message less",
        "jnp.minimum(suspects, (present - 1) // 2)",
        "jnp.minimum(max(suspects - 1, 0), (present - 1) // 2)",
        "tests/test_aggregators.py",
    ),
    Error(
        "the weighted mean goes by all samples, not those for training",
        "rules.aggregator.weight(federation.counts[:, TRAIN].astype(float))",
        "rules.aggregator.weight(federation.counts.sum(1).astype(float))",
        "tests/test_attacks.py -k weighted",
    ),
    # checkpoints
    Error(
        "a resumed run takes the randomness of the round after",
        "State(round=np.int32(checkpoint.round), clients=None",
        "State(round=np.int32(checkpoint.round + 1), clients=None",
        "tests/test_checkpoints.py -k goes_on",
    ),
    # sweeps and comparisons
    Error(
        "deviations over seeds are those of a population",
        "float(np.std(values, ddof=1))",
        "float(np.std(values))",
        "tests/test_sweep.py tests/test_compare.py",
    ),
    Error(
        "rates and points are chosen by the test split",
        'row.get(f"selection_{figure}_{model}_mean")',
        'row.get(f"{model}_{figure}_mean")',
        "tests/test_comparison.py",
    ),
    Error(
        "curves show the rate that was tried first",
        "_curves([record for _, record in groups[chosen]]",
        "_curves([record for _, record in groups[0]]",
        f"{FIGURES} -k curves",
    ),
    # theory
    Error(
        "the penalty of the Lagrangian lacks its half",
        "tree.dot(new.pi, away) + rho / 2 * tree.squared_norm(away)",
        "tree.dot(new.pi, away) + rho * tree.squared_norm(away)",
        "tests/test_lagrangian.py",
    ),
    Error(
        "the estimated smoothness lacks the weight decay",
        "lambda g, x: g + weight_decay * x, grads, at",
        "lambda g, x: g + 0 * x, grads, at",
        "tests/test_smoothness.py",
    ),
    Error(
        "the convergence conditions are those of other weights",
        'getattr(self.config.method, "alpha", "uniform") == "uniform"',
        'getattr(self.config.method, "alpha", "uniform") != "uniform"',
        f"{FIGURES} -k conditions_hold",
    ),
    Error(
        "the descent of Lemma 1 is twice as steep",
        "return min(point.rho / 2, a.right - a.left)",
        "return min(point.rho, a.right - a.left)",
        "tests/test_conditions.py",
    ),
]
