"""What a run is: TOML in and out, settings, studies, hashes, and errors that name the key."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hofno import fits
from hofno import spec as specs
from hofno.errors import HofnoError, SpecError
from hofno.models.registry import MODELS, arguments_of, check_arguments
from hofno.spec import Spec

RESULTS = Path(__file__).resolve().parent.parent / "results" / "paper"
VALUES: dict[str, Any] = {
    "data": {"problem": "poisson", "degree": 2},
    "model": {"name": "hofno", "modes": [4, 4], "order": 2, "factors": "dense", "depth": 1},
}


def make(**changes: Any) -> Spec:
    return specs.parse({**VALUES, **changes})


def test_toml_round_trip(tmp_path: Path) -> None:
    spec = make(
        title='a "quoted" title, with ümlauts',
        train={"lr": 1e-5, "epochs": 3, "compile": True},
        compare=[{"label": "FNO", "set": {"model.name": "fno"}}, {"label": "same"}],
        sweep={"model.depth": [1, 2], "seed": [0, 1]},
    )
    text = specs.to_toml(spec.plain())
    (tmp_path / "spec.toml").write_text(text, encoding="utf-8")
    again = specs.load(tmp_path / "spec.toml")
    assert again == spec
    assert again.study_hash == spec.study_hash


@given(
    st.recursive(
        st.dictionaries(
            st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "Z", "Cc")), max_size=8),
            st.one_of(
                st.integers(-(2**63), 2**63 - 1),
                st.booleans(),
                st.floats(allow_nan=False, allow_infinity=False),
                st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "Z", "Cc")), max_size=8),
                st.lists(st.integers(0, 9), max_size=3),
            ),
            max_size=4,
        ),
        lambda inner: st.dictionaries(
            st.sampled_from("abc"), st.one_of(inner, st.lists(inner, min_size=1, max_size=2))
        ),
        max_leaves=4,
    )
)
def test_any_plain_values_survive_toml(values: dict[str, Any]) -> None:
    assert tomllib.loads(specs.to_toml(values)) == values


def test_the_name_is_that_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(specs.to_toml(VALUES))
    assert specs.load(tmp_path / "mine.toml").name == "mine"


class TestErrors:
    @pytest.mark.parametrize(
        ("values", "text"),
        [
            ({"trian": {}}, "unknown key 'trian'; did you mean 'train'?"),
            ({"train": {"epoch": 3}}, r"unknown key 'train\.epoch'; did you mean 'epochs'?"),
            ({"train": {"xyzzy": 3}}, "known keys: epochs, batch_size"),
            ({"compare": [{"lable": "a", "label": "b"}]}, r"unknown key 'compare\.0\.lable'; did you mean 'label'?"),
            ({"compare": [{}]}, r"lacks 'compare\.0\.label'; add it"),
            ({"model": {"modes": [4]}}, r"lacks 'model\.name'; add it"),
            ({"train": {"epochs": 0}}, r"train\.epochs: input should be greater than or equal to 1; got 0"),
            ({"train": {"ema": 1.0}}, "less than 1; got 1.0"),
            ({"seed": -1}, "seed: input should be greater"),
            ({"seed": 10**26}, "seed: input should be less than or equal to 9223372036854775807; got 1000"),
            ({"data": 3}, "data: input should be"),
            ({"targets": "u (mm)"}, r"targets: input should be a valid list; got 'u \(mm\)'"),
            ({"sweep": {"seed": 3}}, r"sweep\.seed: input should be a valid list"),
            ({"sweep": {"seed": []}}, "at least 1 item"),
            ({"train": {"lr": float("inf")}}, r"train\.lr must be a finite number; got inf"),
            ({"model": {"name": "hofno", "modes": [float("nan")]}}, r"model\.modes\.0 must be a finite number"),
        ],
    )
    def test_each_names_the_key(self, values: dict[str, Any], text: str) -> None:
        with pytest.raises(SpecError, match=text) as caught:
            make(**values)
        assert "\n" not in str(caught.value)

    def test_frozen(self) -> None:
        with pytest.raises(ValueError, match="frozen"):
            make().seed = 3  # pyright: ignore[reportAttributeAccessIssue]


class TestSettings:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("train.epochs=10", ("train.epochs", 10)),
            ("model.modes=[4, 4]", ("model.modes", [4, 4])),
            ("train.lr = 1e-3", ("train.lr", 1e-3)),
            ("train.compile=true", ("train.compile", True)),
            ("model.name=fno", ("model.name", "fno")),
            ('title="a = b"', ("title", "a = b")),
            ("label=HO-FNO order 2", ("label", "HO-FNO order 2")),
            ("label=", ("label", "")),
        ],
    )
    def test_parse(self, text: str, expected: tuple[str, Any]) -> None:
        assert specs.parse_setting(text) == expected

    @pytest.mark.parametrize("text", ["epochs", "=3", ""])
    def test_not_a_setting(self, text: str) -> None:
        with pytest.raises(SpecError, match="expected --set key=value"):
            specs.parse_setting(text)

    def test_override(self) -> None:
        spec = specs.override(make(), {"train.epochs": 7, "seed": 3, "model.width": 16, "data.degree": 5})
        assert (spec.train.epochs, spec.seed) == (7, 3)
        assert spec.model.arguments["width"] == 16
        assert spec.data.parameters == {"degree": 5}
        assert make().train.epochs == 100

    def test_override_of_no_section(self) -> None:
        with pytest.raises(SpecError, match=r"no section 'trian' for the key 'trian\.epochs'; there are: .*train"):
            specs.override(make(), {"trian.epochs": 3})

    def test_another_model_sheds_the_arguments_of_the_first(self) -> None:
        arguments = specs.override(make(), {"model.name": "fno"}).model.arguments
        assert arguments == {"modes": [4, 4], "depth": 1}
        for key in ("model.order", "model.'order'"):
            kept = specs.override(make(), {"model.name": "fno", key: 3}).model.arguments
            assert kept["order"] == 3
        whole = {"name": "fno", "modes": [4, 4], "order": 3}
        assert specs.override(make(), {"model": whole}).model.arguments["order"] == 3

    @pytest.mark.parametrize("before", sorted(MODELS))
    @pytest.mark.parametrize("after", sorted(MODELS))
    def test_any_two_models_share_what_both_take(self, before: str, after: str) -> None:
        taken = dict.fromkeys(arguments_of(before), 1)
        spec = specs.override(make(model={"name": before, **taken}), {"model.name": after})
        assert set(spec.model.arguments) == arguments_of(before) & arguments_of(after)

    def test_comparisons_with_a_model_of_their_own_stay_what_they_are(self) -> None:
        variants = [
            {"label": "FNO", "set": {"model.name": "fno", "model.depth": 4}},
            {"label": "geo", "set": {"model": {"name": "fno", "modes": [2, 2]}}},
            {"label": "wide", "set": {"model.width": 8}},
        ]
        spec = make(compare=variants)
        changed = specs.override(spec, {"model.name": "unet", "model.width": 16})
        own, fno, whole, wide = (member.model.model_dump() for member, _ in changed.members())
        assert own == {"name": "unet", "width": 16}
        assert fno == {"name": "fno", "modes": [4, 4], "depth": 4, "width": 16}
        assert whole == {"name": "fno", "modes": [2, 2]}
        assert wide == {"name": "unet", "width": 8}
        anew = specs.override(spec, {"model.name": "unet", "compare": variants[:1]})
        assert anew.compare[0].set == variants[0]["set"]

    def test_a_comparison_that_cannot_be_is_named(self) -> None:
        with pytest.raises(SpecError, match=r"member 'no' of the study: no section 'trian'"):
            make(compare=[{"label": "no", "set": {"trian.lr": 1}}]).members()

    def test_an_argument_that_no_model_has_is_not_shed(self) -> None:
        """A slip of the pen must be found, not left behind."""
        spec = specs.override(make(model={**VALUES["model"], "ordre": 2}), {"model.name": "fno"})
        assert spec.model.arguments["ordre"] == 2
        with pytest.raises(SpecError, match="model 'fno' has no argument 'ordre'"):
            check_arguments("fno", {**spec.model.arguments, "in_channels": 2, "out_channels": 1})

    def test_an_unknown_model(self) -> None:
        with pytest.raises(SpecError, match=r"unknown model 'fnu'; .* did you mean 'fno'"):
            specs.override(make(), {"model.name": "fnu"})
        with pytest.raises(SpecError, match=r"model\.name: input should be a valid string; got 3"):
            specs.override(make(), {"model.name": 3})


class TestStudies:
    def test_members(self) -> None:
        spec = make(
            label="own",
            compare=[{"label": "FNO", "set": {"model.name": "fno"}}],
            sweep={"model.depth": [1, 2], "seed": [0, 1]},
        )
        members = spec.members()
        assert len(members) == 8
        first, cell = members[0]
        assert (first.label, cell) == ("own", {"model.depth": 1, "seed": 0})
        last, cell = members[-1]
        assert (last.model.name, last.model.arguments["depth"], last.seed) == ("fno", 2, 1)
        assert cell == {"label": "FNO", "model.depth": 2, "seed": 1}
        assert len({member.run_hash for member, _ in members}) == 8
        assert all(not member.compare and not member.sweep for member, _ in members)

    def test_a_spec_alone_is_its_own_member(self) -> None:
        assert make().members() == [(make().single(), {})]

    def test_a_member_that_cannot_be(self) -> None:
        with pytest.raises(SpecError, match="no section"):
            make(sweep={"trian.lr": [1]}).members()


class TestHashes:
    def test_what_makes_a_run(self) -> None:
        base = make().run_hash
        assert make().run_hash == base
        for same in ({"title": "other"}, {"label": "other"}, {"device": "cpu"}, {"sweep": {"seed": [0]}}):
            assert make(**same).run_hash == base
        for other in ({"seed": 1}, {"train": {"epochs": 3}}, {"data": {"problem": "poisson", "degree": 3}}):
            assert make(**other).run_hash != base
        assert make(title="other").study_hash != make().study_hash
        assert (make(remark="r").run_hash, make(remark="r").study_hash) == (base, make().study_hash)

    def test_released_specs_keep_their_hash(self) -> None:
        """Results and checkpoints are found by these; a setting added later must not change them."""
        folder = Path(__file__).resolve().parent.parent / "specs"
        table = specs.load(folder / "paper" / "poisson_p3.toml")
        members = specs.override(table, {"train.precision": "tf32"}).members()
        assert [member.run_hash for member, _ in members[:2]] == ["6ec6d2ba6f51c9de", "fa6c77b1e1cc93d3"]
        assert specs.load(folder / "quick" / "poisson.toml").run_hash == "67a81a895774f0c0"

    @pytest.mark.parametrize("name", sorted(path.stem for path in RESULTS.glob("*.json")))
    def test_measured_runs_belong_to_their_spec(self, name: str) -> None:
        """Every run in results/paper is a member of the spec beside it, but for settings it says were different."""
        table = specs.load(RESULTS.parent.parent / "specs" / "paper" / f"{name}.toml")
        runs = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["runs"]
        for settings in ({}, {"train.precision": "tf32"}):
            known = {(m.run_hash, m.seed) for m, _ in specs.override(table, settings).members()}
            assert all((r["spec_hash"], r["seed"]) in known for r in runs if r.get("settings", {}) == settings)
        assert all(r.get("settings", {}) in ({}, {"train.precision": "tf32"}) for r in runs)

    def test_a_default_written_out_is_the_same_run(self) -> None:
        assert make(train={"epochs": 100}).run_hash == make().run_hash

    def test_the_order_of_keys_does_not_matter(self) -> None:
        assert specs.fingerprint({"a": 1, "b": 2}) == specs.fingerprint({"b": 2, "a": 1})

    def test_data_hash(self) -> None:
        assert make(seed=1).data_hash == make().data_hash
        assert make(data={"problem": "poisson", "degree": 3}).data_hash != make().data_hash


SHIPPED = sorted((Path(__file__).parents[1] / "specs").glob("**/*.toml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_shipped_spec_describes_runs_that_can_be(path: Path) -> None:
    from hofno.fits import check

    spec = specs.load(path)
    assert spec.title
    for member, _ in spec.members():
        check(specs.override(member, {"device": "cpu"}))


@pytest.mark.parametrize(
    ("problem", "model", "text"),
    [
        ("elasticity", {"name": "transolver", "projection": "conv"}, "projection='conv' needs a grid"),
        ("elasticity", {"name": "deeponet_points", "points": 100}, "expected 100 points in a fixed order"),
        ("elasticity", {"name": "pointho", "dims": 3}, "model.dims=3 asks for 3 spatial axes; the data have 2"),
        ("darcy", {"name": "unet", "dims": 1}, "set model.dims=2"),
        ("darcy", {"name": "uno", "modes": [40, 40]}, "between grids of"),
    ],
)
def test_a_model_that_cannot_take_the_data_fails_early(problem: str, model: dict[str, object], text: str) -> None:
    with pytest.raises(HofnoError, match=re.escape(text)):
        fits.check(specs.parse({"data": {"problem": problem}, "model": model}))


def test_an_optimiser_of_matrices_needs_some() -> None:
    values = {"data": {"problem": "darcy"}, "model": {"name": "unet"}, "train": {"optimiser": "muon"}}
    with pytest.raises(SpecError, match=r"is for matrices inside of blocks.*UNet has none; use 'adamw'"):
        fits.check(specs.parse(values))


def test_a_misspelt_section_is_an_unknown_key() -> None:
    with pytest.raises(SpecError, match="unknown key 'modle'; did you mean 'model'"):
        specs.parse({"data": {"problem": "poisson"}, "modle": {"name": "hofno"}})
