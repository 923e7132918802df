from typing_extensions import disjoint_base

RANK: int
ROWS: int
ROUND: int
MISTAKES: int
SEEN: int
OLD: int
TURNS: int
COUNTS: int
LOSS: int
THEIRS: int
BEFORE: int
RESIDUALS: int
WEIGHTS: int
DELTA: int
SCALE: int
CLOCK: int
FADED: int
ALPHA: int
SHRINKAGE: int
FLOOR: int
BUFFERED: int
SCALARS: int
UNCONSTRAINED: int
CURRENT: int
NEXT: int
BOTH: int
EVERY_ROUND: int
WHEN_FULL: int
NEVER: int
DIAGONAL: int
GRADIENT: int
ADAM: int

@disjoint_base
class StateArrays: ...
