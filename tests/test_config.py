"""What a config accepts, and that it refuses everything else in one line that names the key."""

import datetime
import math
import tomllib

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flamejax import config as configs
from flamejax import registry
from flamejax.errors import InputError


def refusal(call, *arguments) -> str:
    """The text of the refusal, which is a single line of readable length."""
    with pytest.raises(InputError) as caught:
        call(*arguments)
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    assert len(text) < 200
    return text


def label(value) -> str:
    """What a test is called after one of its values."""
    return (hex(value) if isinstance(value, int) else str(value))[:30]


def nested(key: str, value) -> dict:
    """nested("method.rho", 1) is {"method": {"rho": 1}}."""
    for part in reversed(key.split(".")):
        value = {part: value}
    return value


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("method.rh", "method.rho"),
        ("method.lamda", "method.lam"),
        ("method.learning_rate", "known: alpha, batch"),
        ("round", "'rounds'"),
        ("partition.client", "partition.clients"),
        ("engine.device", "engine.devices"),
        ("participation.clients_per_rounds", "participation.clients_per_round"),
        ("data.", "known: alpha, beta, dir, features"),
    ],
)
def test_unknown_key_is_answered_with_the_nearest(key, meant):
    text = refusal(configs.make, nested(key, 1))
    assert text.startswith(key if not key.endswith(".") else "data.''")
    assert "is not a known key" in text
    assert meant in text


@pytest.mark.parametrize("key", ["x" * 5000, "a\nb", "a b", "rounds ", 1, None], ids=label)
def test_odd_unknown_keys_stay_readable(key):
    assert "is not a known key" in refusal(configs.make, {key: 1})
    assert refusal(configs.make, {"method": {key: 1}}).startswith("method.")


HUGE = 10**5000  # more digits than Python agrees to print

WRONG = {
    "seed": [-1, 2**32, 1.0, "0", None],
    "rounds": ["3", 3.0, True, [3], {"a": 1}, 0, -1, 2**31, HUGE, math.nan],
    "eval_every": [0, "often", datetime.date(2024, 1, 2)],
    "data": [3, [1], "mnist", None, True],
    "data.name": [3, "mnst", "", "x" * 5000, "a\nb", ["mnist"]],
    "data.dir": [3, "x" * 5000, "not\udcffunicode"],
    "data.limit": [0, -5, 1.5, True, "some", [1], {"a": 1}, HUGE],
    "partition": [[], "iid"],
    "partition.name": ["idd", 1],
    "partition.clients": [0, 2.0],
    "partition.beta": [0, -0.5, math.inf, "1"],
    "partition.sigma": [-0.1, math.nan],
    "partition.min_samples": [2],
    "partition.overlap": [1, "true"],
    "partition.held_out": [0, 1, 1.5],
    "model": ["mlp"],
    "model.name": ["mpl", 0],
    "method": [3, "flame", None, ["flame"], "x" * 5000],
    "method.name": ["flam", 3, None, {"a": 1}, ["flame"], "x" * 5000],
    "method.preset": ["papr", 1, None, ["paper"], {"a": 1}, "x" * 5000],
    "method.rho": [-1, 0, -0.1, "x", True, [0.1], {"a": 1}, math.nan, math.inf, HUGE, 1e39],
    "method.lr": ["0.1", 10**400],
    "method.momentum": [1, 1.0, -0.1],
    "method.weight_decay": [-1e-9, 1e300],
    "method.epochs": [0, 1.0, True],
    "method.batch": [0, HUGE],
    "method.prox_center": ["globl", 1, ["local"]],
    "participation.clients_per_round": [0, 11, "al", 2.0],
    "selection.on": ["train", 3],
    "selection.validation": [0, 1],
    "engine": [4],
    "engine.execution": ["pmap", ["map"]],
    "engine.chunk": [-1, "some"],
    "engine.devices": [0, "some", 1.0],
    "engine.precision": ["float16", 32],
}  # fmt: skip


@pytest.mark.parametrize(
    ("key", "value"),
    [(key, value) for key, values in WRONG.items() for value in values],
    ids=label,
)
def test_bad_value_is_refused_under_its_full_key(key, value):
    text = refusal(configs.make, nested(key, value))
    assert text.startswith((f"{key} = ", f"{key} must be "))


def test_unknown_names_are_answered_with_the_nearest():
    for key, near, meant in [
        ("method.name", "flam", "flame"),
        ("partition.name", "dirichle", "dirichlet"),
        ("model.name", "mpl", "ml"),
        ("data.name", "mnist_mni", "mnist_mini"),
        ("method.preset", "publish", "published"),
    ]:
        text = refusal(configs.make, nested(key, near))
        assert f"'{meant}" in text.removeprefix(f"{key} = '{near}'")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"rounds = = 3", "line 1"),
        (b"rounds = 3\nrounds = 4", "overwrite"),
        (b"[data\n", "not valid TOML"),
        (b"just words", "not valid TOML"),
        (b"rounds = 1" + b"0" * 6000, "not valid TOML"),
        (b"x = " + b"[" * 5000, "not valid TOML"),
        (b"[" + b"x" * 5000 + b"]\n[" + b"x" * 5000 + b"]", "not valid TOML"),
        (b"\xff\xfe", "utf-8"),
        (b"name = '\xe9'", "utf-8"),
    ],
    ids=label,
)
def test_broken_file_is_refused(tmp_path, monkeypatch, content, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_bytes(content)
    text = refusal(configs.load, "run.toml")
    assert text.startswith("run.toml: not valid TOML: ")
    assert said in text


@pytest.mark.parametrize(
    ("name", "reason"),
    [("missing.toml", "No such file"), (".", "directory"), ("x" * 150 + "/" * 2 + "y", "No such")],
)
def test_unreadable_file_is_refused(tmp_path, monkeypatch, name, reason):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as caught:
        configs.load(name)
    assert str(caught.value).startswith(f"{name}: cannot read the config: ")
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ("rounds=7", {"rounds": 7}),
        (" rounds = 7 ", {"rounds": 7}),
        ("method.rho=0.5", {"method": {"rho": 0.5}}),
        ("partition.overlap=true", {"partition": {"overlap": True}}),
        ("data.name=mnist", {"data": {"name": "mnist"}}),
        ('data.dir="a b"', {"data": {"dir": "a b"}}),
        ("data.dir=/a/b.c=d", {"data": {"dir": "/a/b.c=d"}}),
        ("data.dir=2024-01-02", {"data": {"dir": "2024-01-02"}}),
        ("data.dir={a}", {"data": {"dir": "{a}"}}),
        ("data.dir=", {"data": {"dir": ""}}),
        ("method.rho=0.5\nrounds=3", {"method": {"rho": "0.5\nrounds=3"}}),
        ("rounds=True", {"rounds": "True"}),
        ("rounds=1" + "0" * 6000, {"rounds": "1" + "0" * 6000}),
        ("a.b.c=[1, 2]", {"a": {"b": {"c": [1, 2]}}}),
    ],
    ids=label,
)
def test_set_parses_toml_or_takes_a_string(assignment, expected):
    values: dict = {}
    configs.override(values, assignment)
    assert values == expected


def test_set_keeps_what_it_does_not_name():
    values = {"rounds": 3, "method": {"rho": 0.5, "lam": 2.0}}
    configs.override(values, "method.rho=0.25")
    assert values == {"rounds": 3, "method": {"rho": 0.25, "lam": 2.0}}


@pytest.mark.parametrize(
    "assignment", ["", "rounds", "=3", ".rounds=3", "method.=1", "method..rho=1", " =1", "x" * 5000]
)
def test_set_without_key_or_value_is_refused(assignment):
    text = refusal(configs.override, {}, assignment)
    assert text.startswith("--set ")
    assert "key.path=value" in text


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("rounds.x=1", "rounds is a value"),
        ("method.rho.x.y=1", "method.rho is a value"),
        ("method.rho." + "x" * 5000 + "=1", "method.rho is a value"),
    ],
)
def test_set_below_a_value_is_refused(assignment, said):
    assert said in refusal(configs.override, {"rounds": 3, "method": {"rho": 0.1}}, assignment)


def test_preset_lies_under_explicit_values():
    default = configs.make({}).method
    assert (default.name, default.preset, default.momentum) == ("flame", "paper", 0.0)
    published = configs.make({"method": {"preset": "published"}}).method
    assert (published.momentum, published.weight_decay) == (0.5, 0.01)
    assert published.prox_center == "global"
    mixed = configs.make({"method": {"preset": "published", "momentum": 0.9, "rho": 2}}).method
    assert (mixed.momentum, mixed.weight_decay) == (0.9, 0.01)
    assert (type(mixed.rho), mixed.rho) == (float, 2.0)  # whole numbers serve as floats


def test_changes_go_table_by_table_and_spare_the_original():
    base = {"rounds": 3, "method": {"rho": 0.5}}
    merged = configs.lay_over(base, {"method": {"lam": 2.0}, "data": {"limit": 9}})
    assert merged == {"rounds": 3, "method": {"rho": 0.5, "lam": 2.0}, "data": {"limit": 9}}
    assert base == {"rounds": 3, "method": {"rho": 0.5}}


def test_another_preset_brings_its_values_to_a_complete_config():
    complete = configs.make({"method": {"lam": 3.0}}).model_dump()
    changed = configs.make(configs.lay_over(complete, {"method": {"preset": "published"}})).method
    assert (changed.momentum, changed.prox_center, changed.lam) == (0.5, "global", 3.0)
    for base in (complete, {"method": {"momentum": 0.9}}):  # the preset they have already
        same = configs.make(configs.lay_over(base, {"method": {"preset": "paper"}}))
        assert same == configs.make(base)


def test_paths_are_recorded_so_that_they_hold_anywhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for written, meant in (("digits", tmp_path / "digits"), ("~/d", tmp_path / "home" / "d")):
        assert configs.make({"data": {"dir": written}}).data.dir == str(meant)
    assert configs.make({}).data.dir == ""


COUNTS = st.integers(1, 2**31 - 1)
POSITIVE = st.floats(0, 3e38, exclude_min=True, exclude_max=True)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


def tables(**keys):
    return st.fixed_dictionaries({}, optional=keys)


CONFIGS = tables(
    seed=st.integers(0, 2**32 - 1),
    rounds=COUNTS,
    data=tables(dir=TEXT, limit=st.just("all") | COUNTS),
    partition=tables(
        name=st.sampled_from(registry.names("partitions")),
        beta=POSITIVE,
        overlap=st.booleans(),
        held_out=st.floats(0, 1, exclude_min=True, exclude_max=True),
    ),
    model=tables(name=st.sampled_from(registry.names("models"))),
    method=tables(
        preset=st.sampled_from(["paper", "published"]),
        rho=POSITIVE,
        lr=POSITIVE | st.integers(1, 10),
        momentum=st.floats(0, 1, exclude_max=True),
        alpha=st.sampled_from(["uniform", "samples"]),
        batch=COUNTS,
    ),
    participation=tables(clients_per_round=st.just("all") | st.integers(1, 10)),
    engine=tables(chunk=st.just("auto") | COUNTS),
)


@pytest.fixture(scope="module")
def config_file(tmp_path_factory):
    return tmp_path_factory.mktemp("config") / "config.toml"


@settings(max_examples=100, deadline=None, derandomize=True)
@given(values=CONFIGS)
@example(values={})
@example(values={"method": {"preset": "published", "momentum": 0.9}})
@example(values={"data": {"dir": 'quo"te\\, \n\r\t\0 and é'}, "method": {"rho": 5e-324}})
def test_written_config_reads_back_equal(config_file, values):
    config = configs.make(values)
    config_file.write_text(config.to_toml(), encoding="utf-8")
    assert configs.make(configs.load(config_file)) == config


def test_different_configs_are_not_equal():
    assert configs.make({}) == configs.make({"rounds": 300})
    assert configs.make({}) != configs.make({"method": {"rho": 0.2}})


ATTACKED = {"attack": {"name": "same_value", "fraction": 0.5, "preset": "published"}}


@pytest.mark.parametrize(
    ("base", "changes", "fraction", "gamma2"),
    [
        (ATTACKED, {}, 0.5, 1e-4),
        (ATTACKED, {"name": "sign_flip"}, 0.5, 1.0),  # the preset stays, and brings its value
        (ATTACKED, {"preset": "paper"}, 0.5, 0.1),
        (ATTACKED, {"name": "gaussian", "gamma2": 0.3}, 0.5, 0.3),
        ({"attack": {"name": "sign_flip", "gamma2": 0.7}}, {"name": "gaussian"}, 0.2, 0.7),
        (ATTACKED, {"name": "label_poison", "fraction": 0.1}, 0.1, 0.1),
    ],
)
@pytest.mark.parametrize("complete", [False, True])
def test_another_attack_keeps_the_fraction_and_what_was_asked_for(
    base, changes, fraction, gamma2, complete
):
    if complete:  # as config.toml of a run has it
        base = configs.make(base).model_dump()
    attack = configs.make(configs.lay_over(base, {"attack": changes})).attack
    assert (attack.fraction, attack.gamma2) == (fraction, pytest.approx(gamma2))


def test_another_aggregator_starts_from_its_defaults():
    base = configs.make({"aggregator": {"name": "centered_clip", "radius": 2.0}}).model_dump()
    clipped = configs.make(configs.lay_over(base, {"aggregator": {"iterations": 7}})).aggregator
    assert (clipped.radius, clipped.iterations) == (2.0, 7)
    other = configs.make(configs.lay_over(base, {"aggregator": {"name": "norm_clip"}})).aggregator
    assert other.radius == "auto"


def test_every_setting_of_attacks_and_aggregators_survives_toml():
    for kind, section in (("attacks", "attack"), ("aggregators", "aggregator")):
        for name in registry.names(kind):
            config = configs.make({section: {"name": name}})
            assert configs.make(tomllib.loads(config.to_toml())) == config
