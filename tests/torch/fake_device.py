"""A device that is not there: tensors that report another device, compute on the CPU, and count transfers."""

import json

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from fastsketch.torch import FrequentDirections

setup = pytest.importorskip("torch.utils.backend_registration")
if not hasattr(setup, "_setup_privateuseone_for_python_backend"):
    pytest.skip("this torch cannot have a device in Python", allow_module_level=True)


class Module(setup._DummyBackendModule):
    """What torch asks of the module of a device."""

    @staticmethod
    def get_amp_supported_dtype():
        return [torch.bfloat16]


setup._setup_privateuseone_for_python_backend("fake", Module())
FAKE = torch.device("fake", 0)


class OnFakeDevice(torch.Tensor):
    """A tensor on the fake device, which wraps one on the CPU."""

    @staticmethod
    def __new__(cls, held):
        return torch.Tensor._make_wrapper_subclass(
            cls, held.shape, strides=held.stride(), storage_offset=held.storage_offset(), dtype=held.dtype, device=FAKE
        )

    def __init__(self, held):
        self.held = held

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return run(func, args, kwargs or {}, None)


class FakeDevice(TorchDispatchMode):
    """Within this context the fake device can be named; `to_cpu` and `to_device` list the shapes that are copied."""

    def __init__(self):
        super().__init__()
        self.to_cpu, self.to_device = [], []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return run(func, args, kwargs or {}, self)


def run(func, args, kwargs, mode):
    name, tensors = func.__name__, [x for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor)]
    lists = [x for arg in args if isinstance(arg, (list, tuple)) for x in arg if isinstance(x, torch.Tensor)]
    on_fake = [isinstance(x, OnFakeDevice) for x in tensors + lists]
    target = kwargs.get("device")
    if target is not None:
        target = torch.device(target).type
        kwargs = {**kwargs, "device": torch.device("cpu")}
    result_on_fake = any(on_fake) if target is None else target == FAKE.type
    if name.startswith(("_to_copy", "copy_")) and mode is not None:
        source = tensors[1] if name.startswith("copy_") else tensors[0]
        ends = isinstance(tensors[0], OnFakeDevice) if name.startswith("copy_") else result_on_fake
        if isinstance(source, OnFakeDevice) != ends:
            (mode.to_device if ends else mode.to_cpu).append(tuple(source.shape))
    elif name.startswith(("_local_scalar_dense", "item")) and any(on_fake) and mode is not None:
        mode.to_cpu.append(())
    elif len(set(on_fake)) > 1 and any(x.ndim for x, fake in zip(tensors + lists, on_fake, strict=True) if not fake):
        raise RuntimeError(f"{name} mixes devices")
    args, kwargs = tree_map_only(OnFakeDevice, lambda x: x.held, (args, kwargs))
    out = func(*args, **kwargs)
    if name.startswith("_local_scalar_dense") or not result_on_fake:
        return out
    if func._schema.is_mutable:  # in place: the wrapper that was given
        return tensors[0]
    return tree_map_only(torch.Tensor, OnFakeDevice, out)


def main():
    """Print the shapes that a sketch copies between its device and the CPU, batch by batch, as JSON."""
    out = []
    with FakeDevice() as counted:
        sketch, on_cpu = FrequentDirections(4, buffer_size=20), FrequentDirections(4, buffer_size=20)
        for n in (10, 100, 5):
            here = torch.randn(n, 30)
            on_cpu.update(here)
            rows = here.to(FAKE)
            counted.to_cpu.clear()
            counted.to_device.clear()
            sketch.update(rows)
            out.append({"to_cpu": counted.to_cpu.copy(), "to_device": counted.to_device.copy()})
        assert sketch.device == FAKE
        assert sketch.components.device == sketch.mean.device == FAKE
        # products are computed by torch on a device, and by NumPy on the CPU
        values, expected = sketch.spectrum().values, on_cpu.spectrum().values
        torch.testing.assert_close(values, expected, rtol=0.0, atol=1e-5 * float(expected[0]))
        moved = FrequentDirections(4, buffer_size=20).update(torch.randn(50, 30)).merge(sketch)
        assert moved.device == torch.device("cpu")
        assert moved.n_rows == 165
    print(json.dumps(out))


if __name__ == "__main__":
    main()
