"""Frequent Directions of tensors: agreement with fs.FrequentDirections, states, merges, refusals."""

import copy
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fastsketch as fs

torch = pytest.importorskip("torch")
from torch import distributed, multiprocessing  # noqa: E402

from fastsketch.torch import FrequentDirections  # noqa: E402

DTYPES = {torch.float32: np.float32, torch.float64: np.float64}
METHODS = ("rfd", "fd", "pfd", "cfd", "isvd")


def activations(n=3000, d=60, seed=0, mean=2.0):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, d)) @ (rng.standard_normal((d, d)) * np.arange(1, d + 1) ** -0.8)
    return torch.from_numpy(rows + mean)


def made(rows, sketch_size=8, **options):
    return FrequentDirections(sketch_size, **options).update(rows)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.covering(2)
def test_it_agrees_with_the_sketch_on_the_cpu(dtype, center, method):
    """After 300 shrinks; the two differ by the rounding of their products only, so that float64 shows the rule."""
    size, b = 6, 12
    rows = activations(300 * b, 50).to(dtype)
    options = {"method": method, "center": center, "buffer_size": b}
    ours = FrequentDirections(size, **options, dtype=dtype)
    for part in rows.split(700):
        ours.update(part)
    theirs = fs.FrequentDirections(size, solver="gram", **options).update(rows.numpy())
    a, e = ours.spectrum(), theirs.spectrum()
    near = (1e-5 if dtype == torch.float32 else 1e-11) * e.values[0]
    for name in ("values", "low", "high"):
        np.testing.assert_allclose(getattr(a, name).numpy(), getattr(e, name), rtol=0, atol=near)
    for ours_, theirs_ in ((ours.shrinkage, theirs.shrinkage), (ours.error_bound, theirs.error_bound)):
        assert ours_ == pytest.approx(theirs_, abs=near)
    assert ours.squared_norm == pytest.approx(theirs.squared_norm, rel=near / e.values[0])
    assert ours.n_rows == theirs.n_rows
    if center:
        np.testing.assert_allclose(ours.mean.numpy(), theirs.mean, rtol=1e-8 if dtype == torch.float32 else 1e-13)
    # the subspace of the first k directions turns by at most the error over the gap of the squares (Davis and Kahan)
    gaps = e.values[:-1] - e.values[1:]
    for k in np.flatnonzero(gaps > 100 * near) + 1:
        first, second = a.vectors[:k].double().numpy(), e.vectors[:k]
        off = np.linalg.norm(first - first @ second.T @ second, 2)
        assert off <= 4 * near / gaps[k - 1] + 1e-6 * (dtype == torch.float32), k


def test_the_number_of_batches_does_not_matter():
    rows = activations().float()
    once = made(rows).state_dict()
    parts = FrequentDirections(8)
    for part in rows.split(17):
        parts.update(part)
    for name, value in parts.state_dict().items():
        assert torch.equal(value, once[name]) if isinstance(value, torch.Tensor) else value == once[name], name


@pytest.mark.parametrize(
    "dtype",
    [*(torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.int32, torch.bool), torch.float8_e4m3fn],
)
def test_rows_of_every_dtype_and_shape(dtype):
    rows = activations(600, 20, mean=0.0).to(dtype)
    whole = made(rows.double())
    given = rows.reshape(4, 50, 3, 20)
    if dtype.is_floating_point and dtype.itemsize > 1:
        given.requires_grad_()
    sketch = made(given)
    assert sketch.n_rows == 600
    np.testing.assert_allclose(sketch.spectrum().values, whole.spectrum().values, rtol=1e-6)
    assert made(rows[0]).n_rows == 1


def test_it_computes_in_full_precision_whatever_the_caller_has_set():
    rows = activations().float()
    plain = made(rows).state_dict()
    backend = torch.backends.mkldnn.matmul
    before = backend.fp32_precision
    backend.fp32_precision = "bf16"
    try:
        with torch.inference_mode(), torch.autocast("cpu"):
            low = FrequentDirections(8).update(rows)
        assert backend.fp32_precision == "bf16"
    finally:
        backend.fp32_precision = before
    low.update(rows[:0])
    for name, value in low.state_dict().items():
        assert torch.equal(value, plain[name]) if isinstance(value, torch.Tensor) else value == plain[name], name


def test_covariances():
    rows = activations().double()
    sketch = made(rows, dtype=torch.float64)
    b, eye = sketch.sketch(), torch.eye(60, dtype=torch.float64)
    gram = b.T @ b + sketch.alpha * eye
    v = torch.randn(60, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(gram @ sketch.solve(v), v)
    torch.testing.assert_close(gram @ sketch.solve(v[:, 0]), v[:, 0])
    torch.testing.assert_close((b.T @ b + 7 * eye) @ sketch.solve(v, alpha=7.0), v)
    centred = rows[:50] - sketch.mean
    distances = ((centred @ torch.linalg.inv(gram / 3000)) * centred).sum(1)
    torch.testing.assert_close(sketch.mahalanobis(rows[:50].reshape(5, 10, 60)), distances.reshape(5, 10))
    white = sketch.whiten(rows[:50].reshape(5, 10, 60))
    torch.testing.assert_close(white.square().sum(-1), distances.reshape(5, 10))
    torch.testing.assert_close(sketch.whiten(white, inverse=True), rows[:50].reshape(5, 10, 60))
    exact = made(rows[:, :5], method="fd", dtype=torch.float64)  # as many directions as columns: no regulariser
    torch.testing.assert_close(exact.mahalanobis(rows[:, :5]).mean(), torch.tensor(5.0, dtype=torch.float64))
    with pytest.raises(ValueError, match="alpha must be positive"):
        made(rows, method="fd").solve(v)
    with pytest.raises(ValueError, match=r"v must have shape \(60,\)"):
        sketch.solve(v.T)


def test_state_dicts_and_copies(tmp_path):
    rows = activations().float()
    sketch = made(rows[:1234])
    torch.save(sketch.state_dict(), tmp_path / "sketch.pt")
    loaded = FrequentDirections(8)
    loaded.load_state_dict(torch.load(tmp_path / "sketch.pt", weights_only=True))
    copied = copy.deepcopy(sketch)
    for other in (sketch, loaded, copied):
        other.update(rows[1234:])
    for other in (loaded, copied):
        assert all(map(torch.equal, sketch.spectrum(), other.spectrum()))
    empty = FrequentDirections(8)
    empty.load_state_dict(FrequentDirections(8).state_dict())
    assert empty.n_rows == 0
    with pytest.raises(ValueError, match="state_dict must have sketch_size=9 as this sketch, got 8"):
        FrequentDirections(9).load_state_dict(sketch.state_dict())
    state = sketch.state_dict()
    state["buffer"][0, 0] = float("nan")
    before = sketch.state_dict()
    with pytest.raises(ValueError, match="array 'buffer'"):
        sketch.load_state_dict(state)
    with pytest.raises(TypeError, match="must be what state_dict"):
        sketch.load_state_dict({"state": 1})
    with pytest.raises(ValueError, match="must have the arrays that .*BFloat16"):
        sketch.load_state_dict({**state, "buffer": before["buffer"].bfloat16()})
    del state["lam"]
    with pytest.raises(ValueError, match="lam"):
        sketch.load_state_dict(state)
    assert torch.equal(sketch.state_dict()["buffer"], before["buffer"])


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("n", [5, 1000, 1234])
def test_conversions_are_without_loss(center, n):
    rows = activations().float()
    sketch = made(rows[:n], center=center)
    back = FrequentDirections.from_fastsketch(sketch.to_fastsketch())
    there = fs.FrequentDirections(8, buffer_size=24, center=center, solver="gram").update(rows[:n].numpy())
    here = FrequentDirections.from_fastsketch(there).to_fastsketch()
    assert here.error_bound == there.error_bound
    assert np.array_equal(here.sketch(), there.sketch())
    for name, value in sketch.state_dict().items():
        assert torch.equal(value, back.state_dict()[name]) if isinstance(value, torch.Tensor) else True, name
    assert here.update(rows[n:].numpy()).n_rows == back.update(rows[n:]).n_rows == 3000


def test_sketches_that_cannot_be_converted():
    rows = activations().numpy()
    for options in ({"method": "tfd"}, {"decay": 0.9}, {"alpha0": 1.0}, {"tolerance": 0.1}, {"compressor": "srht"}):
        with pytest.raises(ValueError, match="model must have seen dense rows"):
            FrequentDirections.from_fastsketch(fs.FrequentDirections(solver="gram", **options).update(rows))
    refined = fs.FrequentDirections(8, solver="gram").update(rows).refine(rows)
    for model in (fs.FrequentDirections(8), fs.FrequentDirections(8, solver="svd").update(rows), refined):
        with pytest.raises(ValueError, match="model must have seen dense rows"):
            FrequentDirections.from_fastsketch(model)
    weighted = fs.FrequentDirections(8, solver="gram", center=True).update(rows[:10], sample_weight=2.0)
    np.testing.assert_allclose(FrequentDirections.from_fastsketch(weighted).mean, weighted.mean)


def bound_holds(sketch, rows):
    rows = rows.double()
    rows = rows - rows.mean(0) if sketch.center else rows
    b = sketch.sketch().double()
    error = torch.linalg.matrix_norm(rows.T @ rows - b.T @ b - sketch.alpha * torch.eye(rows.shape[1]), 2)
    return error <= sketch.error_bound and sketch.n_rows == len(rows)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("unit", [1.0, 1e-18, 1e16])
def test_merges(dtype, center, unit):
    rows = activations().to(dtype)
    rows[1500:] *= unit  # parts of different scales
    whole = FrequentDirections(8, center=center, dtype=dtype)
    for part in rows.split([3, 997, 500, 1500]):
        whole.merge(made(part, center=center, dtype=dtype))
        whole.merge(FrequentDirections(8, center=center, dtype=dtype))
    assert bound_holds(whole, rows)
    np.testing.assert_allclose(whole.squared_norm, made(rows, center=center, dtype=dtype).squared_norm, rtol=1e-6)
    if center:
        torch.testing.assert_close(whole.mean, rows.double().mean(0), rtol=1e-6, atol=0.0)
    whole.update(rows)
    assert bound_holds(whole, torch.cat([rows, rows]))
    with pytest.raises(ValueError, match="must have n_features=60 as this sketch, got 3"):
        whole.merge(made(rows[:, :3], center=center, dtype=dtype))
    with pytest.raises(ValueError, match="other must have sketch_size=8"):
        whole.merge(FrequentDirections(9))
    with pytest.raises(TypeError, match=r"must be a fastsketch\.torch\.FrequentDirections"):
        whole.merge(fs.FrequentDirections(8))


def reduce_in_process(rank, size, path):
    send, sent = distributed.send, []
    distributed.send = lambda tensor, *to: (sent.append(tensor), send(tensor, *to))
    distributed.init_process_group("gloo", init_method=f"file://{path}/meet", rank=rank, world_size=size)
    for center in (False, True):
        sketch = FrequentDirections(8, center=center).all_reduce()
        assert sketch.n_rows == 0  # nobody has seen rows
        if rank != 1:  # which has none
            sketch.update(activations(seed=rank).float())
        sketch.all_reduce()
        torch.save(sketch.state_dict(), f"{path}/{int(center)}-{rank}.pt")
    assert len(sent) == 4 * bool(rank)  # two sketches, each after its number of bytes
    models = [fs.from_bytes(data.numpy().tobytes()) for data in sent[1::2]]
    assert all(len(model.sketch()) <= 8 and model._engine.state.fill <= 8 for model in models if model.n_rows)
    try:
        FrequentDirections(8 + rank).all_reduce()
    except ValueError as error:
        Path(f"{path}/error-{rank}").write_text(str(error))
    leave()


def leave():
    """End a process of a group: no process closes connections that another uses, and no thread outlives Python.

    A thread of gloo that wants the interpreter's lock while the interpreter shuts down aborts the process.
    """
    distributed.barrier()
    distributed.destroy_process_group()
    os._exit(0)


@pytest.mark.parametrize("size", [2, 3])
def test_all_reduce(size, tmp_path):
    multiprocessing.spawn(reduce_in_process, (size, str(tmp_path)), nprocs=size)
    rows = torch.cat([activations(seed=rank).float() for rank in range(size) if rank != 1])
    for center in (False, True):
        states = [torch.load(tmp_path / f"{int(center)}-{rank}.pt") for rank in range(size)]
        for state in states[1:]:
            for name, value in state.items():
                same = torch.equal(value, states[0][name]) if isinstance(value, torch.Tensor) else True
                assert same, name
        sketch = FrequentDirections(8, center=center)
        sketch.load_state_dict(states[0])
        assert bound_holds(sketch, rows)
        parts = [made(rows[k : k + 3000], center=center) for k in range(0, len(rows), 3000)]
        if center:  # merges of centred sketches shrink both of them: nothing is lost by shrinking what is sent
            together = parts[0].merge(parts[1]) if size > 2 else parts[0]
            assert sketch.error_bound == together.error_bound
            assert all(map(torch.equal, sketch.spectrum(), together.spectrum()))
    for rank in range(size):
        assert f"must have sketch_size={8 + rank} as this sketch" in (tmp_path / f"error-{rank}").read_text()


def test_a_sketch_on_a_model_is_not_changed_by_casts_and_wrappers(tmp_path):
    class Watched(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(60, 3)
            self.sketch = FrequentDirections(8)

        def forward(self, x):
            self.sketch.update(x)
            return self.linear(x.to(self.linear.weight.dtype))

    rows = activations().float()
    model = Watched()
    model(rows[:100])
    assert not [name for name in model.state_dict() if "sketch" in name]
    model.to(torch.bfloat16).half().float().bfloat16()
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        torch.nn.parallel.DistributedDataParallel(model)(rows[100:])
    finally:
        distributed.destroy_process_group()
    assert all(map(torch.equal, model.sketch.spectrum(), made(rows).spectrum()))


def test_transfers_between_a_device_and_the_cpu():
    """One small matrix each way a shrink and two numbers a batch; nothing as wide as a row."""
    pytest.importorskip("torch.utils.backend_registration")
    command = [sys.executable, "-P", Path(__file__).with_name("fake_device.py")]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if "cannot have a device in Python" in run.stderr:
        pytest.skip("this torch cannot have a device in Python")
    assert run.returncode == 0, run.stderr
    first, many, last = json.loads(run.stdout)
    m, size = 24, 4
    assert first == last == {"to_cpu": [[2]], "to_device": []}
    assert many["to_cpu"] == [[2], [m * m], *[[m * m + size]] * (len(many["to_cpu"]) - 2)]
    assert many["to_device"] == [[size, m]] * (len(many["to_cpu"]) - 1)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_cuda():
    rows = activations().float()
    there = made(rows.cuda())
    near = 1e-5 * there.spectrum().values[0]
    torch.testing.assert_close(there.spectrum().values, made(rows).spectrum().values, rtol=0.0, atol=float(near))
    assert there.components.is_cuda
    assert bound_holds(there.to("cpu"), rows)


BAD = {
    "nan": (lambda x: x.index_put((torch.tensor([7]), torch.tensor([3])), torch.tensor(float("nan"))), "row 7 holds"),
    "inf": (lambda x: x.index_put((torch.tensor([2]), torch.tensor([3])), torch.tensor(-float("inf"))), "row 2 holds"),
    "inf in float16": (lambda x: x.half().index_fill(0, torch.tensor([4]), float("inf")), "row 4 holds"),
    "nan in bfloat16": (lambda x: x.bfloat16().index_fill(0, torch.tensor([4]), float("nan")), "row 4 holds"),
    "beyond float32": (lambda x: x.double() * 1e300, r"row 0 holds .* \(as float32\)"),
    "width": (lambda x: x[:, :7], "must have 60 columns as the rows before, got 7"),
    "no columns": (lambda x: x[:, :0], "at least one column"),
    "a number": (lambda x: x[0, 0], "at least one column"),
    "complex": (lambda x: x + 1j, "dense tensor of real numbers"),
    "sparse": (lambda x: x.to_sparse(), "dense tensor of real numbers"),
    "meta": (lambda x: x.to("meta"), "dense tensor of real numbers"),
    "nested": (
        lambda x: torch.nested.as_nested_tensor([x[:3], x[:2]], layout=torch.strided),
        "real numbers, got nested",
    ),
    "array": (lambda x: x.numpy(), "rows must be a tensor, got ndarray"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("n", [0, 20, 1000])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_bad_rows_change_nothing(case, n):
    rows = activations(400).float()
    sketch = FrequentDirections(8).update(rows[:1] if not n else activations(n).float())
    before = sketch.state_dict()
    change, message = BAD[case]
    with pytest.raises((TypeError, ValueError), match=message):
        sketch.update(change(rows))
    for name, value in sketch.state_dict().items():
        assert torch.equal(value, before[name]) if isinstance(value, torch.Tensor) else value == before[name], name


def test_a_failed_shrink_is_rolled_back(monkeypatch):
    rows = activations().float()
    sketch = made(rows[:1000])
    before = sketch.state_dict()

    def fails(gram, k):
        raise np.linalg.LinAlgError

    with monkeypatch.context() as patch:
        patch.setattr("fastsketch.torch._device_engine.top_eigh", fails)
        with pytest.raises(np.linalg.LinAlgError):
            sketch.update(rows * 1e-30)
        with pytest.raises(np.linalg.LinAlgError):
            FrequentDirections(8).update(rows)
    for name, value in sketch.state_dict().items():
        assert torch.equal(value, before[name]) if isinstance(value, torch.Tensor) else value == before[name], name
    assert sketch.update(rows[1000:]).n_rows == 3000


def test_rows_that_are_all_equal_or_zero():
    same = torch.full((500, 20), 3.25)
    sketch = made(same)
    assert sketch.error_bound == 0.0
    assert torch.equal(sketch.mean, same[0].double())
    assert (sketch.spectrum().high < 1e-300).all()
    assert made(torch.zeros(500, 20), center=False).error_bound == 0.0


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("center", [False, True])
def test_equal_rows_far_longer_than_those_before(dtype, center):
    for length in (1e6, 1e12, 1e20, 3e38):
        rows = torch.cat([activations(50, 20).to(dtype), torch.full((300, 20), length, dtype=dtype)])
        options = {"center": center, "buffer_size": 40}
        ours = FrequentDirections(8, dtype=dtype, **options).update(rows).spectrum()
        theirs = fs.FrequentDirections(8, solver="gram", **options).update(rows.numpy()).spectrum()
        assert float(ours.values[0]) == pytest.approx(theirs.values[0], rel=1e-5)


ABSENT = "xpu" if torch.cuda.is_available() else "cuda"  # a device that torch knows and this machine lacks


def test_bad_parameters():
    for options, message in (
        ({"sketch_size": 1}, "sketch_size must be at least 2"),
        ({"method": "tfd"}, "method must be one of 'fd', 'pfd', 'cfd', 'isvd', 'rfd'"),
        ({"center": 1}, "center must be True or False"),
        ({"buffer_size": 0}, "buffer_size must be at least 1"),
        ({"dtype": torch.bfloat16}, r"dtype must be torch\.float32 or torch\.float64"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            FrequentDirections(**options)
    for device, message in (
        ("gpu", "device must be one that torch can use here"),
        (ABSENT, "device must be one that torch can use here"),
        ("meta", "must hold numbers"),
        (None, "got NoneType"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            FrequentDirections(8).to(device)
    with pytest.raises(ValueError, match="has seen no rows"):
        FrequentDirections(8).spectrum()
    assert FrequentDirections(8).error_bound == 0.0
    assert repr(made(activations())) == "<FrequentDirections(sketch_size=8): 3,000 rows of 60 features>"


def test_memory_is_known_before():
    sketch = FrequentDirections(64)
    held = 4 * (64 + 320) * 4096
    assert held < sketch.memory_bytes(4096) < 3 * held
