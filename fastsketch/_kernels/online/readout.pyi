import numpy as np
from numpy.typing import NDArray

def rounds(
    members: NDArray[np.float64],
    numbers: NDArray[np.float64],
    sample_weight: NDArray[np.float64],
    weights: NDArray[np.float64],
    information: NDArray[np.float64],
    scores: NDArray[np.float64],
    decay: float = 1.0,
) -> None: ...
def blend_numbers(
    members: NDArray[np.float64],
    targets: NDArray[np.float64],
    sample_weight: NDArray[np.float64],
    sums: NDArray[np.float64],
    scores: NDArray[np.float64],
    decay: float = 1.0,
) -> None: ...
def share_now(sums: NDArray[np.float64]) -> float: ...
def mix_decays(
    scores: NDArray[np.float64],
    answers: NDArray[np.float64],
    sample_weight: NDArray[np.float64],
    weights: NDArray[np.float64],
    losses: NDArray[np.float64],
    out: NDArray[np.float64],
    first: NDArray[np.float64],
    share: float,
    of_labels: bool,
) -> None: ...
