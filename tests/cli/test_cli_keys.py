"""What a spec may say, told by the program: `hofno show --train`, `--spec`, cards of problems, and help that flows."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable

import pytest
from typer.testing import CliRunner, Result

from hofno.cli import app
from hofno.cli.keys import type_name
from hofno.cli.prose import joined
from hofno.problems.registry import PROBLEMS
from hofno.spec import Spec, TrainSpec, Variant

Hofno = Callable[..., Result]
Refused = Callable[..., str]


def test_every_key_has_a_meaning() -> None:
    for kind in (Spec, TrainSpec, Variant):
        assert not [name for name, field in kind.model_fields.items() if not field.description]


def test_show_train(hofno: Hofno) -> None:
    result = hofno("show", "--train")
    assert result.exit_code == 0, result.output
    for name in TrainSpec.model_fields:
        assert name in result.stdout
    losses = "rel_l2 | mse | mae | rmse | rel_l2_gradient"
    for text in (losses, "100", "passes over the training set", "false", "choice", "int | tuple[int, "):
        assert text in result.stdout
    assert "False" not in result.stdout


def test_show_spec(hofno: Hofno) -> None:
    result = hofno("show", "--spec")
    assert result.exit_code == 0, result.output
    for name in Spec.model_fields:
        assert name in result.stdout
    assert type_name(Spec.model_fields["sweep"].annotation) == "dict[str, list[Any]]"
    assert type_name(TrainSpec.model_fields["coarse_by"].annotation) == "int | tuple[int, ...]"
    for text in ("[[compare]]", 'set = {"model.name" = "fno"}', "[sweep]", "seed = [0, 1, 2]", "hofno show --train"):
        assert text in result.stdout


def test_the_program_says_where_keys_are_told(hofno: Hofno, refused: Refused) -> None:
    assert "hofno show --train" in hofno("--help").stdout
    assert "--train, --spec" in refused("show", "--train", "--spec")
    assert "--train, --spec" in refused("show", "tiny", "--train")


def test_keys_are_told_without_torch(folder: object) -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from hofno.cli import app; "
        "assert all(CliRunner().invoke(app, ['show', key]).exit_code == 0 for key in ('--train', '--spec')); "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", sorted(PROBLEMS))
def test_cards_are_told_without_marks(hofno: Hofno, name: str) -> None:
    shown = hofno("show", "--problem", name).stdout
    assert "**" not in shown
    assert "|--" not in shown
    text = [line for line in PROBLEMS[name].card.splitlines() if not line.startswith("|")]
    words = set(" ".join(text).replace("**", "").replace("# ", "").split())
    assert words <= set(shown.split()), "no word is lost"


def test_a_card_has_its_table(hofno: Hofno) -> None:
    shown = hofno("show", "--problem", "airfoil").stdout
    assert "│ shock on the upper surface │ x = 0.57" in shown
    assert "┃ here" in shown


def test_paragraphs_of_help_flow() -> None:
    assert joined("one\ntwo\n\nthree\n  four") == "one two\n\nthree four"
    for command in ("bench", "evaluate", "run"):
        shown = CliRunner(env={"COLUMNS": "80"}).invoke(app, [command, "--help"]).stdout
        lines = shown.partition("╭")[0].splitlines()
        for line, following in itertools.pairwise(lines):
            first = following.split()[0] if following.strip() else ""
            if line.strip() and first:
                assert len(line.rstrip()) + 1 + len(first) > 78, f"{line!r} ends early"
