"""The torch optimisers against the paper's algorithms, and what torch's users expect of an optimiser."""

import copy
import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from fastsketch import reference  # noqa: E402
from fastsketch._kernels.online.turning import MOST_TURNS  # noqa: E402
from fastsketch.torch import AdaFD, AdaFFD  # noqa: E402

torch.set_num_threads(1)  # tensors are small: threads would only wait for each other
BOTH = pytest.mark.parametrize("kind", [AdaFD, AdaFFD])


def stream(d=24, n=400, seed=0, rank=None):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, d)) / np.sqrt(np.arange(1, d + 1))
    if rank:
        rows = rows[:, :rank] @ rng.standard_normal((rank, d))
    return rows, rows @ rng.standard_normal(d)


def run(optimizer, w, rows, y, first=0):
    """Run the online absolute loss through torch's gradients; return the losses."""
    losses = []
    for x, target in zip(rows[first:], y[first:], strict=True):
        optimizer.zero_grad()
        loss = (w.reshape(-1) @ torch.as_tensor(x, dtype=w.dtype) - float(target)).abs()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return np.array(losses)


@pytest.mark.parametrize("rank", [None, 3])
@BOTH
def test_the_papers_algorithms(kind, rank):
    """float64: the reference's weights; float32 near them; over shrinks, rebases and rank-deficient gradients."""
    rows, y = stream(rank=rank)
    d, n = 24, len(rows)

    def subgradient(t, beta):
        r = rows[t - 1] @ beta - y[t - 1]
        return abs(r), np.sign(r) * rows[t - 1]

    call = reference.adaptive_frequent_directions if kind is AdaFD else reference.adaptive_fast_frequent_directions
    beta, losses = call(d, n, subgradient=subgradient, sketch_size=5, learning_rate=0.3, delta=1.0)
    w = torch.zeros(4, 6, dtype=torch.float64, requires_grad=True)
    ours = run(kind([w], lr=0.3, delta=1.0, sketch_size=5, sketched=True), w, rows, y)
    assert np.abs(w.detach().numpy().reshape(-1) - beta).max() <= 1e-9 * np.abs(beta).max()
    assert np.allclose(ours, losses, rtol=1e-7, atol=1e-9)
    single = torch.zeros(24, requires_grad=True)
    ours = run(kind([single], lr=0.3, delta=1.0, sketch_size=5, sketched=True), single, rows, y)
    assert abs(ours.sum() - losses.sum()) < 0.02 * losses.sum()


def test_the_diagonal_is_adagrad():
    rows, y = stream()
    ours, theirs = (torch.zeros(24, dtype=torch.float64, requires_grad=True) for _ in range(2))
    run(AdaFFD([ours], lr=0.1, sketched=False, eps=1e-10), ours, rows, y)
    run(torch.optim.Adagrad([theirs], lr=0.1, eps=1e-10), theirs, rows, y)
    assert torch.allclose(ours, theirs, rtol=1e-12)


@BOTH
def test_directions_stay_orthonormal(kind, amount):
    """For 20,000 steps in float32: |V'V - I| at the level of float32, not growing."""
    torch.manual_seed(0)
    w = torch.zeros(30, 4, requires_grad=True)
    optimizer = kind([w], sketch_size=6)
    basis = torch.randn(4, 120)
    for t in range(amount(2_000, 20_000)):
        w.grad = torch.randn(30, 4) if t % 3 else (torch.randn(4) @ basis).reshape(30, 4)
        optimizer.step()
    state = optimizer.state[w]
    rank, n = state["rank"], state["n_rows"]
    v = state["turn"][:rank, :n] @ state["rows"][:n].double()
    assert (v @ v.T - torch.eye(rank)).abs().max() < 1e-5
    assert state["turns"] < MOST_TURNS


def network(dtype=torch.float32):
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(4 * 36, 10)
    ).to(dtype)


def batches(n, dtype=torch.float32):
    generator = torch.Generator().manual_seed(1)
    for _ in range(n):
        yield (torch.randn(16, 1, 8, 8, generator=generator).to(dtype), torch.randint(10, (16,), generator=generator))


def train(model, optimizer, data):
    for x, y in data:

        def closure(x=x, y=y):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x).float(), y)
            loss.backward()
            return loss

        loss = optimizer.step(closure)
    return loss.item()


def groups(model):
    return [
        {"params": model[0].parameters(), "sketched": "auto", "lr": 0.02},
        {"params": model[3].parameters(), "sketched": False},
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@BOTH
def test_resumed_equals_uninterrupted(kind, dtype, tmp_path):
    """Through torch.save and load_state_dict, in the state's own dtypes, bit for bit."""
    data = list(batches(60, dtype))
    whole = network(dtype)
    train(whole, kind(groups(whole), sketch_size=4), data)
    half = network(dtype)
    optimizer = kind(groups(half), sketch_size=4)
    train(half, optimizer, data[:31])
    torch.save({"model": half.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "half.pt")
    saved = torch.load(tmp_path / "half.pt", weights_only=True)
    again = network(dtype)
    again.load_state_dict(saved["model"])
    resumed = kind(groups(again), sketch_size=4)
    resumed.load_state_dict(saved["optimizer"])
    for p in again[0].parameters():
        for name, value in resumed.state[p].items():
            if isinstance(value, torch.Tensor):
                assert value.dtype in (torch.float64, torch.float32), name
    train(again, resumed, data[31:])
    train(half, pickle.loads(pickle.dumps(optimizer)) and optimizer, data[31:])
    for a, b, c in zip(whole.parameters(), again.parameters(), half.parameters(), strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a, c)


@BOTH
def test_training_goes_down_and_closures_return_the_loss(kind):
    model = network()
    data = list(batches(1)) * 60
    first = train(model, kind(model.parameters(), lr=0.3, sketch_size=5), data[:1])
    assert train(model, kind(model.parameters(), lr=0.3, sketch_size=5), data) < 0.3 * first


def test_maximize_and_weight_decay():
    rows, y = stream(n=50)
    down, up = (torch.zeros(24, dtype=torch.float64, requires_grad=True) for _ in range(2))
    run(AdaFFD([down], lr=0.1, sketched=True, sketch_size=4), down, rows, y)
    optimizer = AdaFFD([up], lr=0.1, sketched=True, sketch_size=4, maximize=True)
    for x, target in zip(rows, y, strict=True):
        optimizer.zero_grad()
        (-(up @ torch.as_tensor(x) - target).abs()).backward()
        optimizer.step()
    assert torch.equal(down, up)
    w = torch.ones(3, 3, dtype=torch.float64, requires_grad=True)
    optimizer = AdaFFD([w], lr=0.5, weight_decay=0.1, delta=1.0, sketch_size=2)
    w.grad = torch.zeros(3, 3, dtype=torch.float64)
    optimizer.step()
    # g = 0.1 w alone: H^-1 g = g / (delta + |g|)
    assert torch.allclose(w, torch.full((3, 3), 1 - 0.5 * 0.1 / 1.3, dtype=torch.float64))


@BOTH
def test_the_defaults_learn_in_any_units_of_the_gradient(kind):
    """The defaults lower the loss to less than a third in 60 steps; the loss times 1,000 has the same steps."""
    model, scaled = network(torch.float64), network(torch.float64)
    data = list(batches(1, torch.float64)) * 60
    optimizer, of_scaled = kind(model.parameters(), eps=1e-14), kind(scaled.parameters(), eps=1e-14)
    model[0].bias.grad = torch.zeros_like(model[0].bias)
    optimizer.step()  # a gradient of zero gives no unit
    losses = []
    for x, y in data:
        for net, steps, factor in ((model, optimizer, 1), (scaled, of_scaled, 1000)):
            steps.zero_grad()
            loss = torch.nn.functional.cross_entropy(net(x), y)
            (factor * loss).backward()
            steps.step()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]
    for a, b in zip(model.parameters(), scaled.parameters(), strict=True):
        assert torch.allclose(a, b, rtol=1e-6, atol=1e-9)


def test_memory_and_the_choice_of_tensors():
    model = network()
    optimizer = AdaFFD(model.parameters(), sketch_size=4, max_elements=1000)
    estimate = optimizer.memory_estimate()
    assert [entry["kind"] for entry in estimate] == ["sketch", "diagonal", "diagonal", "diagonal"]
    train(model, optimizer, batches(3))
    for entry, p in zip(estimate, model.parameters(), strict=True):
        held = sum(t.numel() * t.element_size() for t in optimizer.state[p].values() if isinstance(t, torch.Tensor))
        assert entry["bytes"] == held
        assert entry["shape"] == tuple(p.shape)
    assert {entry["kind"] for entry in AdaFD(model.parameters(), sketched=True).memory_estimate()} == {"sketch"}


@BOTH
def test_bad_gradients_change_nothing(kind):
    model = network()
    optimizer = kind(model.parameters(), sketch_size=4)
    train(model, optimizer, batches(12))
    before = [p.detach().clone() for p in model.parameters()]
    state = copy.deepcopy(optimizer.state_dict())
    for bad in (float("nan"), float("inf")):
        list(model.parameters())[-1].grad.fill_(bad)
        with pytest.raises(FloatingPointError, match="nothing has been changed"):
            optimizer.step()
        assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    after = optimizer.state_dict()
    for i, entry in state["state"].items():
        for name, value in entry.items():
            same = (
                torch.equal(value, after["state"][i][name])
                if isinstance(value, torch.Tensor)
                else (value == after["state"][i][name])
            )
            assert same, name
    embedding = torch.nn.Embedding(10, 3, sparse=True)
    embedding(torch.tensor([1, 2])).sum().backward()
    with pytest.raises(RuntimeError, match="dense"):
        kind(embedding.parameters()).step()
    # a gradient of zero, and a parameter that has none
    model[3].bias.grad.zero_()
    model[0].weight.grad.zero_()
    model[0].bias.grad = None
    optimizer.step()
    assert torch.equal(model[0].weight, before[0])


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"lr": -1.0}, ValueError, "lr"),
        ({"sketch_size": 1}, ValueError, "sketch_size"),
        ({"sketch_size": 2.5}, TypeError, "sketch_size"),
        ({"delta": 0.0}, ValueError, "delta"),
        ({"eps": 0.0}, ValueError, "eps"),
        ({"weight_decay": -0.1}, ValueError, "weight_decay"),
        ({"sketched": "x"}, ValueError, "sketched"),
        ({"sketched": 1}, ValueError, "sketched"),
        ({"max_elements": -1}, ValueError, "max_elements"),
    ],
)
def test_bad_options_are_named(options, error, match):
    with pytest.raises(error, match=match):
        AdaFFD([torch.zeros(3, 3, requires_grad=True)], **options)
    with pytest.raises(error, match=match):
        AdaFFD([{"params": [torch.zeros(3, 3, requires_grad=True)], **options}])


def test_schedulers_and_later_groups():
    w, v = torch.ones(3, 3, requires_grad=True), torch.ones(2, requires_grad=True)
    optimizer = AdaFFD([w], lr=1.0, sketch_size=2)
    optimizer.add_param_group({"params": [v], "lr": 0.1})
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    (w.sum() + v.sum()).backward()
    optimizer.step()
    scheduler.step()
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 0.05]
    assert "AdaFFD" in repr(optimizer)


def test_unknown_options_are_named():
    with pytest.raises(TypeError, match=r"AdaFD\(\) has no parameter 'sketch_sise': did you mean 'sketch_size'\?"):
        AdaFD([torch.zeros(3, 3, requires_grad=True)], sketch_sise=3)


def test_a_group_without_parameters_is_named():
    optimizer = AdaFD([torch.zeros(3, 3, requires_grad=True)])
    with pytest.raises(ValueError, match="param_group must hold 'params', got 'a'"):
        optimizer.add_param_group({"a": 1})
    assert len(optimizer.param_groups) == 1


@pytest.mark.parametrize("state", [3, b"x", [], np.ones(3), {}, {"state": {}}, {"state": [], "param_groups": []}])
def test_what_is_no_state_is_refused(state):
    with pytest.raises(TypeError, match="state_dict must be what state_dict"):
        AdaFFD(network().parameters()).load_state_dict(state)
