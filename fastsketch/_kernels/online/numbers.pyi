from typing_extensions import disjoint_base

# the entries of numbers.pxd
def __getattr__(name: str) -> int: ...

@disjoint_base
class StateArrays: ...
