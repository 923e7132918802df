"""Hash functions learned from a stream by sketching: FROSH, OSH and their relatives in one class."""

from dataclasses import asdict, replace

import numpy as np

from fastsketch import _threads
from fastsketch._validation import as_integer, as_rows, natural_dtype
from fastsketch.hashing._config import RESERVOIR_ROWS, HashConfig
from fastsketch.hashing._directions import top_of_moment, top_of_rows
from fastsketch.hashing._forest import Forest, Node, join_moments, join_rows
from fastsketch.hashing._hasher import LinearHasher, register
from fastsketch.hashing._leaf import CompressedLeaf, EngineLeaf
from fastsketch.hashing._reservoir import Reservoir
from fastsketch.hashing._rotation import aligned, itq_rotation, random_rotation
from fastsketch.sketching import Compressor, plain_rows

# Rows of a step: checked and used while they are in the cache.
SLICE_BYTES = 4 << 20
# A block of the exact sum is a d x d matrix: few of them, of at least this many rows a feature.
EXACT_ROWS_PER_FEATURE = 64


@register
class SketchHash(LinearHasher):
    """Binary codes learned from a stream of rows in one pass: FROSH, OSH and relatives.

    The code of a row a is sgn((a - mu) W R): mu the mean of all rows, W (d x r) the top right singular vectors of a
    sketch of the centred rows, R a rotation.

    Parameters
    ----------
    n_bits : int
        r >= 1, bits of a code; at most the number of features.
    sketch : {"srht", "fd", "exact", "countsketch", "sparse", "gaussian", "sampling", "auto"}, default "srht"
        "srht" is FROSH: blocks of m rows become l / 2 by a subsampled randomized Hadamard transform, and Frequent
        Directions joins them. "fd" is OSH: Frequent Directions alone. "exact" sums A'A (d x d). "countsketch",
        "sparse", "gaussian" and "sampling" are other random maps in the place of the SRHT. "auto" takes "exact" where
        it is also the fastest (d <= 2 l), else "srht".
    sketch_size : int, optional
        l, default 2 n_bits. n_bits is at most l // 2 for random maps, l - 1 for "fd".
    block_rows : int, optional
        m, rows of a block, at least l // 2; default 4 d. The error of a random map grows with m, its cost falls.
    rotation : {"random", "itq", None}, default "random"
        R. "random" is fixed by the seed; "itq" is learned on ``reservoir_size`` rows sampled from the stream; None is
        the papers' text: bits of very different worth, worse than hyperplanes at random from 64 bits on.
    seed : int, default 0
    part, first_block : int, default 0
        Which blocks of a distributed job this model sees: see ``merge``.
    reservoir_size : int, default 2000
    dtype : float32 or float64, optional
        Of the sketch; by default that of the first batch.

    Attributes
    ----------
    n_rows, n_features : int
    notes : dict
        Anything that json can write; saved with the state.

    Raises
    ------
    TypeError, ValueError
        If a parameter is out of range.

    Notes
    -----
    The result is a function of the rows, their order and the parameters: batches of any sizes, and models that saw
    different blocks and were merged in any order, give the same bits, as long as every block but the last of a part is
    complete. Memory: blocks join like the digits of a binary counter, l / 2 rows (d x d for "exact") a digit.

    The model learns on: ``encode`` uses what was learned so far. Codes made before and after more rows stay comparable
    as far as W stays; ``anchor`` keeps them so by an orthogonal alignment.

    References
    ----------
    FROSH: Chen, Yang, Zhao, King, Lyu, *Making Online Sketching Hashing Even Faster*, Algorithms 1 to 3. OSH: Leng, Wu,
    Cheng, Bai, Lu, CVPR 2015. ITQ: Gong, Lazebnik, CVPR 2011.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> rows = np.random.default_rng(0).standard_normal((5000, 100))
    >>> model = fs.SketchHash(16).update(rows)
    >>> codes = model.encode(rows)
    >>> codes.shape
    (5000, 2)
    >>> distances, found = model.search(rows[:1], codes, k=1)
    >>> int(distances[0, 0])
    0
    """

    def __init__(
        self,
        n_bits,
        sketch="srht",
        sketch_size=None,
        block_rows=None,
        rotation="random",
        seed=0,
        *,
        part=0,
        first_block=0,
        reservoir_size=RESERVOIR_ROWS,
        dtype=None,
    ):
        self._config = HashConfig.checked(
            n_bits, sketch, sketch_size, block_rows, rotation, seed, part, first_block, reservoir_size, dtype
        )
        self._reset()

    def _reset(self):
        # (leaf, forest, reservoir): replaced in one step, so that an interrupt finds the old state or the new one
        self._held = None
        self._anchor = self._learned = self._priority = None
        self.notes = {}

    _leaf = property(lambda self: self._held and self._held[0])
    _forest = property(lambda self: self._held and self._held[1])
    _reservoir = property(lambda self: self._held and self._held[2])

    def _hold(self, leaf, forest, reservoir):
        self._learned = None
        self._held = leaf, forest, reservoir

    # -- learning --------------------------------------------------------------------------------------------------
    def update(self, rows):
        """Learn from one row or many.

        Parameters
        ----------
        rows : array_like or scipy.sparse (n, d), or (d,)
            Real and finite. Sparse rows are expanded a few at a time.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            For anything that is no matrix of finite real numbers of the width seen before, or of fewer features than
            bits. The model is then as it was before the call.
        """
        rows = as_rows(rows, self.n_features)
        n, d = rows.shape
        if self._leaf is None:
            leaf, forest, reservoir = self._started(d, natural_dtype(rows.dtype))
        elif self._leaf.atomic(n):
            return self._update_in_place(plain_rows(rows, 0, n, self.dtype))
        else:
            leaf, forest = self._leaf.copy(), self._forest.copy()
            reservoir = self._reservoir and self._reservoir.copy()
        step = max(1, SLICE_BYTES // (d * leaf.dtype.itemsize))
        try:
            for start in range(0, n, step):
                piece = plain_rows(rows, start, min(start + step, n), leaf.dtype)
                self._take(piece, start, leaf, forest, reservoir)
        except BaseException:
            _threads.settle()
            raise
        self._hold(leaf, forest, reservoir)
        return self

    def _update_in_place(self, rows):
        """A few rows that the leaf takes in one step, without copies."""
        held = leaf, forest, reservoir = self._held
        before = leaf.n_rows
        self._learned = None
        try:
            if reservoir is not None:
                reservoir = reservoir.copy()
                reservoir.offer(rows, self._priorities(leaf, reservoir)[before : before + len(rows)])
                self._held = leaf, forest, reservoir
            leaf.add(rows, 0)
        except BaseException:
            if leaf.n_rows == before:  # an interrupt may also come when the rows are in
                self._held = held
            _threads.settle()
            raise
        return self

    def _priorities(self, leaf, reservoir):
        """Priorities of the rows of the block that the leaf is filling."""
        if self._priority is None or self._priority[0] != leaf.index:
            self._priority = leaf.index, reservoir.priorities(leaf.index, leaf.n_rows + leaf.room)
        return self._priority[1]

    def _started(self, d, dtype):
        config = self._config
        if config.n_bits > d:
            raise ValueError(f"n_bits must be at most the {d} features of the rows, got {config.n_bits}")
        dtype = np.dtype(config.dtype) if config.dtype else dtype
        kind, size = config.kind(d), config.sketch_size
        if kind == "exact":
            block_rows = config.block_rows or EXACT_ROWS_PER_FEATURE * d
            leaf = EngineLeaf(max(2, config.n_bits), "exact", block_rows, d, dtype, config.place)
            forest = Forest(join_moments, d)
        elif kind == "fd":
            leaf = EngineLeaf(size, "gram", config.block_rows or max(4 * d, 8 * size), d, dtype, config.place)
            forest = Forest(join_rows, size - 1)
        else:
            compressor = Compressor(kind, size // 2, config.block_rows, config.seed).resolved(size // 2, d)
            leaf = CompressedLeaf(compressor, d, dtype, config.place)
            forest = Forest(join_rows, size // 2)
        reservoir = Reservoir(config.reservoir_size, d, dtype, config.seed) if config.rotation == "itq" else None
        return leaf, forest, reservoir

    def _take(self, rows, offset, leaf, forest, reservoir):
        done = 0
        while done < len(rows):
            before = leaf.n_rows
            taken = leaf.add(rows[done:], offset + done)
            if reservoir is not None:
                priority = self._priorities(leaf, reservoir)[before : before + taken]
                reservoir.offer(rows[done : done + taken], priority)
            done += taken
            if leaf.room == 0:
                index = leaf.index
                forest.add(leaf.close())
                leaf.restart(index + 1)

    def merge(self, other):
        """Add what another model has learned.

        Parameters
        ----------
        other : SketchHash
            Of the same parameters but ``part`` and ``first_block``, the same width and dtype; it is not changed.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If the two do not belong together, or hold the same block.

        Notes
        -----
        Two models of the same ``part`` are pieces of one stream; they merge to what one model would be if each begins
        at a multiple of ``block_rows`` rows, of which ``first_block`` is the number. Models of different parts are
        complete: merging seals them, and no more rows of these parts can be added but to what is merged already. The
        bits depend neither on the order nor on the grouping of merges.
        """
        if not isinstance(other, SketchHash):
            raise TypeError(f"other must be a SketchHash, got {type(other).__name__}")
        for name, value in asdict(self._config).items():
            theirs = getattr(other._config, name)
            if theirs != value and name not in HashConfig.PLACE:
                raise ValueError(f"other has {name}={theirs!r}, this model has {value!r}: they do not merge")
        if other._leaf is None:
            return self
        if self._leaf is None:
            if self._config.dtype not in (None, other.dtype.name):
                raise ValueError(f"other has dtype {other.dtype}, this model has {self._config.dtype}")
            anchor = self._anchor
            forest, leaf, reservoir = other._closed()
            self._anchor = anchor if anchor is not None else other._anchor
            self._hold(leaf, forest, reservoir)
            return self
        for name in ("n_features", "dtype"):
            if getattr(self, name) != getattr(other, name):
                raise ValueError(f"other has {name}={getattr(other, name)}, this model has {getattr(self, name)}")
        forest, leaf, reservoir = self._closed()
        theirs, their_leaf, their_reservoir = other._closed()
        if forest.nodes and theirs.nodes and len({*forest.parts(), *theirs.parts()}) > 1:
            forest.seal()
            theirs.seal()
        forest.merge(theirs)
        if reservoir is not None:
            reservoir.merge(their_reservoir)
        leaf.restart(max(leaf.index, their_leaf.index, forest.nodes[-1].stop if forest.nodes else 0))
        if other._config.place < self._config.place:  # the merged model is the same whoever took the other one in
            self._config = replace(self._config, part=other._config.part, first_block=other._config.first_block)
        self._hold(leaf, forest, reservoir)
        return self

    def _closed(self):
        """Copies of forest, leaf and reservoir, the leaf put into the forest."""
        forest, leaf = self._forest.copy(), self._leaf.copy()
        if leaf.n_rows:
            index = leaf.index
            forest.add(leaf.close())
            leaf.restart(index + 1)
        return forest, leaf, self._reservoir and self._reservoir.copy()

    def seal(self):
        """Say that this part is complete: what it holds becomes one node, the smallest to send and to merge.

        ``merge`` does so with models of different parts. Returns self.
        """
        if self._leaf is not None:
            forest, leaf, reservoir = self._closed()
            forest.seal()
            if forest.nodes:
                leaf.restart(forest.nodes[-1].stop)
            self._hold(leaf, forest, reservoir)
        return self

    # -- what is learned: never changes the state ------------------------------------------------------------------
    def _require(self):
        if self._leaf is None or self.n_rows == 0:
            raise ValueError("the model has seen no rows: call update first")

    def _read(self):
        """(mean, W as (r, d), P as (d, r)) for the rows seen so far."""
        self._require()
        if self._learned is None:
            forest, _, reservoir = self._closed()
            node = forest.summary()
            r, seed = self.n_bits, self._config.seed
            with _threads.blas_for(len(node.rows)):
                find = top_of_moment if self.sketch == "exact" else top_of_rows
                w = find(node.rows, r, seed)
                basis = w.T
                if self._anchor is not None:
                    projection = aligned(basis, self._anchor)
                elif self._config.rotation is None:
                    projection = basis.copy()
                else:
                    rotation = random_rotation(r, seed)
                    if self._config.rotation == "itq":
                        sample = (reservoir.settled()[0].astype(np.float64) - node.mean) @ basis
                        rotation = itq_rotation(sample, rotation)
                    projection = basis @ rotation
            self._learned = node, w, projection, node.mean @ projection
        return self._learned

    def _linear(self):
        _, _, projection, offsets = self._read()
        return projection, offsets

    def anchor(self, projection=None):
        """Keep codes comparable from here on: later projections are turned to lie nearest to the present one.

        W moves while rows arrive, and where singular values are close its vectors change places; the code of a row then
        changes though what it tells does not. With an anchor P0 the projection is W Q, Q the rotation that brings it
        nearest to P0 (orthogonal Procrustes), instead of W R.

        Parameters
        ----------
        projection : ndarray (d, n_bits), optional
            P0, the present ``projection`` if not given: so that models of one job can share an anchor.

        Returns
        -------
        self
        """
        if projection is None:
            anchor = self.projection
        else:
            anchor = np.array(projection, np.float64)
            if anchor.ndim != 2 or anchor.shape != (self.n_features or anchor.shape[0], self.n_bits):
                raise ValueError(f"projection must have shape ({self.n_features}, {self.n_bits}), got {anchor.shape}")
            if not np.isfinite(anchor).all():
                raise ValueError("projection must be finite")
        self._anchor, self._learned = anchor, None
        return self

    @property
    def components(self):
        """W as (n_bits, d) float64: orthonormal principal directions, the most important first."""
        return self._read()[1].copy()

    @property
    def projection(self):
        """(d, n_bits) float64, orthonormal columns: W R, or what ``anchor`` makes of W."""
        return self._read()[2].copy()

    @property
    def mean(self):
        """Mean of all rows, (d,) float64; None before the first."""
        return None if self.n_rows == 0 else self._read()[0].mean.copy()

    @property
    def shrinkage(self):
        """What the shrinks removed, at most, from any squared singular value; a random map's error comes on top."""
        return 0.0 if self.n_rows == 0 else self._read()[0].shrinkage

    @property
    def n_bits(self):
        """Bits of a code."""
        return self._config.n_bits

    @property
    def sketch(self):
        """The sketch in use; "auto" until the first batch decides."""
        return self._config.sketch if self._leaf is None else self._config.kind(self.n_features)

    @property
    def n_rows(self):
        if self._leaf is None:
            return 0
        return sum(node.weight for node in self._forest.nodes) + self._leaf.n_rows

    @property
    def n_features(self):
        return None if self._leaf is None else self._leaf.n_features

    @property
    def dtype(self):
        """dtype of the sketch; None until it is given or the first batch decides it."""
        if self._leaf is None:
            return np.dtype(self._config.dtype) if self._config.dtype else None
        return self._leaf.dtype

    @property
    def block_rows(self):
        """m, rows of a block; None before the first batch if it was not given."""
        return self._config.block_rows if self._leaf is None else self._leaf.n_rows + self._leaf.room

    # -- keeping it ------------------------------------------------------------------------------------------------
    def _state(self):
        params = {"config": asdict(self._config), "notes": self.notes, "learned": None}
        arrays = {}
        if self._anchor is not None:
            arrays["anchor"] = self._anchor
        if self._leaf is None:
            return params, arrays
        nodes = self._forest.nodes
        params["learned"] = {
            "n_features": self.n_features,
            "dtype": self.dtype.name,
            "index": self._leaf.index,
            "nodes": [[n.start, n.level, int(n.weight), n.shrinkage] for n in nodes],
        }
        for number, node in enumerate(nodes):
            arrays[f"rows_{number}"], arrays[f"mean_{number}"] = node.rows, node.mean
        arrays.update({f"leaf_{name}": array for name, array in self._leaf.arrays(copy=True).items()})
        if self._reservoir is not None:
            arrays["reservoir_rows"], arrays["reservoir_priority"] = self._reservoir.settled()
        return params, arrays

    def __setstate__(self, state):
        params, arrays = state
        self._config = HashConfig.checked(**params["config"])
        self._reset()
        self.notes = dict(params["notes"])
        self._anchor = arrays.get("anchor")
        learned = params["learned"]
        if learned is None:
            return
        d = as_integer(learned["n_features"], "n_features", 1)
        if any(arrays[name].shape[-1] != d for name in ("leaf_out", "leaf_buffer") if name in arrays):
            raise ValueError(f"the block does not have {d} columns")
        leaf, forest, reservoir = self._started(d, np.dtype(learned["dtype"]))
        leaf.restore(
            {name.removeprefix("leaf_"): a for name, a in arrays.items() if name.startswith("leaf_")},
            as_integer(learned["index"], "index", 0),
        )
        for number, (start, level, weight, shrinkage) in enumerate(learned["nodes"]):
            rows, mean = arrays[f"rows_{number}"], arrays[f"mean_{number}"]
            if mean.shape != (d,) or rows.ndim != 2 or rows.shape[1] != d:
                raise ValueError(f"node {number} does not have {d} columns")
            forest.nodes.append(Node(start, level, rows, mean, weight, shrinkage))
        if reservoir is not None:
            rows, priority = arrays["reservoir_rows"], arrays["reservoir_priority"]
            if rows.ndim != 2 or rows.shape[1] != d or priority.shape != rows.shape[:1]:
                raise ValueError("the reservoir does not fit the model")
            reservoir.offer(rows, priority)
        self._hold(leaf, forest, reservoir)

    def __repr__(self):
        seen = "no rows yet" if self._leaf is None else f"{self.n_rows} rows of {self.n_features}"
        return f"<SketchHash n_bits={self.n_bits} sketch={self.sketch!r} rotation={self._config.rotation!r}, {seen}>"


for _name in ("sketch_size", "rotation", "seed", "part", "first_block", "reservoir_size"):
    setattr(
        SketchHash, _name, property(lambda self, name=_name: getattr(self._config, name), doc=f"The parameter {_name}.")
    )
