SQUARE: int
LOGISTIC: int
SQUARED_HINGE: int
HUBER: int
POISSON: int
ABSOLUTE: int
HINGE: int
QUANTILE: int
EPSILON_INSENSITIVE: int
NO_PENALTY: int
L1_PENALTY: int
L2_PENALTY: int

def value_slope_curvature(loss: int, p: float, z: float, y: float) -> tuple[float, float, float]: ...
