"""Sketches of activations and gradients of a network."""

import json
import os
import socket
import warnings

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from fastsketch.torch import FrequentDirections, collect, load_sketches, save_sketches  # noqa: E402


class Net(nn.Module):
    """Two linear layers on sequences, the first called twice; the second may be checkpointed."""

    def __init__(self, reentrant=None):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.unused = nn.Linear(12, 12), nn.Linear(12, 3), nn.Linear(4, 4)
        self.reentrant = reentrant

    def forward(self, x, attention_mask=None, fail=False):
        x = self.first(self.first(x).tanh()).tanh()
        if fail:
            raise RuntimeError("inside the model")
        if self.reentrant is None:
            return self.second(x)
        return checkpoint(self.second, x, use_reentrant=self.reentrant)


def batches(n=6, dtype=torch.float32):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(5, 7, 12, generator=generator, dtype=dtype) for _ in range(n)]


def same(sketch, rows, **options):
    there = FrequentDirections(8, **options)
    for part in rows:
        there.update(part)
    torch.testing.assert_close(sketch.spectrum().values, there.spectrum().values)
    assert sketch.n_rows == there.n_rows


def hooks(model):
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks) for m in model.modules())


def test_inputs_and_outputs():
    model = Net()
    with torch.no_grad():
        inside = [(x, model.first(x).tanh()) for x in batches()]
        last = [model.first(y).tanh() for _, y in inside]
        results = [model.second(y) for y in last]
    inputs = collect(model, batches(), modules=["first", "second"], sketch_size=8)
    same(inputs["first"], [part for pair in inside for part in pair])
    same(inputs["second"], last)
    outputs = collect(model, batches(), modules="sec*", of="outputs", sketch_size=8, center=False)
    same(outputs["second"], results, center=False)
    assert all(p.grad is None for p in model.parameters())
    assert hooks(model) == 0


@pytest.mark.filterwarnings("ignore:modules .unused. gave no rows:UserWarning")
def test_a_module_with_two_names():
    model = Net()
    model.again = model.first
    found = collect(model, batches(), modules="again", sketch_size=8)
    same(found["again"], [x for pair in ((x, model.first(x).tanh().detach()) for x in batches()) for x in pair])
    assert list(collect(model, batches(), modules=nn.Linear, of="outputs", sketch_size=8)) == [
        "first",
        "second",
        "unused",
    ]


@pytest.mark.parametrize("reentrant", [None, False, True])
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad:UserWarning")
def test_gradients_are_counted_once(reentrant):
    model = Net(reentrant)

    def step(model, x):
        return model(x.clone().requires_grad_()).square().mean()

    rows = []
    for x in batches():
        out = model.second(model.first(model.first(x).tanh()).tanh())
        rows += torch.autograd.grad(out.square().mean(), out)
    sketches = collect(model, batches(), modules=["first", "second"], of="gradients", forward=step, sketch_size=8)
    same(sketches["second"], rows)
    assert sketches["first"].n_rows == 2 * 6 * 35
    assert model.second.weight.grad is not None
    inputs = collect(model, batches(), modules="second", sketch_size=8)
    assert inputs["second"].n_rows == 6 * 35


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputed_inputs_are_not_counted_in_a_training_step(reentrant):
    model, seen = Net(reentrant), []

    def step(model, x):
        with torch.enable_grad():
            model(x).square().mean().backward()
        seen.append(x)

    assert collect(model, batches(), modules="second", forward=step, sketch_size=8)["second"].n_rows == 6 * 35
    assert len(seen) == 6


def test_masks_and_means():
    model = Net()
    masks = [torch.arange(7) < torch.tensor([[7], [3], [1], [0], [5]])] * 6
    given = [{"x": x, "attention_mask": mask.long()} for x, mask in zip(batches(), masks, strict=True)]
    tokens = collect(model, given, modules="second", mask="attention_mask", sketch_size=8)["second"]
    with torch.no_grad():
        states = [model.first(model.first(x).tanh()).tanh() for x in batches()]
    same(tokens, [state[mask] for state, mask in zip(states, masks, strict=True)])
    means = collect(
        model, given, modules="second", reduce="mean", mask=lambda batch: batch["attention_mask"] > 0, sketch_size=8
    )["second"]
    wanted = [
        torch.stack([s[m].mean(0) for s, m in zip(*pair, strict=True) if m.any()])
        for pair in zip(states, masks, strict=True)
    ]
    same(means, wanted)
    whole = collect(model, batches(), modules="second", reduce="mean", sketch_size=8)["second"]
    same(whole, [state.mean(1) for state in states])
    with pytest.raises(
        ValueError, match=r"mask must have the shape \(batch, tokens\) of module 'second', \(5, 7\), got"
    ):
        collect(model, batches(), modules="second", mask=lambda batch: torch.ones(5, 6))
    with pytest.raises(ValueError, match="reduce='mean' needs tensors"):
        collect(model, [torch.ones(3, 12)], modules="second", reduce="mean")
    assert hooks(model) == 0


def test_an_exception_removes_the_hooks():
    model = Net()
    with pytest.raises(RuntimeError, match="inside the model"):
        collect(model, [{"x": batches()[0], "fail": True}], modules=nn.Linear)
    broken = [{"x": torch.full((5, 7, 12), float("nan"))}]
    with pytest.raises(ValueError, match="row 0 holds a NaN") as raised:
        collect(model, broken, modules=nn.Linear)
    assert raised.value.__notes__ == ["in the inputs of module 'first'"]
    assert hooks(model) == 0


def test_backward_after_the_end_adds_no_rows():
    model, outputs = Net(), []

    def forward(model, batch):
        outputs.append(model(batch))
        if len(outputs) % 2 == 0:  # gradients are accumulated over two steps, and the last step is left
            sum(output.sum() for output in outputs[-2:]).backward()

    sketch = collect(model, batches(3), modules="second", of="gradients", forward=forward)["second"]
    assert sketch.n_rows == 2 * 35
    outputs[-1].sum().backward()
    assert sketch.n_rows == 2 * 35


def test_modules_without_rows():
    model = Net()
    with pytest.warns(UserWarning, match="modules 'unused' gave no rows: they were not called"):
        found = collect(model, batches(), modules=nn.Linear, sketch_size=8)
    assert found["unused"].n_rows == 0
    model.first.requires_grad_(False)
    with pytest.warns(UserWarning, match="modules 'first' gave no rows: no gradient reached"):
        collect(model, batches(), modules=["first", "second"], of="gradients", forward=lambda m, x: m(x).sum())
    for modules, message in (
        ("frist", "did you mean 'first'"),
        (nn.Conv2d, "no module <class"),
        ([nn.Linear, "zz"], "no module 'zz'"),
        (["zz*"], "named_modules"),
    ):
        with pytest.raises(ValueError, match=message):
            collect(model, batches(), modules=modules)
    with pytest.raises(ValueError, match="of must be one of"):
        collect(model, batches(), modules="first", of="weights")
    with pytest.raises(ValueError, match=r"needs a loss, a tensor of one element, got Tensor of shape \(5, 7, 3\)"):
        collect(model, batches(), modules="first", of="gradients")
    with pytest.raises(ValueError, match="max_memory is 1000 bytes, the sketches up to 'first' take"):
        collect(model, batches(), modules="first", max_memory=1e3)
    with pytest.raises(TypeError, match="DataParallel"):
        collect(nn.DataParallel(model), batches(), modules="first")


def test_autocast_and_ddp():
    model = Net()
    plain = collect(model, batches(), modules="second", sketch_size=8)["second"]
    with torch.autocast("cpu", torch.bfloat16):
        half = collect(model, batches(), modules="second", sketch_size=8)["second"]
    values = plain.spectrum().values
    assert half.n_rows == plain.n_rows
    torch.testing.assert_close(half.spectrum().values, values, rtol=0.0, atol=0.02 * float(values[0]))
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(held.getsockname()[1]))
    torch.distributed.init_process_group("gloo", rank=0, world_size=1)
    try:
        wrapped = nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
        there = collect(wrapped, batches(), modules="second", sketch_size=8)["second"].all_reduce()
        gradients = collect(wrapped, batches(), modules="second", of="gradients", forward=lambda m, x: m(x).sum())
    finally:
        torch.distributed.destroy_process_group()
    torch.testing.assert_close(there.spectrum().values, values)
    assert gradients["second"].n_rows == 6 * 35


def test_progress(capsys):
    collect(Net(), batches(), modules="second", progress=True, sketch_size=8)
    assert "collect: 100%  210 rows" in capsys.readouterr().err


@pytest.mark.parametrize("ending", ["pt", "safetensors"])
def test_saved_sketches(tmp_path, ending):
    if ending == "safetensors":
        pytest.importorskip("safetensors")
    path = tmp_path / f"sketches.{ending}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = collect(Net(), batches(), modules=nn.Linear, sketch_size=8)
    save_sketches(found, path)
    loaded = load_sketches(path)
    assert loaded.keys() == found.keys()
    for name, sketch in found.items():
        assert loaded[name].n_rows == sketch.n_rows
        if sketch.n_rows:
            assert all(map(torch.equal, loaded[name].spectrum(), sketch.spectrum()))


@pytest.mark.parametrize("ending", ["pt", "safetensors"])
def test_files_that_are_no_sketches(tmp_path, ending):
    path = tmp_path / f"sketches.{ending}"
    with pytest.raises(FileNotFoundError):
        load_sketches(path)
    path.write_bytes(b"junk" * 100)
    with pytest.raises(ValueError, match="is not a file of sketches"):
        load_sketches(path)
    others = [[1], {"a": 3}, {"a": {"sketch_size": 4}}, {"a": {**FrequentDirections(4).state_dict(), "n_features": 3}}]
    for other in others:
        if ending == "pt":
            torch.save(other, path)
        else:
            save_file = pytest.importorskip("safetensors.torch").save_file
            save_file({"a/lam": torch.zeros(3)}, path, {"fastsketch": json.dumps(other)})
        with pytest.raises(ValueError, match="is not a file of sketches"):
            load_sketches(path)
    if ending == "safetensors":
        for metadata in (None, {"fastsketch": "{"}):
            save_file({"lam": torch.zeros(3)}, path, metadata)
            with pytest.raises(ValueError, match="is not a file of sketches"):
                load_sketches(path)
    for device in ("gpu", "meta"):
        with pytest.raises(ValueError, match="device must"):
            load_sketches(path, device=device)


def test_arguments_of_other_types():
    model = Net()
    for options, message in (
        ({"modules": model.first}, "modules must be names or classes of modules, got Linear"),
        ({"modules": [3]}, "modules must be names or classes of modules, got int"),
        ({"modules": None}, "modules must be names or classes of modules, got NoneType"),
        ({"modules": []}, "modules must have at least one name or class"),
        ({"batches": None}, "batches must be an iterable of batches, got NoneType"),
        ({"forward": 3}, "forward must be a function of the model and a batch, got int"),
        ({"mask": torch.ones(5, 7)}, "mask must be a name or a function of a batch, got Tensor"),
        ({"mask": lambda batch: None}, r"mask must give a tensor \(batch, tokens\), got NoneType"),
        ({"mask": lambda batch: torch.full((5, 7), float("nan"))}, "mask must be zero or nonzero for each token"),
        ({"max_memory": "1 GB"}, "max_memory"),
        ({"max_memory": -1.0}, "max_memory"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            collect(**{"model": model, "batches": batches(), "modules": "first", **options})
    for empty in (batches()[0][:0], batches()[0]):
        with pytest.warns(UserWarning, match="or the mask kept no token"):
            collect(model, [empty], modules="first", mask=lambda batch: torch.zeros(batch.shape[:2]))
    assert hooks(model) == 0
