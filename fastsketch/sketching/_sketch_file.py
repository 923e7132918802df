"""A sketch of the rows of one or several files."""

from fastsketch.io import open_source
from fastsketch.sketching._frequent_directions import FrequentDirections


def sketch_file(path, sketch_size=64, *, n_features=None, zero_based=False, **parameters):
    """Sketch the rows of a file, or of several one after another, in constant memory.

    Parameters
    ----------
    path : str, path or list of them
        .npy matrices, scipy CSR .npz, or svmlight text (also .gz, .bz2, .xz), all of the same width.
    sketch_size : int
    n_features, zero_based
        For svmlight text: see ``fastsketch.io.open_source``.
    **parameters
        The other parameters of FrequentDirections.

    Returns
    -------
    FrequentDirections

    Raises
    ------
    ValueError
        If a file is missing, empty, damaged or of another format, or widths differ.
    """
    paths = [path] if isinstance(path, str) or hasattr(path, "__fspath__") else list(path)
    sketch = FrequentDirections(sketch_size, **parameters)
    for item in paths:
        for rows, _ in open_source(item, n_features=n_features, zero_based=zero_based).chunks():
            sketch.update(rows)
    return sketch
