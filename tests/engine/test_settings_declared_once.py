"""A setting of a run is one field: its check, its flag, its help and its line in docs/settings.md
follow from it."""

from __future__ import annotations

import dataclasses
import runpy
from pathlib import Path

import pytest

import jaxrl_fast as jf
from jaxrl_fast.cli import command as cli
from jaxrl_fast.cli import train as cli_train
from jaxrl_fast.engine import config as engine_config
from jaxrl_fast.engine.config import RunConfig, by_group, run_config
from jaxrl_fast.fields import help_of, setting
from jaxrl_fast.runs.config_json import decode_run, encode_run

ROOT = Path(__file__).resolve().parents[2]


@dataclasses.dataclass(frozen=True)
class Postcards:
    """Postcards from the run."""

    postcard_rows: int | None = setting(None, "log rows between postcards", low=2, high=9,
                                        none="no postcard is written")
    postcard_size: str = setting("small", "size of a postcard", choices=("small", "large"))


@dataclasses.dataclass(frozen=True)
class MoreConfig(Postcards, RunConfig):
    """A `RunConfig` with one group more."""


@pytest.fixture
def more(monkeypatch):
    """The package with `MoreConfig` in place of `RunConfig`; nothing else is told of the new
    settings."""
    for module in (engine_config, cli_train):
        monkeypatch.setattr(module, "RunConfig", MoreConfig)


def test_a_new_field_is_a_flag_with_its_help_and_its_checks(more, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["train", "ppo", "CartPole-v1", "--help-all"]) == 0
    text = " ".join(capsys.readouterr().out.replace("│", "").split())
    assert "postcards options" in text and "training options" in text
    assert (
        "--postcard-rows INT log rows between postcards (default: no postcard is written)" in text)
    assert "--postcard-size {small,large} size of a postcard (default: small)" in text
    for command in ("train", "plan"):
        for flags, message in (
            ("--postcard-rows 1", "postcard_rows must be an integer from 2 to 9, got 1"),
            ("--postcard-rows none",
             "--postcard-rows must be an integer, such as 500000, 500_000 or 5e5, got 'none'"),
            ("--postcard-size larg",
             "postcard_size must be one of 'small', 'large', got 'larg'; did you mean 'large'?"),
        ):
            assert cli.main([command, "ppo", "CartPole-v1", *flags.split()]) == 2
            assert message in capsys.readouterr().err
    plan = cli_train.describe_train(["ppo", "CartPole-v1"], [], None)
    _, _, made = cli_train.resolve(plan, {"postcard_rows": 3})
    assert (made.postcard_rows, made.postcard_size) == (3, "small")


def test_a_new_field_is_a_keyword(more):
    assert run_config(64, {"postcard_rows": 3}).postcard_rows == 3
    with pytest.raises(jf.ConfigError,
                       match=r"postcards must be a setting of train .*got 3; did you mean "
                             r"'postcard_"):
        run_config(64, {"postcards": 3})


def test_groups_hold_every_setting_once():
    groups = by_group()
    assert [group.__name__ for group in groups] == ["Training", "Logging", "Evaluation",
                                                    "Placement", "Host", "Experience"]
    names = [field.name for fields in groups.values() for field in fields]
    assert names == list(RunConfig.__dataclass_fields__) and len(set(names)) == len(names)
    undeclared = [f.name for f in dataclasses.fields(RunConfig) if not help_of(RunConfig, f.name)]
    assert not undeclared, "declare them by `fields.setting`"
    unexplained = [f.name
                   for f in dataclasses.fields(RunConfig)
                   if f.default is None and not f.metadata["none"]]
    assert not unexplained, "say what None stands for"


BAD = [
    ("total_steps", 0, f"an integer from 1 to {2**53}"),
    ("total_steps", None, "an integer"),
    ("seed", -1, "an integer from 0"),
    ("seeds", 1_000_001, "an integer from 1 to 1000000"),
    ("log_every", 0, "an integer from 1"),
    ("eval_every", -1, "an integer from 0"),
    ("eval_mode", None, "'greedy', 'sample'"),
    ("target_return", float("nan"), "a finite number"),
    ("devices", 0, "an integer from 1"),
    ("mesh", {"rows": 2}, 'axes "population" and "env"'),
    ("mesh", {}, 'axes "population" and "env"'),
    ("unroll", 1025, "an integer from 1 to 1024"),
    ("ahead", 9, "an integer from 0 to 8"),
    ("host_timeout", 0, "(0, inf)"),
    ("experience", 3, "the name of a folder, or None"),
    ("experience_id", 3, "a text"),
    ("experience_fraction", 0.25, "left out without experience"),
    ("start_from", 3, "a run directory, or None"),
    ("population", {"algo.discount": []}, "at least one"),
    ("population", {"algo.discount": [1], "algo.gae_lambda": [1, 2]},
     "as many values for each setting"),
    ("selection", "pbt", "a jf.PBT or jf.Halving, or None"),
]


@pytest.mark.parametrize(("name", "value", "valid"), BAD)
def test_a_bad_setting_is_named_with_its_valid_values(name, value, valid):
    with pytest.raises(jf.ConfigError) as caught:
        RunConfig(**{name: value})
    assert str(caught.value).startswith(f"{name} must be ") and valid in str(caught.value)


def test_settings_go_through_config_json_and_back(tmp_path):
    settings = {"population": {"algo.discount": [0.9, 0.99]}, "selection": jf.Halving(1),
                "mesh": {"env": 2}, "groups": 4}
    made = RunConfig(total_steps=64, start_from=tmp_path, **settings)
    assert made.start_from == str(tmp_path)
    assert decode_run(encode_run(made)) == made
    assert run_config(64, {"start_from": {"w": 1.0}}).start_from == "<parameters in memory>"
    with pytest.raises(jf.ConfigError, match=r"run\.total_step must be .* total_steps.*got 1"):
        decode_run({"total_step": 1})


def test_the_reference_page_is_the_declaration():
    script = runpy.run_path(str(ROOT / "scripts" / "settings_page.py"))
    text = script["page"]()
    assert script["PAGE"].read_text() == text, "run: python scripts/settings_page.py"
    for file, written in (("KEYWORDS", "keywords"), ("ENVIRONMENTS", "environments")):
        assert script[file].read_text() == script[written](), "run: python scripts/settings_page.py"
    for field in dataclasses.fields(RunConfig):
        assert f"| `{field.name}` |" in text


OPTIONAL = """
from jaxrl_fast.fields import check_settings, setting
import dataclasses

@dataclasses.dataclass
class Mine:
    size: int|None = setting(None, low=2)
    rate: float | None = 0.5
    name: str = setting("a")

    def __post_init__(self):
        check_settings(self)
"""


@pytest.mark.parametrize("first", ["", "from __future__ import annotations"])
def test_optional_fields_take_none_and_are_checked(first):
    names: dict = {"__name__": __name__}
    exec(compile(first + OPTIONAL, "mine.py", "exec", dont_inherit=True), names)
    mine = names["Mine"]
    assert (mine(size=3, rate=None).size, mine(rate=1).rate, mine().size) == (3, 1.0, None)
    bad = (("size", 1, "from 2"), ("size", 2.5, "an integer"), ("rate", "x", "a number"),
           ("name", 3, "a text"))
    for name, value, valid in bad:
        with pytest.raises(jf.ConfigError, match=f"{name} must be .*{valid}"):
            mine(**{name: value})
