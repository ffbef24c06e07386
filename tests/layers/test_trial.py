# autograd's wrapped methods are not plain ones to a type checker:
# pyright: reportIncompatibleMethodOverride=false

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from hofno.layers import blocks, kernels
from hofno.layers.kernels.trial import runs, trial
from hofno.models.spectral import HOFNO


def block(x: Tensor, weight: Tensor, offset: Tensor | None, square: bool) -> Tensor:
    y = x * weight if offset is None else x * weight + offset
    return y**2 if square else y


def test_what_runs_passes_and_leaves_its_arguments_alone() -> None:
    x, weight = torch.randn(3, 4), torch.randn(4, requires_grad=True)
    assert trial(block, x, weight, None, True)
    assert weight.grad is None
    with torch.inference_mode():
        assert trial(block, torch.randn(3, 4), weight, torch.randn(4), False)


@pytest.mark.parametrize("graded", [True, False])
def test_the_way_back_is_tried_where_gradients_are_wanted(graded: bool) -> None:
    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: object, grad: Tensor) -> Tensor:
            raise RuntimeError("out of resource: shared memory\nmore lines")

    with torch.set_grad_enabled(graded):
        if graded:
            with pytest.warns(RuntimeWarning, match=r"do not run on cpu.*\(4,\).*shared memory; plain"):
                assert not trial(Broken.apply, torch.randn(3, 4))
        else:
            assert trial(Broken.apply, torch.randn(3, 4))


def test_a_lack_of_memory_is_not_taken_for_kernels_that_do_not_run() -> None:
    def greedy(x: Tensor) -> Tensor:
        raise torch.OutOfMemoryError("no memory left")

    with pytest.raises(torch.OutOfMemoryError):
        trial(greedy, torch.randn(3, 4))


def test_nothing_is_tried_on_a_cpu() -> None:
    def never(x: Tensor) -> Tensor:
        raise AssertionError

    assert runs(never, torch.randn(2))


@pytest.mark.parametrize("backbone", ["modern", "classic"])
def test_blocks_go_the_plain_way_where_kernels_do_not_run(backbone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = HOFNO(1, 1, (2, 2), width=16, depth=2, order=2, expansion=2, backbone=backbone)
    x = torch.randn(1, 1, 6, 7)
    expected = model(x)
    asked: list[str] = []

    def refuse(block: object, *_: object) -> bool:
        asked.append(getattr(block, "__name__", ""))
        return False

    for name in ("supported", "classic_supported"):
        monkeypatch.setattr(kernels, name, lambda *_: True)
    monkeypatch.setattr(blocks, "runs", refuse)
    torch.testing.assert_close(model(x), expected)
    assert asked == [f"{backbone}_block"] * 2
