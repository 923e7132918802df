"""SketchedSOAP against plain NumPy, whole matrices and AdamW, and what torch's users expect of an optimiser."""

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from fastsketch.torch import AdaFFD, SketchedSOAP  # noqa: E402
from fastsketch.torch._side import draw  # noqa: E402

torch.set_num_threads(1)
RANK = 4
SMALL = {"rank": RANK, "every": 5, "sketched": True}


def side(u, values, lost, g, keep, step):
    """Return the sketch of keep (the sum so far) + (1 - keep) g g', of whole matrices."""
    total = keep * (u * values) @ u.T + (1 - keep) * g @ g.T
    random = draw(len(u), step, like=torch.zeros(1, dtype=torch.float64)).numpy()
    tried = np.linalg.qr(np.hstack([u, random]))[0]
    near = total @ tried @ np.linalg.solve(tried.T @ total @ tried, tried.T @ total)
    eigenvalues, vectors = (x[..., ::-1] for x in np.linalg.eigh((near + near.T) / 2))
    k = len(values)
    lost = keep * lost + eigenvalues[k] + np.trace(total) - np.trace(near)
    return vectors[:, :k], eigenvalues[:k] - eigenvalues[k], lost


def reference(w, gradients, *, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, decay=0.01, every=5, keep=0.99**5):
    """Return the weights (m, n) after Adam in the directions of both sides; mean squares of all pairs as one matrix.

    Rows of `squares` are k directions and m elements, its columns k directions and n elements.
    """
    m, n = w.shape
    k, (beta1, beta2) = RANK, betas
    u, v = np.eye(m, k), np.eye(n, k)
    a, b, lost_a, lost_b = np.zeros(k), np.zeros(k), 0.0, 0.0
    mean, squares = np.zeros((m, n)), np.zeros((k + m, k + n))
    for t, g in enumerate(gradients, 1):
        mean = beta1 * mean + (1 - beta1) * g
        if (t - 1) % every == 0:
            old_u, old_v = u, v
            u, a, lost_a = side(u, a, lost_a, g, keep, t)
            v, b, lost_b = side(v, b, lost_b, g.T, keep, t)
            maps = []
            for old, new in ((old_u, u), (old_v, v)):
                shares = (old.T @ new) ** 2
                rest = np.maximum(1 - shares.sum(axis=0), 0) * new**2
                maps.append(np.block([[shares, np.zeros((k, len(new)))], [rest, np.eye(len(new))]]))
            squares = maps[0].T @ squares @ maps[1]
        beside_u, beside_v = np.eye(m) - u @ u.T, np.eye(n) - v @ v.T
        split_u, split_v = np.hstack([u, beside_u]), np.hstack([v, beside_v])
        squares = beta2 * squares + (1 - beta2) * (split_u.T @ g @ split_v) ** 2
        root = np.sqrt(squares / (1 - beta2**t)) + eps
        root += 4 * np.sqrt(np.finfo(float).eps / root.size) * np.linalg.norm(root)
        steps = split_u.T @ (mean / (1 - beta1**t)) @ split_v / root
        for block in (steps[:k], steps[k:, :k]):
            block *= max(1, 0.2 * (m * n) ** 0.25)
        move = split_u @ steps @ split_v.T
        w = (1 - lr * decay) * w - lr * move
    return w


def gradients(n_steps, m=24, n=30, seed=0):
    """Return gradients (n_steps, m, n) of falling singular values in a basis that turns slowly."""
    rng = np.random.default_rng(seed)
    scale = 1 / np.sqrt(np.arange(1, m + 1))[:, None] / np.sqrt(np.arange(1, n + 1))
    turn = np.linalg.qr(rng.standard_normal((m, m)))[0]
    return [turn @ (scale * (1 + rng.standard_normal((m, n)))) for _ in range(n_steps)]


def run(optimizer, p, rows):
    for g in rows:
        p.grad = torch.as_tensor(g, dtype=p.dtype)
        optimizer.step()
    return p.detach().double().numpy()


def test_200_steps_are_those_of_plain_numpy():
    rows, start = gradients(200), np.random.default_rng(1).standard_normal((24, 30))
    expected = reference(start, rows)
    p = torch.tensor(start, requires_grad=True)
    got = run(SketchedSOAP([p], **SMALL), p, rows)
    assert np.abs(got - expected).max() < 1e-9
    single = torch.tensor(start, dtype=torch.float32, requires_grad=True)
    got = run(SketchedSOAP([single], **SMALL), single, rows)
    assert np.abs(got - expected).max() < 0.02 * np.abs(expected - start).max()


@pytest.mark.parametrize("shape", [(30,), (), (0, 3), (3, 0), (12, 20), (90, 30)])
def test_what_is_not_sketched_is_adamw(shape):
    """Vectors, numbers, empty tensors, small sides, an embedding with two words in its first batch."""
    options = {"lr": 0.01, "betas": (0.8, 0.9), "weight_decay": 0.1, "eps": 1e-6}
    ours, theirs = (torch.ones(shape, dtype=torch.float64, requires_grad=True) for _ in range(2))
    rng = np.random.default_rng(0)
    rows = [rng.standard_normal(shape) for _ in range(30)]
    if shape == (90, 30):
        rows[0][2:] = 0
    run(SketchedSOAP([ours], rank=RANK, **options), ours, rows)
    run(torch.optim.AdamW([theirs], **options), theirs, rows)
    assert torch.allclose(ours, theirs, rtol=1e-12)
    kind = SketchedSOAP([ours], rank=RANK, sketched=True).facts()[0]["kind"]
    assert kind == ("sketch" if shape == (90, 30) else "adam")


def test_auto_sketches_what_has_even_gradients():
    """Hidden matrices of any shape and filters, before an embedding and a head of many words, which most rows lack."""
    torch.manual_seed(0)
    rows, vocabulary = torch.randint(0, 40, (16, 12)), 2000
    weights = [torch.randn(shape) / 5 for shape in ((vocabulary, 32), (32, 32, 3), (160, 32), (vocabulary, 160))]
    weights = [w.requires_grad_() for w in weights]
    embedding, taps, wide, head = weights
    optimizer = SketchedSOAP(weights, rank=RANK)
    assert {entry["kind"] for entry in optimizer.facts()} == {"sketch"}

    def step(optimizer):
        optimizer.zero_grad()
        seen = torch.nn.functional.conv1d(embedding[rows].mT, taps, padding=1).mT.relu() @ wide.T
        torch.nn.functional.cross_entropy((seen.relu() @ head.T).flatten(0, 1), rows.flatten()).backward()
        optimizer.step()

    step(optimizer)
    kinds = ["adam", "sketch", "sketch", "adam"]
    assert [entry["kind"] for entry in optimizer.facts()] == kinds
    assert optimizer.facts()[0]["bytes"] == 2 * embedding.nbytes
    again = SketchedSOAP(weights, rank=RANK)
    again.load_state_dict(optimizer.state_dict())
    step(again)
    assert [entry["kind"] for entry in again.facts()] == kinds
    nothing = torch.zeros(20, 24, requires_grad=True)
    later = SketchedSOAP([nothing], rank=RANK)
    run(later, nothing, [np.zeros((20, 24)), np.eye(20, 24)])
    assert later.facts()[0]["kind"] == "sketch"
    assert nothing.isfinite().all()


@pytest.mark.parametrize("shape", [(32, 20, 3, 3), (40, 24)])
def test_the_certificate_of_filters_and_of_gradients_of_low_rank(shape):
    """0 <= L - U diag(values) U' <= lost I holds of whole matrices where `facts` has the share, at the defaults."""
    rng = np.random.default_rng(0)
    m, n = shape[0], int(np.prod(shape[1:]))
    p = torch.zeros(shape, dtype=torch.float64, requires_grad=True)
    optimizer = SketchedSOAP([p], rank=RANK, every=1)
    total = np.zeros((m, m))
    for t in range(40):
        rank = 1 + t % 3 if len(shape) == 2 else m  # of low rank, in turning directions
        g = rng.standard_normal((m, rank)) @ rng.standard_normal((rank, n)) * np.exp(rng.standard_normal())
        run(optimizer, p, [g.reshape(shape)])
        total = 0.99 * total + 0.01 * g @ g.T
        state = optimizer.state[p]
        basis, values = state["left_basis"].numpy(), state["left_values"].numpy()
        off = np.linalg.eigvalsh(total - (basis * values) @ basis.T)
        share = optimizer.facts()[0]["lost"][0]
        assert off[0] > -1e-9 * np.trace(total)
        assert off[-1] < (share + 1e-9) * np.trace(total)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_sketch_bounds_the_sum_of_what_it_has_seen(dtype):
    """0 <= L - U diag(values) U' <= lost I for both sides, after every sketch; facts have the shares."""
    p = torch.zeros(24, 30, dtype=dtype, requires_grad=True)
    optimizer = SketchedSOAP([p], rank=RANK, every=3, sketch_beta=0.9)
    assert optimizer.facts()[0]["lost"] is None
    sums = {"left": np.zeros((24, 24)), "right": np.zeros((30, 30))}
    for t, g in enumerate(gradients(60)):
        run(optimizer, p, [g])
        if t % 3:
            continue
        for name, total in sums.items():
            x = g if name == "left" else g.T
            total *= 0.9**3
            total += (1 - 0.9**3) * x @ x.T
            basis, values, lost = (
                optimizer.state[p][f"{name}_{what}"].double() for what in ("basis", "values", "lost")
            )
            left = np.linalg.eigvalsh(total - ((basis * values) @ basis.T).numpy())
            rounding = 1e3 * torch.finfo(dtype).eps * np.trace(total)
            assert left[0] > -rounding
            assert left[-1] < lost + rounding
            assert (basis.T @ basis - torch.eye(RANK)).abs().max() < 1e3 * torch.finfo(dtype).eps
            share = optimizer.facts()[0]["lost"][name == "right"]
            assert share == pytest.approx(float(lost) / np.trace(total), rel=1e-4)
            assert 0 < share < 1


def network(dtype=torch.float32):
    torch.manual_seed(0)
    layers = (torch.nn.Conv2d(2, 12, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(12 * 16, 10))
    return torch.nn.Sequential(*layers).to(dtype)


def batches(n, dtype=torch.float32):
    generator = torch.Generator().manual_seed(1)
    data = torch.randn(n, 16, 2, 6, 6, generator=generator).to(dtype)
    return list(zip(data, torch.randint(10, (n, 16), generator=generator), strict=True))


def train(model, optimizer, data):
    for x, y in data:

        def closure(x=x, y=y):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x).float(), y)
            loss.backward()
            return loss

        loss = optimizer.step(closure)
    return loss.item()


def made(model, **options):
    weights = {"params": [model[0].weight, model[3].weight], "sketched": True, "lr": 0.01}
    biases = {"params": [model[0].bias, model[3].bias], "sketched": False}
    return SketchedSOAP([weights, biases], **{"rank": 1, "every": 3, **options})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_resumed_equals_uninterrupted(dtype, tmp_path):
    """Through torch.save and load_state_dict, in the state's own dtypes, bit for bit; the rank is that of the state."""
    data = batches(40, dtype)
    whole, half, again = (network(dtype) for _ in range(3))
    train(whole, made(whole), data)
    optimizer = made(half)
    train(half, optimizer, data[:20])
    torch.save({"model": half.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "half.pt")
    saved = torch.load(tmp_path / "half.pt", weights_only=True)
    again.load_state_dict(saved["model"])
    resumed = made(again, rank=2)
    resumed.load_state_dict(saved["optimizer"])
    train(again, resumed, data[20:])
    copied = copy.deepcopy((half, optimizer))
    train(*copied, data[20:])
    for a, b, c in zip(whole.parameters(), again.parameters(), copied[0].parameters(), strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a, c)
    kinds = {value.dtype for value in resumed.state[again[3].weight].values() if isinstance(value, torch.Tensor)}
    assert kinds == {torch.float64 if dtype == torch.float64 else torch.float32}
    assert [entry["kind"] for entry in resumed.facts()] == ["sketch", "sketch", "adam", "adam"]
    assert resumed.param_groups[0]["rank"] == 1


def test_it_learns_as_it_comes_and_facts_know_the_bytes():
    model = network()
    optimizer = SketchedSOAP(model.parameters(), lr=0.01)
    before = [entry["bytes"] for entry in optimizer.facts()]
    data = batches(1) * 40
    first = train(model, optimizer, data[:1])
    assert train(model, optimizer, data) < 0.1 * first
    assert [entry["bytes"] for entry in optimizer.facts()] == before
    large = SketchedSOAP([torch.nn.Parameter(torch.ones(64, 80))]).facts()[0]
    assert large["bytes"] == 4 * (2 * 64 * 80 + 2 * 16 * (64 + 80) + 16 * 16 + 2 * 16 + 3)


def test_tied_frozen_and_unused_parameters_and_later_groups():
    tied, frozen, unused = torch.ones(20, 20), torch.ones(20, 20), torch.ones(20, 20, requires_grad=True)
    tied.requires_grad_()
    optimizer = SketchedSOAP([tied, frozen, unused], rank=RANK)
    later = torch.ones(3, requires_grad=True)
    optimizer.add_param_group({"params": [later], "lr": 0.5})
    x = torch.randn(20, 20)
    ((tied @ x @ tied.T).square().mean() + later.square().sum()).backward()
    optimizer.step()
    assert not torch.equal(tied.detach(), torch.ones(20, 20))
    assert later.max() < 0.6
    assert torch.equal(frozen, torch.ones(20, 20)) and torch.equal(unused.detach(), torch.ones(20, 20))


def test_maximize_and_schedulers():
    down, up = (torch.ones(20, 24, dtype=torch.float64, requires_grad=True) for _ in range(2))
    rows = gradients(12, 20, 24)
    optimizer = SketchedSOAP([down], lr=0.1, **SMALL)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    run(optimizer, down, rows)
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.05
    run(SketchedSOAP([up], lr=torch.tensor(0.1), maximize=True, **SMALL), up, [-g for g in rows])
    assert torch.allclose(down, up, rtol=1e-6)


def test_bad_gradients_change_nothing():
    model = network()
    optimizer = made(model)
    train(model, optimizer, batches(5))
    before = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    for bad, rule in ((np.nan, "is not finite"), (np.inf, "is not finite"), (1e30, "has an element of 1e.30")):
        list(model.parameters())[-1].grad.fill_(bad)
        with pytest.raises(FloatingPointError, match=rf"shape \(10,\) {rule}.*; nothing has been changed"):
            optimizer.step()
    for a, b in zip(before[0].values(), model.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    for i, known in before[1]["state"].items():
        for name, value in known.items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(optimizer.state_dict()["state"][i][name])), name
    embedding = torch.nn.Embedding(10, 3, sparse=True)
    embedding(torch.tensor([1, 2])).sum().backward()
    with pytest.raises(RuntimeError, match="SketchedSOAP takes dense, real gradients only"):
        SketchedSOAP(embedding.parameters()).step()
    complex_one = torch.ones(2, dtype=torch.complex64, requires_grad=True)
    complex_one.abs().sum().backward()
    with pytest.raises(RuntimeError, match="dense, real"):
        SketchedSOAP([complex_one]).step()
    p = torch.ones(20, 20, requires_grad=True)
    optimizer = SketchedSOAP([p], rank=RANK)
    run(optimizer, p, [np.ones((20, 20))])
    for shape in ((10, 20), (10, 40)):
        p.data, p.grad = torch.ones(shape), torch.ones(shape)
        with pytest.raises(RuntimeError, match=r"shape \(20, 20\) has become one of shape \(10, "):
            optimizer.step()


def test_state_and_products_are_on_the_device_of_each_parameter():
    """Two devices in one optimizer; products of tensors on different ones would be refused by torch."""
    here, there = (torch.ones(20, 24, device=device, requires_grad=True) for device in ("cpu", "meta"))
    optimizer = SketchedSOAP([here, there], **SMALL)
    for _ in range(12):
        here.grad, there.grad = torch.ones(20, 24), torch.ones(20, 24, device="meta")
        optimizer.step()
    for p in (here, there):
        devices = {x.device for x in optimizer.state[p].values() if isinstance(x, torch.Tensor)}
        assert devices == {p.device}
    assert here.isfinite().all()


def test_half_precision_is_rounded_once_a_step():
    """A step of bfloat16 weights is that of their float32 values, rounded."""
    half = torch.full((20, 24), 1.5, dtype=torch.bfloat16, requires_grad=True)
    whole = torch.full((20, 24), 1.5, requires_grad=True)
    row = torch.randn(20, 24, generator=torch.Generator().manual_seed(0)).bfloat16()
    for p in (half, whole):
        p.grad = row.to(p.dtype)
        SketchedSOAP([p], lr=0.1, weight_decay=0.3, **SMALL).step()
    assert torch.equal(half.detach(), whole.detach().bfloat16())


def test_gradients_of_zero_change_nothing():
    p = torch.ones(20, 24, requires_grad=True)
    assert np.all(run(SketchedSOAP([p], lr=0.01, weight_decay=0.0, **SMALL), p, [np.zeros((20, 24))] * 7) == 1)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e6])
def test_rounding_is_no_step_where_the_sketch_holds_the_gradient(rank, scale):
    """Gradients of a rank below that of the sketch: Adam's steps in their directions, in float32 as in float64."""
    rng = np.random.default_rng(rank)
    u, v = (np.linalg.qr(rng.standard_normal((n, rank)))[0] for n in (20, 24))
    g = scale * u * 2.0 ** -np.arange(rank) @ v.T
    for dtype, off in ((torch.float32, 0.05), (torch.float64, 1e-4)):
        p = torch.zeros(20, 24, dtype=dtype, requires_grad=True)
        moved = run(SketchedSOAP([p], lr=0.01, weight_decay=0.0, **SMALL), p, [g] * 20)
        expected = -0.2 * u @ v.T  # 20 steps of .01 along each pair of directions
        assert np.linalg.norm(moved - expected) < off * np.linalg.norm(expected)


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"lr": -1.0}, ValueError, "lr"),
        ({"betas": (0.9, 1.0)}, ValueError, "betas"),
        ({"betas": 0.9}, ValueError, "betas must be two numbers"),
        ({"betas": (0.9, "x")}, TypeError, "betas"),
        ({"eps": 0.0}, ValueError, "eps"),
        ({"weight_decay": -0.1}, ValueError, "weight_decay"),
        ({"sketched": "x"}, ValueError, "sketched"),
        ({"maximize": 1}, TypeError, "maximize must be True or False"),
        ({"rank": 0}, ValueError, "rank"),
        ({"rank": 2.5}, TypeError, "rank"),
        ({"sketch_beta": 1.0}, ValueError, "sketch_beta"),
        ({"every": 0}, ValueError, "every"),
    ],
)
def test_bad_options_are_named(options, error, match):
    with pytest.raises(error, match=match):
        SketchedSOAP([torch.zeros(3, 3, requires_grad=True)], **options)
    with pytest.raises(error, match=match):
        SketchedSOAP([{"params": [torch.zeros(3, 3, requires_grad=True)], **options}])


def test_unknown_options_and_what_is_no_state_are_refused():
    p = torch.zeros(3, 3, requires_grad=True)
    with pytest.raises(TypeError, match=r"SketchedSOAP\(\) has no parameter 'ranks': did you mean 'rank'\?"):
        SketchedSOAP([p], ranks=3)
    with pytest.raises(TypeError, match="state_dict must be what state_dict"):
        SketchedSOAP([p]).load_state_dict({"state": {}})
    with pytest.raises(ValueError, match="state_dict has no option 'betas': it is of another optimizer"):
        SketchedSOAP([p]).load_state_dict(AdaFFD([p]).state_dict())
