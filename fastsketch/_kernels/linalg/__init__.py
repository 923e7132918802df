"""Products, eigensolvers and transforms: BLAS and LAPACK, and what does better than they."""
