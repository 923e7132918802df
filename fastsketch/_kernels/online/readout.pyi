from numpy import float64
from numpy.typing import NDArray

_Floats = NDArray[float64]

def rounds(
    members: _Floats,
    numbers: _Floats,
    sample_weight: _Floats,
    weights: _Floats,
    information: _Floats,
    scores: _Floats,
    decay: float = 1.0,
) -> None: ...
def blend_numbers(
    members: _Floats, targets: _Floats, sample_weight: _Floats, sums: _Floats, scores: _Floats, decay: float = 1.0
) -> None: ...
def share_now(sums: _Floats) -> float: ...
def mix_decays(
    scores: _Floats,
    answers: _Floats,
    sample_weight: _Floats,
    weights: _Floats,
    losses: _Floats,
    out: _Floats,
    first: _Floats,
    share: float,
    of_labels: bool,
) -> None: ...
