"""Pictures (extra: plot)."""


def _figure(*shape, **size):
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("pictures need matplotlib: pip install 'fastsketch[plot]'") from error
    figure = Figure(layout="constrained", **size)
    FigureCanvasAgg(figure)
    return figure, figure.subplots(*shape)


def plot_spectrum(values, facts, path, truth=None):
    """Squared singular values with the certificate as a band; `truth` adds the exact spectrum."""
    figure, axes = _figure(figsize=(7, 4.5))
    squares = [value * value for value in values]
    index = range(1, len(squares) + 1)
    if truth is not None:
        axes.semilogy(range(1, len(truth) + 1), truth, color="0.35", lw=1.2, label="exact spectrum of A'A")
    bound = facts["error_bound"]
    middle = [square + facts["alpha"] for square in squares]
    if bound > 0 and middle:
        floor = min(middle) * 1e-2
        low = [max(value - bound, floor) for value in middle]
        axes.fill_between(
            index,
            low,
            [value + bound for value in middle],
            alpha=0.25,
            color="tab:blue",
            lw=0,
            label=f"certificate: +-{bound:.3g}",
        )
    axes.semilogy(
        index,
        middle,
        "o-",
        ms=3,
        lw=1,
        color="tab:blue",
        label="sketch" + (" B'B + alpha I" if facts["alpha"] > 0 else " B'B"),
    )
    axes.set_xlabel("index")
    axes.set_ylabel("squared singular value")
    axes.set_title(
        f"{facts['rows']:,} rows x {facts['features']:,} features, rule {facts['rule']}, l = {facts['sketch_size']}"
    )
    axes.set_xlim(0.5, max(2, len(squares)) * (1.5 if truth is not None else 1) + 0.5)
    axes.grid(True, which="both", alpha=0.25)
    axes.legend()
    figure.savefig(path, dpi=130, format="png")


def plot_neighbours(images, shown, side, path, title):
    """One line a query: the query, then what was found, each patch above its Hamming distance."""
    columns = max(map(len, shown))
    figure, axes = _figure(len(shown), columns, figsize=(1.1 * columns, 1.35 * len(shown) + 0.4))
    for line, row in zip(shown, axes, strict=True):
        for place, cell in zip(line, row, strict=False):
            number, top, left, distance = place
            cell.imshow(images[number][top : top + side, left : left + side], interpolation="nearest")
            cell.set_xlabel("query" if place is line[0] else str(distance), fontsize=8, labelpad=2)
        for cell in row:
            cell.set_xticks([])
            cell.set_yticks([])
            cell.spines[:].set_visible(False)
        row[0].spines[:].set(visible=True, color="tab:red", linewidth=2)
    figure.suptitle(title, fontsize=10)
    figure.savefig(path, dpi=130, format="png")


def plot_learning(curves, steps, errors, path, title):
    """Online error against examples, for each learner at its best step size; and the final one against that size."""
    figure, (left, right) = _figure(1, 2, figsize=(10, 4.2))
    for i, (label, curve) in enumerate(curves.items()):
        rounds = range(20, len(curve) + 1)
        left.semilogy(rounds, curve[19:], color=f"C{i}", lw=2 if i == 0 else 1.2, label=label)
    for i, (label, values) in enumerate(errors.items(), 1):
        right.loglog(steps, values, "o-", color=f"C{i}", ms=4, label=label)
    name, curve = next(iter(curves.items()))
    right.axhline(curve[-1], color="C0", lw=2, label=f"{name}: no step size")
    left.set(xlabel="examples", ylabel="online error rate", title="each at its best step size")
    right.set(xlabel="step size", title="after one pass")
    for axes in (left, right):
        axes.grid(True, which="both", alpha=0.25)
    left.legend(fontsize=8)
    right.legend(fontsize=7.5, loc="lower left", bbox_to_anchor=(0.0, 0.06))
    figure.suptitle(title, fontsize=10)
    figure.savefig(path, dpi=130, format="png")


def plot_restored(pictures, psnr, path, title):
    """Grey pictures side by side, each with its peak signal-to-noise ratio."""
    figure, axes = _figure(2, 2, figsize=(9, 6.6))
    for (name, picture), cell in zip(pictures.items(), axes.flat, strict=True):
        cell.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        value = psnr.get(f"{name.split()[0]}_psnr")
        cell.set_title(name if value is None else f"{name}: {value:.1f} dB", fontsize=10)
        cell.set_axis_off()
    figure.suptitle(title, fontsize=10)
    figure.savefig(path, dpi=130, format="png")
