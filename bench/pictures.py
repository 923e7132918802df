"""Pictures of stored results: ``python bench/pictures.py [COMMAND...]`` draws bench/results/COMMAND.png from its JSON.

What is drawn of a command is in ``pictured.py``, which has the commands whose picture a page shows. Only the JSON is
read, so that a picture shows the same figures as the tables. White cards stand on light pages and on dark ones.
"""

import argparse
import math
import re
import sys

from pages import NUMBER
from pictured import PICTURED, Bars, Lines
from store import RESULTS, read, replacing

COLOURS = ("#0b6fa4", "#e08e1b", "#3a9a6f", "#b5569a", "#7d8597", "#c44e3a", "#58a9d6", "#8a6d3b", "#2f4858", "#a3b84f")
OTHERS = "#a8b3bd"  # what is not ours, where there is one series
INK, PALE = "#222a31", "#dfe4e8"
WIDE = 7.6  # inches, of 100 dots
COLOURS_KEPT = 128
SPREAD = re.compile(r"\+-\s*([\d.]+(?:e[-+]?\d+)?)(%?)")


def value(cell, part=0):
    """Return (number, half a spread) of a cell or of one of its parts between slashes; None without a number."""
    pieces = cell.split(" / ")
    text = pieces[part] if part < len(pieces) else ""
    found = NUMBER.match(text) if text[:1] not in "<>~" else None
    if not found:
        return None
    number = float(found[1].replace(",", ""))
    spread = SPREAD.search(text)
    half = float(spread[1]) * (abs(number) / 100 if spread[2] else 1) if spread else 0.0
    return number, half


def rows_of(table, where):
    at = {name: k for k, name in enumerate(table["columns"])}
    kept = [row for row in table["rows"] if all(row[at[name]] in wanted for name, wanted in where.items())]
    return [dict(zip(table["columns"], row, strict=True)) for row in kept]


def panels_of(record):
    """Return [(title, entry, series)] of the panels that the tables allow; series: {label: [(place, number, half)]}."""
    tables = {table["name"]: table for table in record["tables"]}
    entries = PICTURED[record["command"]]
    return [panel for entry in entries if entry.table in tables for panel in drawn(entry, tables[entry.table])]


def drawn(entry, table):
    missing = {*entry.where, *entry.names()} - set(table["columns"])
    if missing:
        return []
    groups = [("", rows_of(table, entry.where))]
    if entry.each:
        every = rows_of(table, entry.where)
        kinds = dict.fromkeys(row[entry.each] for row in every)
        groups = [(kind, [row for row in every if row[entry.each] == kind]) for kind in kinds]
    out = []
    for kind, rows in groups:
        series = entry.series(rows, table["columns"], value)
        if any(series.values()):
            out.append((" ".join(filter(None, (entry.title, kind))), entry, series))
    return out


# -- drawing -----------------------------------------------------------------------------------------------------------
def draw(record, path):
    import numpy as np
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from PIL import Image

    panels = panels_of(record)
    columns = min(len(panels), max(panel[1].across for panel in panels))
    lines = math.ceil(len(panels) / columns)
    heights = [max(height(panel) for panel in panels[k * columns : (k + 1) * columns]) for k in range(lines)]
    style = {
        "font.size": 8.5,
        "text.color": INK,
        "axes.edgecolor": "#9aa5ae",
        "axes.labelcolor": INK,
        "axes.titlesize": 9.5,
        "axes.titleweight": "bold",
        "xtick.color": INK,
        "ytick.color": INK,
        "legend.frameon": False,
        "legend.fontsize": 7.5,
    }
    with rc_context(style):
        figure = Figure(
            figsize=(WIDE, sum(heights) + (0.5 if columns > 1 else 0.15)),
            dpi=100,
            layout="constrained",
            facecolor="white",
        )
        canvas = FigureCanvasAgg(figure)
        grid = figure.add_gridspec(lines, columns, height_ratios=heights)
        # a curve has one colour in all panels
        names = list(dict.fromkeys(name for _, entry, series in panels if isinstance(entry, Lines) for name in series))
        for k, (title, entry, series) in enumerate(panels):
            axes = figure.add_subplot(grid[k // columns, k % columns])
            if isinstance(entry, Bars):
                bars(axes, entry, series)
            else:
                curves(axes, entry, series, names)
            axes.set_title(title, loc="left")
            axes.spines[["top", "right"]].set_visible(False)
            axes.set_axisbelow(True)
            if columns == 1 and len(series) > 1:
                axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        if columns > 1:
            named = {}
            for axes in figure.axes:
                handles, labels = axes.get_legend_handles_labels()
                named |= dict(zip(labels, handles, strict=True))
            if len(named) > 1 and any(len(series) > 1 for _, _, series in panels):
                figure.legend(named.values(), named, loc="outside lower center", ncols=min(4, len(named)))
        canvas.draw()
    # a table of colours: half the bytes
    Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB").quantize(COLOURS_KEPT, dither=0).save(
        path, "png", optimize=True
    )


def height(panel):
    _, entry, series = panel
    if isinstance(entry, Lines):
        return entry.height
    labels = {place for points in series.values() for place, _, _ in points}
    thick = 0.2 if len(series) == 1 else 0.11 * len(series) + 0.07
    return max(1.2, 0.62 + thick * len(labels))


def in_words(axis):
    """Mark a logarithmic axis at 1, 2 and 5, in plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    low, high = axis.get_view_interval()
    decades = math.log10(high / low) if low > 0 else 9
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if decades < 2 else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda number, _: short(number)))
    axis.set_minor_locator(NullLocator())


def short(number):
    """Format a number in 3 or 4 characters for most: 50k, 2M, 0.002."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if number >= size * (10 if unit == "k" else 1):
            return f"{number / size:.4g}{unit}"
    return f"{number:,.4g}" if number >= 1e-4 or not number else f"{number:.0e}"


def bars(axes, entry, series):
    labels = list(dict.fromkeys(place for points in series.values() for place, _, _ in points))
    room = 0.78 / len(series)
    for number, (name, points) in enumerate(series.items()):
        places = [labels.index(label) + (number - (len(series) - 1) / 2) * room for label, _, _ in points]
        colours = COLOURS[number % len(COLOURS)]
        if len(series) == 1 and entry.ours:
            colours = [COLOURS[0] if re.search(entry.ours, label) else OTHERS for label, _, _ in points]
        spreads = [half for _, _, half in points]
        lengths = [length for _, length, _ in points]
        axes.barh(places, lengths, room * 0.92, color=colours, label=name, log=entry.log)
        if any(spreads):
            axes.errorbar(lengths, places, xerr=spreads, fmt="none", ecolor=INK, elinewidth=0.8, capsize=1.5)
    axes.set_yticks(range(len(labels)), [label.replace("`", "") for label in labels])
    axes.set_ylim(len(labels) - 0.45, -0.55)
    if entry.log:
        in_words(axes.xaxis)
    axes.set_xlabel(entry.axis)
    axes.grid(axis="x", color=PALE, lw=0.8)
    if entry.least is not None:
        axes.set_xlim(left=entry.least)
    if entry.mark is not None:
        axes.axvline(entry.mark, color=INK, lw=0.9, ls=(0, (4, 3)))


def curves(axes, entry, series, names):
    from matplotlib.ticker import FuncFormatter

    for name, points in series.items():
        number = names.index(name)
        places, numbers, halves = zip(*points, strict=True) if points else ((), (), ())
        style = {"color": COLOURS[number % len(COLOURS)], "lw": 1.5, "marker": "o", "ms": 3, "label": name}
        style |= {"ls": "--"} if number >= len(COLOURS) else {}
        if len(points) > 30:
            style |= {"marker": ""}
        axes.plot(places, numbers, **style)
        if any(halves):
            axes.errorbar(places, numbers, yerr=halves, fmt="none", ecolor=style["color"], elinewidth=0.8, capsize=1.5)
    if "y" in entry.log:
        axes.set_yscale("log")
        in_words(axes.yaxis)
    if "x" in entry.log:
        axes.set_xscale("log")
        in_words(axes.xaxis)
        places = sorted({place for points in series.values() for place, _, _ in points})
        if len(places) <= 8:
            step = 1 if entry.across == 1 else math.ceil(len(places) / 5)
            axes.set_xticks(places[::step], [short(place) for place in places[::step]])
            axes.set_xticks([], minor=True)
    elif max(axes.get_xlim()) >= 10_000:
        axes.xaxis.set_major_formatter(FuncFormatter(lambda number, _: short(number)))
    if "y" not in entry.log and max(axes.get_ylim()) >= 10_000:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda number, _: short(number)))
    axes.set_xlabel(entry.along)
    axes.set_ylabel(entry.axis)
    axes.grid(color=PALE, lw=0.8)
    if entry.least is not None:
        axes.set_ylim(bottom=entry.least)


def picture(result):
    """Draw the picture of a stored result beside it, and return its path."""
    with replacing(result.with_suffix(".png")) as begun:
        draw(read(result), begun)
    return result.with_suffix(".png")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commands", nargs="*", help="all of pictured.py if not given")
    for command in parser.parse_args().commands or PICTURED:
        path = picture(RESULTS / f"{command}.json")
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    sys.exit(main())
