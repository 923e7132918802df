"""What the user chose for a SketchHash, checked; it never changes after construction."""

from dataclasses import dataclass

from fastsketch._validation import as_choice, as_dtype, as_integer
from fastsketch.hashing._forest import PART_LEVEL

SKETCHES = ("srht", "fd", "exact", "countsketch", "sparse", "gaussian", "sampling", "auto")
ROTATIONS = ("random", "itq", None)
# Rows that ITQ learns from: 2,000 gave more on MNIST than all rows gave faiss (bench/README.md).
RESERVOIR_ROWS = 2000


@dataclass(frozen=True)
class HashConfig:
    """Parameters in the order of SketchHash."""

    n_bits: int
    sketch: str = "srht"
    sketch_size: int | None = None
    block_rows: int | None = None
    rotation: str | None = "random"
    seed: int = 0
    part: int = 0
    first_block: int = 0
    reservoir_size: int = RESERVOIR_ROWS
    dtype: str | None = None

    # two models that differ in one of these still merge
    PLACE = ("part", "first_block", "dtype")

    @classmethod
    def checked(cls, n_bits, sketch, sketch_size, block_rows, rotation, seed, part, first_block, reservoir_size, dtype):
        """Return a config, or raise TypeError / ValueError naming the argument."""
        n_bits = as_integer(n_bits, "n_bits", 1)
        sketch = as_choice(sketch, "sketch", SKETCHES)
        if rotation is not None:
            rotation = as_choice(rotation, "rotation", ROTATIONS[:2])
        sketch_size = 2 * n_bits if sketch_size is None else as_integer(sketch_size, "sketch_size", 2)
        kept = {"fd": sketch_size - 1, "exact": n_bits}.get(sketch, sketch_size // 2)
        if sketch == "fd" and n_bits == 1:
            sketch_size = max(sketch_size, 3)
        elif n_bits > kept:
            raise ValueError(
                f"n_bits must be at most {kept}, the rows that sketch={sketch!r} keeps with sketch_size="
                f"{sketch_size}, got {n_bits}"
            )
        if block_rows is not None:
            block_rows = as_integer(block_rows, "block_rows", 1)
            if sketch not in ("fd", "exact") and block_rows < sketch_size // 2:
                raise ValueError(f"block_rows must be at least sketch_size // 2 = {sketch_size // 2}, got {block_rows}")
        seed = as_integer(seed, "seed", 0)
        if seed >= 2**64:
            raise ValueError(f"seed must be below 2**64, got {seed}")
        part, first_block = as_integer(part, "part", 0), as_integer(first_block, "first_block", 0)
        if part >= 2**30 or first_block >= 2**PART_LEVEL:
            raise ValueError("part must be below 2**30 and first_block below 2**32")
        dtype = as_dtype(dtype)
        return cls(
            n_bits,
            sketch,
            sketch_size,
            block_rows,
            rotation,
            seed,
            part,
            first_block,
            as_integer(reservoir_size, "reservoir_size", 1),
            None if dtype is None else dtype.name,
        )

    def kind(self, d):
        """The sketch in use for rows of d features: exact where it is also the fastest."""
        if self.sketch != "auto":
            return self.sketch
        return "exact" if d <= 2 * self.sketch_size else "srht"

    @property
    def place(self):
        return (self.part << PART_LEVEL) + self.first_block
