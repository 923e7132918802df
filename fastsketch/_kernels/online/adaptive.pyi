from typing_extensions import disjoint_base

from fastsketch._kernels.online.numbers import StateArrays

@disjoint_base
class AdaptiveRounds(StateArrays):
    def __init__(self, state: object, setting: object) -> None: ...
