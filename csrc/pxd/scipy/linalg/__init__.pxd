# What the kernels call of scipy's BLAS and LAPACK, in place of scipy's own declarations of all 1,700 routines, which
# Cython would read again for each kernel: 107 CPU seconds for all kernels instead of 33. At import each routine is
# looked up in scipy by name, and its arguments are compared with these: `s` and `d` are scipy's names of its types, and
# integers of 64 bits are refused (fastsketch/_kernels/__init__.py).
