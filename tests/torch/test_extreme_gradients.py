"""Gradients from very large numbers to subnormal ones: parameters stay finite, refused steps change nothing."""

import copy
import math

import pytest

torch = pytest.importorskip("torch")

from fastsketch.torch import AdaFD, AdaFFD, SketchedSOAP  # noqa: E402

torch.set_num_threads(1)
SHAPE = (14, 15)
OPTIONS = {SketchedSOAP: {"rank": 3, "every": 2}, AdaFD: {"sketch_size": 3}, AdaFFD: {"sketch_size": 3}}
KINDS = pytest.mark.parametrize("kind", list(OPTIONS))
SKETCHED = pytest.mark.parametrize("sketched", [True, False])
DTYPES = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])


def made(kind, dtype, sketched, **options):
    """Return a parameter of ones and its optimizer."""
    p = torch.nn.Parameter(torch.ones(SHAPE, dtype=dtype))
    return p, kind([p], **{"sketched": sketched, "lr": 0.01, **OPTIONS[kind], **options})


def step(p, optimizer, size, seed):
    """Make a step with random gradients, uniform in [-1, 1] but for one element of 1, times size."""
    uniform = 2 * torch.rand(SHAPE, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) - 1
    uniform[0, 0] = 1
    p.grad = (uniform * size).to(p.dtype)
    optimizer.step()


def flat(state_dict):
    """Return all entries of the states by parameter and name."""
    return {(i, name): value for i, known in state_dict["state"].items() for name, value in known.items()}


def assert_unchanged(before, parameters, optimizer):
    for old, p in zip(before[0], parameters, strict=True):
        assert torch.equal(old, p.detach())
    old, new = flat(before[1]), flat(optimizer.state_dict())
    assert old.keys() == new.keys()
    for key, value in old.items():
        assert type(value) is type(new[key]) and torch.equal(torch.as_tensor(value), torch.as_tensor(new[key])), key


def snapshot(parameters, optimizer):
    return [p.detach().clone() for p in parameters], copy.deepcopy(optimizer.state_dict())


@DTYPES
@SKETCHED
@KINDS
def test_any_size_is_stepped_with_or_refused_without_a_change(kind, sketched, dtype):
    """From the largest number of the dtype to its subnormals, at first and after ordinary gradients."""
    numbers = torch.finfo(dtype)
    wide = torch.finfo(torch.float64 if dtype == torch.float64 else torch.float32)
    sizes = [0.0, *(numbers.max**share for share in (0, 0.1, 0.3, 0.4, 0.6, 1))]
    sizes += [numbers.tiny**0.3, numbers.tiny**0.6, numbers.tiny, numbers.tiny * numbers.eps]
    for size in sizes:
        for n_before in (0, 3):
            p, optimizer = made(kind, dtype, sketched)
            other = torch.nn.Parameter(torch.ones(SHAPE, dtype=dtype))
            optimizer.add_param_group({"params": [other], "lr": 0.1})
            for seed in range(n_before):
                step(p, optimizer, 1.0, seed)
            other.grad = torch.ones_like(other)
            for seed in range(4):
                before = snapshot((other, p), optimizer)
                if size > wide.max**0.43:
                    with pytest.raises(FloatingPointError, match=r"shape \(14, 15\).* squares may leave the range of"):
                        step(p, optimizer, size, seed)
                    assert_unchanged(before, (other, p), optimizer)
                else:
                    step(p, optimizer, size, seed)
                assert p.isfinite().all() and other.isfinite().all(), (size, seed)
            for (_, name), value in flat(optimizer.state_dict()).items():
                assert torch.as_tensor(value, dtype=torch.float64).isfinite().all(), (size, name)


@pytest.mark.parametrize("delta", [1.0, 1e-6, 1e30])
@pytest.mark.parametrize("kind", [AdaFD, AdaFFD])
def test_a_delta_in_the_units_of_gradients_leaves_parameters_finite(kind, delta):
    for size in (1e15, 1.0, 1e-15, 1e-40):
        p, optimizer = made(kind, torch.float32, True, delta=delta)
        for seed in range(12):
            step(p, optimizer, size, seed)
            assert p.isfinite().all(), (size, seed)


@KINDS
def test_gradients_that_are_not_finite_are_refused_and_change_nothing(kind):
    p, optimizer = made(kind, torch.float32, True)
    step(p, optimizer, 1.0, 0)
    before = snapshot([p], optimizer)
    for bad in (math.nan, math.inf, -math.inf):
        p.grad[3, 4] = bad
        with pytest.raises(FloatingPointError, match=r"gradient of a parameter of shape \(14, 15\) is not finite"):
            optimizer.step()
    assert_unchanged(before, [p], optimizer)


@SKETCHED
@KINDS
def test_states_with_the_unit_of_earlier_versions(kind, sketched):
    """A unit of 1, that of all ordinary gradients, resumes with the same steps; any other is refused."""
    p, optimizer = made(kind, torch.float32, sketched)
    for seed in range(5):
        step(p, optimizer, 1.0, seed)
    saved = copy.deepcopy(optimizer.state_dict())
    again, resumed = made(kind, torch.float32, sketched)
    again.data.copy_(p.data)
    for unit in (2.0**100, 2, None, "1", torch.ones(2)):
        saved["state"][0]["unit"] = unit
        with pytest.raises(ValueError, match=r"'unit' of a parameter of shape \(14, 15\) must be 1"):
            resumed.load_state_dict(saved)
    saved["state"][0]["unit"] = 1.0
    resumed.load_state_dict(saved)
    for seed in range(5, 10):
        step(p, optimizer, 1.0, seed)
        step(again, resumed, 1.0, seed)
    assert torch.equal(p, again)
