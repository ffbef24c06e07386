# autograd's wrapped methods are not plain ones to a type checker:
# pyright: reportIncompatibleMethodOverride=false

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

from hofno.errors import HofnoError, ShapeError
from hofno.layers import blocks, filters, kernels
from hofno.layers.kernels import trial as trials
from hofno.layers.kernels.trial import runs, trial
from hofno.models.spectral import HOFNO


class OnGpu(Tensor):
    """Not a plain tensor."""


def block(x: Tensor, weight: Tensor, offset: Tensor | None, square: bool) -> Tensor:
    y = x * weight if offset is None else x * weight + offset
    return y**2 if square else y


def failing(error: Exception):
    def raising(x: Tensor) -> Tensor:
        raise error

    return raising


def test_what_runs_passes_and_leaves_its_arguments_alone() -> None:
    x, weight = torch.randn(3, 4), torch.randn(4, requires_grad=True)
    assert trial(block, x, weight, None, True) == ""
    assert weight.grad is None
    with torch.inference_mode():
        assert trial(block, torch.randn(3, 4), weight, torch.randn(4), False) == ""


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
        assert trial(Broken.apply, torch.randn(3, 4)) == ("out of resource: shared memory" if graded else "")


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("none left"),
        RuntimeError("Triton Error [CUDA]: out of memory"),
        RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling"),
        ShapeError("expected filter of shape (3,)"),
    ],
)
def test_what_is_no_fault_of_the_kernels_is_raised(error: Exception) -> None:
    with pytest.raises(type(error)):
        trial(failing(error), torch.randn(3, 4))


@pytest.mark.parametrize("fault", ["an illegal memory access was encountered", "unspecified launch failure"])
def test_a_fault_inside_of_a_kernel_names_the_way_out(fault: str) -> None:
    with pytest.raises(HofnoError, match=f"{fault}; start again with HOFNO_KERNELS=off") as caught:
        trial(failing(RuntimeError(f"Triton Error [CUDA]: {fault}\nmore lines")), torch.randn(3, 4))
    assert "\n" not in str(caught.value)


def test_checkpointing_does_not_see_the_trial() -> None:
    def forward(x: Tensor) -> Tensor:
        assert trial(block, x, torch.ones(4), None, True) == ""
        return block(x, torch.full((4,), 2.0), None, True)

    x = torch.randn(3, 4, requires_grad=True)
    value = checkpoint(forward, x, use_reentrant=False)
    (grad,) = torch.autograd.grad(value.sum(), x)
    torch.testing.assert_close(grad, 8 * x.detach())


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
def test_stand_ins_and_forward_derivatives_are_for_the_plain_form() -> None:
    assert runs(block, torch.randn(2), None, True)  # nothing is tried on a CPU
    assert not runs(block, torch.randn(2).as_subclass(OnGpu), None, True)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(torch.randn(2), torch.ones(2))
        assert not runs(block, dual, None, True)
        assert not runs(block, torch.randn(2), dual, None, True)


class Device:
    """A GPU, as far as `runs` asks: its tensors are those of the CPU."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.capturing, self.tried = False, 0
        monkeypatch.setattr(trials, "_found", {})
        monkeypatch.setattr(Tensor, "is_cuda", property(lambda _: True))
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: self.capturing)

    def block(self, x: Tensor, gelu: bool) -> Tensor:
        self.tried += 1
        if gelu:
            raise RuntimeError("out of resource")
        return x * 2


def asked(device: Device, x: Tensor, gelu: bool) -> bool:
    def some_block(x: Tensor, gelu: bool) -> Tensor:
        return device.block(x, gelu)

    return runs(some_block, x, gelu)


def test_a_kind_of_arguments_is_tried_once_and_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    device, x = Device(monkeypatch), torch.randn(2, 3)
    assert asked(device, x, False)
    assert asked(device, x + 1, False)
    assert device.tried == 1
    with pytest.warns(RuntimeWarning, match=r"some_block: fused kernels do not run on cpu.*\(2, 3\): out of resource"):
        assert not asked(device, x, True)
    assert not asked(device, x, True)  # without another warning
    assert device.tried == 2


def test_what_was_found_before_holds_while_a_graph_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    device, x = Device(monkeypatch), torch.randn(2, 3)
    with pytest.warns(RuntimeWarning, match="out of resource"):
        assert not asked(device, x, True)
    device.capturing = True
    assert not asked(device, x, True)
    assert asked(device, torch.randn(5, 3), True)
    assert device.tried == 1


@pytest.mark.parametrize("backbone", ["modern", "classic"])
def test_blocks_go_the_plain_way_where_kernels_do_not_run(backbone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = HOFNO(1, 1, (2, 2), width=16, depth=2, order=2, expansion=2, backbone=backbone)
    x = torch.randn(1, 1, 6, 7)
    expected = model(x)
    tried: list[str] = []

    def refuse(block: object, *_: object) -> bool:
        tried.append(getattr(block, "__name__", ""))
        return False

    for name in ("supported", "classic_supported", "filter_supported"):
        monkeypatch.setattr(kernels, name, lambda *_: True)
    for module in (blocks, filters):
        monkeypatch.setattr(module, "runs", refuse)
    torch.testing.assert_close(model(x), expected)
    assert tried == [f"{backbone}_block", "mode_filter"] * 2
