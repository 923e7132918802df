"""Gradients from the largest finite number to subnormal ones: parameters stay finite, refused steps change nothing."""

import copy
import math
import re

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
def test_finite_gradients_of_any_size_give_the_steps_of_ordinary_ones(kind, sketched, dtype):
    """From the largest number of the dtype to its subnormals; large ones have the steps that gradients of 1 have."""
    numbers = torch.finfo(dtype)
    sizes = [numbers.max, numbers.max / 1e3, numbers.max**0.75, numbers.max**0.5, numbers.max**0.26, numbers.tiny**0.26]
    sizes += [numbers.tiny**0.5, numbers.tiny, numbers.tiny * numbers.eps * 4, numbers.tiny * numbers.eps]
    usual, optimizer = made(kind, dtype, sketched, eps=1e-30)
    for seed in range(12):
        step(usual, optimizer, 1.0, seed)
    for size in sizes:
        p, optimizer = made(kind, dtype, sketched, eps=1e-30)
        for seed in range(12):
            step(p, optimizer, size, seed)
            assert p.isfinite().all(), (size, seed)
        for (_, name), value in flat(optimizer.state_dict()).items():
            assert value.isfinite().all() if isinstance(value, torch.Tensor) else math.isfinite(value), (size, name)
        # Gradients of that size are rounded as those of size 1 are.
        if size > 1e3:
            assert (p - usual).abs().max() < (0.02 if dtype != torch.float64 else 1e-9), size


@pytest.mark.parametrize("options", [{"delta": 1.0}, {"delta": 1e-6}, {"delta": 1e30}])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", [AdaFD, AdaFFD])
def test_a_delta_in_the_units_of_gradients_leaves_parameters_finite(kind, dtype, options):
    numbers = torch.finfo(dtype)
    for size in (numbers.max, numbers.max**0.5, numbers.tiny, numbers.tiny * numbers.eps):
        p, optimizer = made(kind, dtype, True, **options)
        for seed in range(12):
            step(p, optimizer, size, seed)
            assert p.isfinite().all(), (size, seed)


@DTYPES
@SKETCHED
@KINDS
def test_a_size_that_changes_is_stepped_with_or_refused_without_a_change(kind, sketched, dtype):
    """After ordinary gradients: larger ones, up to the largest number, and smaller ones, to the smallest."""
    numbers = torch.finfo(dtype)
    wide = torch.finfo(torch.float64 if dtype == torch.float64 else torch.float32)
    first, optimizer = made(kind, dtype, sketched)
    second = torch.nn.Parameter(torch.ones(SHAPE, dtype=dtype))
    optimizer.add_param_group({"params": [second], "lr": 0.1})
    refused = 0
    for seed, share in enumerate([0, 0.1, 0.3, 0.4, 0.45, 0.6, 1, -0.3, -0.6, -1, 0, 0.4, -1, 1, 0] * 2):
        size = (numbers.max**share if share >= 0 else max(numbers.tiny**-share, numbers.tiny * numbers.eps)) * 1.0
        before = snapshot((first, second), optimizer)
        first.grad = torch.ones_like(first)
        try:
            step(second, optimizer, size, seed)
        except FloatingPointError as error:
            assert "squares may leave the range of" in str(error) and f"shape {SHAPE}" in str(error)
            assert_unchanged(before, (first, second), optimizer)
            assert size > wide.max**0.4
            refused += 1
        else:
            assert size < wide.max**0.44
            for i, p in enumerate((first, second)):
                assert optimizer.state[p]["step"] == before[1]["state"].get(i, {"step": 0})["step"] + 1
        assert first.isfinite().all() and second.isfinite().all(), size
    assert refused == (0 if dtype == torch.float16 else 8)


@DTYPES
@SKETCHED
@KINDS
def test_gradients_of_sizes_drawn_from_the_whole_range_leave_parameters_finite(kind, sketched, dtype):
    """Sizes that are uniform in the exponent: a gradient may be far longer or shorter than all others."""
    numbers, generator = torch.finfo(dtype), torch.Generator().manual_seed(0)
    low, high = math.log2(numbers.tiny * numbers.eps), math.log2(numbers.max) - 1e-6
    n_steps = 0
    for _ in range(4):
        p, optimizer = made(kind, dtype, sketched)
        for seed in range(20):
            share = torch.rand((), generator=generator, dtype=torch.float64).item()
            try:
                step(p, optimizer, 2.0 ** (low + share * (high - low)), seed)
                n_steps += 1
            except FloatingPointError as error:
                assert re.search("squares may leave the range of|the step of a .* leaves the range of", str(error))
            assert p.isfinite().all()
    assert n_steps > 20


@SKETCHED
@KINDS
def test_ordinary_gradients_have_unit_1_and_a_first_gradient_of_zero_has_none(kind, sketched):
    p, optimizer = made(kind, torch.float32, sketched)
    step(p, optimizer, 0.0, 0)
    assert optimizer.state[p]["unit"] == 0.0
    step(p, optimizer, 1e30, 0)
    assert optimizer.state[p]["unit"] == 2.0 ** math.floor(math.log2(1e30))
    for size in (1e-9, 1.0, 4e9):
        p, optimizer = made(kind, torch.float32, sketched)
        step(p, optimizer, size, 0)
        assert optimizer.state[p]["unit"] == 1.0


@SKETCHED
@KINDS
def test_units_that_are_powers_of_two_change_no_bit(kind, sketched):
    """Gradients times 2^100 have the same steps, bit for bit, if eps is times 2^100 too."""
    results = []
    for factor in (1.0, 2.0**100):
        p, optimizer = made(kind, torch.float32, sketched, eps=1e-8 * factor)
        for seed in range(12):
            step(p, optimizer, 1.5 * factor, seed)
        results.append((p.detach(), optimizer.state[p]["unit"]))
    assert torch.equal(results[0][0], results[1][0])
    assert [unit for _, unit in results] == [1.0, 2.0**100]


@SKETCHED
@KINDS
def test_the_unit_is_saved_and_loaded_and_missing_in_earlier_states(kind, sketched, tmp_path):
    for size in (1e-40, 1.0, 1e30):
        p, optimizer = made(kind, torch.float32, sketched)
        for seed in range(5):
            step(p, optimizer, size, seed)
        torch.save(optimizer.state_dict(), tmp_path / "state.pt")
        saved = torch.load(tmp_path / "state.pt", weights_only=True)
        again, resumed = made(kind, torch.float32, sketched)
        again.data.copy_(p.data)
        if size == 1.0:  # as earlier versions saved it
            del saved["state"][0]["unit"]
        resumed.load_state_dict(saved)
        for seed in range(5, 10):
            step(p, optimizer, size, seed)
            step(again, resumed, size, seed)
        assert torch.equal(p, again)
        assert resumed.state[again]["unit"] == optimizer.state[p]["unit"]
        before = snapshot([again], resumed)
        for bad in (None, "1", -1.0, 3.0, 1, True, math.nan, math.inf, 2.0**128, 2.0**-150, torch.ones(())):
            crafted = copy.deepcopy(before[1])
            crafted["state"][0]["unit"] = bad
            with pytest.raises(ValueError, match=r"'unit' of a parameter of shape \(14, 15\) must be 0 or a power"):
                resumed.load_state_dict(crafted)
        assert_unchanged(before, [again], resumed)


@KINDS
def test_gradients_that_are_not_finite_are_refused_in_every_unit(kind):
    for size in (1e-40, 1.0, 1e30):
        p, optimizer = made(kind, torch.float32, True)
        step(p, optimizer, size, 0)
        before = snapshot([p], optimizer)
        for bad in (math.nan, math.inf, -math.inf):
            p.grad[3, 4] = bad
            with pytest.raises(FloatingPointError, match=r"gradient of a parameter of shape \(14, 15\) is not finite"):
                optimizer.step()
        assert_unchanged(before, [p], optimizer)


@pytest.mark.parametrize("n_before", [0, 3])
@DTYPES
@SKETCHED
@KINDS
def test_a_step_that_the_dtype_cannot_hold_is_refused_and_changes_nothing(kind, sketched, dtype, n_before):
    """Of two parameters one is at the end of its range; a smaller lr then makes the step."""
    largest = torch.finfo(dtype).max
    p, optimizer = made(kind, dtype, sketched, weight_decay=0.0)
    ordinary = torch.nn.Parameter(torch.ones(SHAPE, dtype=dtype))
    optimizer.add_param_group({"params": [ordinary], "lr": 0.1})
    for seed in range(n_before):
        ordinary.grad = torch.ones_like(ordinary)
        step(p, optimizer, 1.0, seed)
    with torch.no_grad():
        p.fill_(-largest)
    optimizer.param_groups[0]["lr"] = min(largest, 1e300)
    before = snapshot((ordinary, p), optimizer)
    for parameter in (ordinary, p):
        parameter.grad = torch.ones_like(parameter)
    with pytest.raises(
        FloatingPointError, match=r"step of a parameter of shape \(14, 15\) leaves the range of \w*float"
    ):
        optimizer.step()
    assert_unchanged(before, (ordinary, p), optimizer)
    optimizer.param_groups[0]["lr"] = 0.01
    with torch.no_grad():
        p.fill_(1.0)
    optimizer.step()
    assert p.isfinite().all() and optimizer.state[p]["step"] == n_before + 1
    assert not torch.equal(before[0][0], ordinary)
