"""The numbers of online models, for Python and Numba (online.pxd)."""
