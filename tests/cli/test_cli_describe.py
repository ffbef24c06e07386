"""`hofno list`, `hofno show`, `--help`, `--version`: nothing is written, and what is wrong is said at once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from hofno import __version__
from hofno.models.registry import MODELS
from hofno.problems.registry import PROBLEMS

Hofno = Callable[..., Result]
Refused = Callable[..., str]


def test_version(hofno: Hofno) -> None:
    result = hofno("--version")
    assert (result.exit_code, result.stdout) == (0, f"hofno {__version__}\n")


@pytest.mark.parametrize(
    "command",
    ["list", "show", "generate", "train", "evaluate", "predict", "export", "run", "report", "bench", "check", "paper"],
)
def test_every_command_has_help_with_an_example(hofno: Hofno, command: str) -> None:
    result = hofno(command, "--help")
    assert result.exit_code == 0
    assert f"hofno {command}" in result.stdout.partition("Options")[2]
    assert command in hofno("--help").stdout
    for shown in (result.stdout, hofno("--help").stdout):
        assert not [text for text in ("<bool>", "list[", "int range") if text in shown]


def test_help_and_specs_do_not_import_torch(folder: Path) -> None:
    code = """
import sys
from typer.testing import CliRunner
from hofno.cli import app
for arguments in (["--help"], ["train", "--help"], ["--version"], ["list", "specs"], ["paper"]):
    assert CliRunner().invoke(app, arguments).exit_code == 0
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_list_names_everything(hofno: Hofno, folder: Path) -> None:
    (folder / "specs" / "mine").mkdir(parents=True)
    (folder / "specs" / "mine" / "one.toml").write_text('title = "my own spec"\n')
    (folder / "specs" / "broken.toml").write_text("= =")
    everything = hofno("list").stdout
    for name in (*MODELS, *PROBLEMS, "mine/one", "my own spec", "(cannot be read)"):
        assert name in everything
    models = hofno("list", "models").stdout
    assert "hofno" in models
    assert "poisson" not in models


def test_list_of_something_else(refused: Refused) -> None:
    assert "models, problems, specs" in refused("list", "things")


def test_show_a_run(hofno: Hofno, folder: Path) -> None:
    result = hofno("show", "tiny")
    assert result.exit_code == 0, result.output
    lines = [line for line in result.stdout.splitlines() if not line.startswith(("data", "training memory"))]
    shown = dict(line.split(maxsplit=1) for line in lines)
    assert shown["parameters"] == "937 real numbers; 713 counting complex ones once"
    assert shown["samples"] == "20 training, 4 validation, 6 test"
    assert shown["training"] == "2 epochs of 3 batches: 6 steps"
    assert "2 input and 1 target channels" in shown["problem"]
    assert "data memory      90.0 KiB" in result.stdout
    assert "study" not in shown
    assert not list(folder.glob("**/*.npy"))


def test_show_counts_agree_with_the_model(hofno: Hofno) -> None:
    from hofno import HOFNO, parameter_counts

    counts = parameter_counts(HOFNO(2, 1, (4, 4), width=8, depth=1, order=2))
    assert f"{counts['real']:,} real numbers; {counts['complex_once']:,} counting" in hofno("show", "tiny").stdout


def test_show_says_in_what_precision(hofno: Hofno, monkeypatch: pytest.MonkeyPatch) -> None:
    def shown(*settings: str) -> str:
        assigned = [part for setting in settings for part in ("--set", f"train.{setting}")]
        found = hofno("show", "tiny", *assigned).output
        return next(line for line in found.splitlines() if line.startswith("device"))

    assert "cpu, precision fp32, seed" in shown()
    assert "precision fp32 (mixed is for GPUs), seed" in shown("precision=mixed", "finish=0.1")
    monkeypatch.setattr("hofno.train.precision.REDUCED_ON", ("cpu",))
    assert "precision mixed, seed" in shown("precision=mixed")
    assert "precision mixed, at the end fp32, seed" in shown("precision=mixed", "finish=0.1")
    assert "precision fp32, seed" in shown("precision=mixed", "finish=1.0")


def test_show_a_study(hofno: Hofno, folder: Path) -> None:
    with (folder / "tiny.toml").open("a") as file:
        file.write('[[compare]]\nlabel = "FNO"\nset = {"model.name" = "fno"}\n[sweep]\nseed = [0, 1, 2]\n')
    assert "6 runs: HO-FNO; FNO; each with seed in 0, 1, 2" in hofno("show", "tiny.toml").stdout


def test_show_checks_every_member_of_a_study(refused: Refused, folder: Path) -> None:
    with (folder / "tiny.toml").open("a") as file:
        file.write('[sweep]\n"model.order" = [1, 2, 0]\n')
    told = refused("show", "tiny")
    assert "member 'HO-FNO, order 0' of the study: " in told
    assert "compare" not in told


def test_a_study_with_another_model(hofno: Hofno, refused: Refused, folder: Path) -> None:
    """Comparisons that name their model stay what they were; the spec's own run is no more called as before."""
    with (folder / "tiny.toml").open("a") as file:
        file.write('[[compare]]\nlabel = "FNO"\nset = {"model.name" = "fno"}\n')
    result = hofno("show", "tiny", "--set", "model.name=unet", "--set", "model.width=4")
    assert result.exit_code == 0, (result.output, result.exception)
    assert "2 runs: unet; FNO" in result.stdout
    assert "model            unet: width=4" in result.stdout
    alone = hofno("show", "tiny", "--set", "model={name='unet'}", "--set", "compare=[]").stdout
    assert "unet: all arguments have their defaults" in alone
    own = '[data]\nproblem = "poisson"\n[model]\nname = "unet"\n'
    (folder / "own.toml").write_text(f'{own}[[compare]]\nlabel = "FNO"\nset = {{"model.name" = "fno"}}\n')
    told = refused("show", "own")
    assert "member 'FNO' of the study: model 'fno' needs modes; set model.modes" in told
    assert "such as [12, 12]" in told
    assert "--set compare=[]" in told
    assert "in_channels" not in told
    with (folder / "tiny.toml").open("a") as file:
        file.write('[[compare]]\nlabel = "nets"\nset = {"model.name" = "fnoo"}\n')
    assert "member 'nets' of the study: unknown model 'fnoo'" in refused("show", "tiny")


def test_places_are_called_what_they_are(hofno: Hofno) -> None:
    settings = ["--set", "data={problem='darcy'}"]
    assert "darcy: 85 x 85 points, not periodic; 1 input" in hofno("show", "tiny", *settings).stdout


def test_show_memory_grows_with_the_batch(hofno: Hofno) -> None:
    import torch

    from hofno import HOFNO
    from hofno.train.activations import saved_bytes

    model = HOFNO(2, 1, (4, 4), width=8, depth=1)
    one = saved_bytes(model, (2, 16, 16))
    assert one >= 4 * 16 * 16 * 8 * 4  # at least four fields of the width
    assert saved_bytes(HOFNO(2, 1, (4, 4), width=8, depth=3), (2, 16, 16)) > 2 * one
    assert all(p.grad is None for p in model.parameters())
    assert torch.is_grad_enabled()
    large, half = (saved_bytes(model, (2, n, n)) for n in (400, 200))  # both told from smaller grids
    assert large == pytest.approx(4 * half, rel=0.05)
    assert saved_bytes(HOFNO(2, 1, (70, 4), width=8, depth=1), (2, 200, 200)) == pytest.approx(half, rel=0.3)


def test_show_a_problem_and_a_model(hofno: Hofno) -> None:
    problem = hofno("show", "--problem", "poisson").stdout
    for text in ("Known flaws", "k_max", "18.0", "outer radius"):
        assert text in problem
    model = hofno("show", "--model", "hofno").stdout
    for text in ("domain_padding", "Higher-Order", "endpoint | periodic | none", "(needed)"):
        assert text in model


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "give one of"),
        (["tiny", "--problem", "poisson"], "give one of"),
        (["--problem", "poison"], "did you mean 'poisson'?"),
        (["--model", "hofn"], "did you mean 'hofno'?"),
        (["--model", "FNO"], "did you mean 'fno'?"),
        (["--problem", "Darcy"], "did you mean 'darcy'?"),
        (["--model", "hofno", "--set", "model.order=2"], "--set changes a spec"),
    ],
)
def test_show_what(refused: Refused, arguments: list[str], text: str) -> None:
    assert text in refused("show", *arguments)


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ("model.modes=[9, 4]", "modes[0]=9 is more than an axis of 16 points holds (at most 8)"),
        ("model.modes=[4, 4, 4]", "asks for 3 spatial axes"),
        (
            "model.modes=100,100",
            "a list is written in brackets; got model.modes=100,100, try --set 'model.modes=[100,100]'",
        ),
        ("model.modes=12", "model.modes is a list, such as [12, 12]; got 12"),
        ("model.modes=(4, 4)", "try --set 'model.modes=[4, 4]'"),
        ("model.order=0", "order"),
        ("model.order=two", "model.order"),
        ("model.widht=8", "did you mean 'width'?"),
        ("model.in_channels=2", "follows from the data"),
        ("model.name=vnet", "unknown model 'vnet'; there are: deeponet, "),
        ("data.problem=darcyy", "unknown problem 'darcyy'"),
        ("data.resolutoin=32", "did you mean 'resolution'?"),
        ("data.resolution=8", "need more than 8 points"),
        ("data.k_min=nan", "finite"),
        ("train.epoch=3", "unknown key 'train.epoch'; did you mean 'epochs'?"),
        ("train.epochs=0", "greater than or equal to 1; got 0"),
        ("train.lr=fast", "valid number"),
        ("train.lr=true", "train.lr: input should be a number, neither true nor false; got True"),
        ("seed=true", "seed: input should be a whole number, neither true nor false; got True"),
        ("train.augment=1", "train.augment: input should be true or false; got 1"),
        ("train.augment=yes", "train.augment: input should be true or false; got 'yes'"),
        ("data.train=true", "poisson.train: Input should be a whole number, neither true nor false; got True"),
        ("model.width=true", "model.width: input should be a whole number, neither true nor false; got True"),
        ("train.lr=inf", "finite"),
        ("train.loss=l3", "'rel_l2', 'mse', 'mae', 'rmse' or 'rel_l2_gradient'"),
        ("device=tpu0", "unknown device"),
        ("trian.epochs=3", "no section 'trian'"),
        ("epochs", "expected --set key=value"),
        ("sweep.seed=[]", "at least 1 item"),
    ],
)
def test_a_wrong_spec_fails_early(refused: Refused, setting: str, text: str) -> None:
    settings = ["--set", "device=cpu"] if not setting.startswith("device") else []
    assert text in refused("show", "tiny", *settings, "--set", setting)


def test_missing_and_invalid_specs(refused: Refused, folder: Path) -> None:
    assert "there is no spec nowhere" in refused("show", "nowhere")
    (folder / "bad.toml").write_text("[data\nproblem = 3")
    assert "bad.toml is not valid TOML" in refused("show", "bad")
    (folder / "binary.toml").write_bytes(b"\xff\xfe\x00")
    assert "cannot read the spec" in refused("show", "binary")
    (folder / "empty.toml").write_text("")
    assert "lacks 'data'" in refused("show", "empty")


def test_a_spec_is_found_by_name(hofno: Hofno, folder: Path) -> None:
    (folder / "specs" / "quick").mkdir(parents=True)
    (folder / "tiny.toml").rename(folder / "specs" / "quick" / "own.toml")
    assert hofno("show", "quick/own").exit_code == 0
    assert hofno("show", "specs/quick/own.toml").exit_code == 0


def test_the_last_setting_of_a_key_counts(hofno: Hofno) -> None:
    result = hofno("show", "tiny", "--set", "train.epochs=7", "--set", "train.epochs=5")
    assert "5 epochs" in result.stdout
