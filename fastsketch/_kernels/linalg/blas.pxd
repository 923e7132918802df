# One name per BLAS/LAPACK routine for float and double, column-major, arguments by value.
#
# This is the only file that sees blas_int and the only one that casts const away.  The cimported names are
# already pointers to function pointers' targets: `dgemm(...)`, never `&dgemm`.

from scipy.linalg cimport cython_blas as cb
from scipy.linalg cimport cython_lapack as cl

ctypedef int blas_int  # csrc/pxd

ctypedef fused real:
    float
    double


cdef enum:
    # Statuses of our own, beyond every one of LAPACK.
    NOT_FINITE = 1 << 20
    NO_ROOM = 1 << 21


cdef inline int converged(int info, str solver) except -1:
    # the one place where a status, of LAPACK or our own, becomes an exception
    if info:
        from numpy.linalg import LinAlgError

        if info == NOT_FINITE:
            raise LinAlgError(f"{solver} met numbers that are not finite: squares of rows have left the range")
        if info == NO_ROOM:
            raise LinAlgError(f"{solver} has no room for the row between two means: a call before this one failed")
        raise LinAlgError(f"{solver} did not converge (LAPACK info {info})")
    return 0


cdef inline void gemm(char transa, char transb, Py_ssize_t m, Py_ssize_t n, Py_ssize_t k, real alpha,
                      const real* a, Py_ssize_t lda, const real* b, Py_ssize_t ldb,
                      real beta, real* c, Py_ssize_t ldc) noexcept nogil:
    # c = alpha op(a) op(b) + beta c
    cdef blas_int m_ = <blas_int> m, n_ = <blas_int> n, k_ = <blas_int> k
    cdef blas_int lda_ = <blas_int> lda, ldb_ = <blas_int> ldb, ldc_ = <blas_int> ldc
    if m == 0 or n == 0:
        return
    if real is float:
        cb.sgemm(&transa, &transb, &m_, &n_, &k_, &alpha, <real*> a, &lda_, <real*> b, &ldb_, &beta, c, &ldc_)
    else:
        cb.dgemm(&transa, &transb, &m_, &n_, &k_, &alpha, <real*> a, &lda_, <real*> b, &ldb_, &beta, c, &ldc_)


cdef inline void gemv(char trans, Py_ssize_t m, Py_ssize_t n, real alpha, const real* a, Py_ssize_t lda,
                      const real* x, real beta, real* y) noexcept nogil:
    # y = alpha op(a) x + beta y, a (m, n)
    cdef blas_int m_ = <blas_int> m, n_ = <blas_int> n, lda_ = <blas_int> lda, one = 1
    if m == 0 or n == 0:
        return
    if real is float:
        cb.sgemv(&trans, &m_, &n_, &alpha, <real*> a, &lda_, <real*> x, &one, &beta, y, &one)
    else:
        cb.dgemv(&trans, &m_, &n_, &alpha, <real*> a, &lda_, <real*> x, &one, &beta, y, &one)


cdef inline void symv(char uplo, Py_ssize_t n, real alpha, const real* a, Py_ssize_t lda, const real* x, real beta,
                      real* y) noexcept nogil:
    # y = alpha a x + beta y, one triangle of a
    cdef blas_int n_ = <blas_int> n, lda_ = <blas_int> lda, one = 1
    if n == 0:
        return
    if real is float:
        cb.ssymv(&uplo, &n_, &alpha, <real*> a, &lda_, <real*> x, &one, &beta, y, &one)
    else:
        cb.dsymv(&uplo, &n_, &alpha, <real*> a, &lda_, <real*> x, &one, &beta, y, &one)


cdef inline void syrk(char uplo, char trans, Py_ssize_t n, Py_ssize_t k, real alpha, const real* a,
                      Py_ssize_t lda, real beta, real* c, Py_ssize_t ldc) noexcept nogil:
    # trans 'N': c = alpha a a' + beta c;  'T': c = alpha a' a + beta c;  one triangle only
    cdef blas_int n_ = <blas_int> n, k_ = <blas_int> k, lda_ = <blas_int> lda, ldc_ = <blas_int> ldc
    if n == 0:
        return
    if real is float:
        cb.ssyrk(&uplo, &trans, &n_, &k_, &alpha, <real*> a, &lda_, &beta, c, &ldc_)
    else:
        cb.dsyrk(&uplo, &trans, &n_, &k_, &alpha, <real*> a, &lda_, &beta, c, &ldc_)


cdef inline int sytrd(char uplo, Py_ssize_t n, real* a, Py_ssize_t lda, real* d, real* e, real* tau,
                      real* work, Py_ssize_t lwork) noexcept nogil:
    cdef blas_int n_ = <blas_int> n, lda_ = <blas_int> lda, lwork_ = <blas_int> lwork, info = 0
    if real is float:
        cl.ssytrd(&uplo, &n_, a, &lda_, d, e, tau, work, &lwork_, &info)
    else:
        cl.dsytrd(&uplo, &n_, a, &lda_, d, e, tau, work, &lwork_, &info)
    return <int> info


cdef inline int stedc(char compz, Py_ssize_t n, real* d, real* e, real* z, Py_ssize_t ldz, real* work,
                      Py_ssize_t lwork, blas_int* iwork, Py_ssize_t liwork) noexcept nogil:
    cdef blas_int n_ = <blas_int> n, ldz_ = <blas_int> ldz, lwork_ = <blas_int> lwork
    cdef blas_int liwork_ = <blas_int> liwork, info = 0
    if real is float:
        cl.sstedc(&compz, &n_, d, e, z, &ldz_, work, &lwork_, iwork, &liwork_, &info)
    else:
        cl.dstedc(&compz, &n_, d, e, z, &ldz_, work, &lwork_, iwork, &liwork_, &info)
    return <int> info


cdef inline int ormtr(char side, char uplo, char trans, Py_ssize_t m, Py_ssize_t n, real* a, Py_ssize_t lda,
                      real* tau, real* c, Py_ssize_t ldc, real* work, Py_ssize_t lwork) noexcept nogil:
    cdef blas_int m_ = <blas_int> m, n_ = <blas_int> n, lda_ = <blas_int> lda, ldc_ = <blas_int> ldc
    cdef blas_int lwork_ = <blas_int> lwork, info = 0
    if real is float:
        cl.sormtr(&side, &uplo, &trans, &m_, &n_, a, &lda_, tau, c, &ldc_, work, &lwork_, &info)
    else:
        cl.dormtr(&side, &uplo, &trans, &m_, &n_, a, &lda_, tau, c, &ldc_, work, &lwork_, &info)
    return <int> info


cdef inline void larft(Py_ssize_t n, Py_ssize_t k, const real* v, Py_ssize_t ldv, const real* tau, real* t,
                       Py_ssize_t ldt) noexcept nogil:
    # I - V t V' = H_1 .. H_k, the reflectors in the columns of v
    cdef char direct = c'F', store = c'C'
    cdef blas_int n_ = <blas_int> n, k_ = <blas_int> k, ldv_ = <blas_int> ldv, ldt_ = <blas_int> ldt
    if real is float:
        cl.slarft(&direct, &store, &n_, &k_, <real*> v, &ldv_, <real*> tau, t, &ldt_)
    else:
        cl.dlarft(&direct, &store, &n_, &k_, <real*> v, &ldv_, <real*> tau, t, &ldt_)


cdef inline int gesdd(char jobz, Py_ssize_t m, Py_ssize_t n, real* a, Py_ssize_t lda, real* s, real* u,
                      Py_ssize_t ldu, real* vt, Py_ssize_t ldvt, real* work, Py_ssize_t lwork,
                      blas_int* iwork) noexcept nogil:
    cdef blas_int m_ = <blas_int> m, n_ = <blas_int> n, lda_ = <blas_int> lda, ldu_ = <blas_int> ldu
    cdef blas_int ldvt_ = <blas_int> ldvt, lwork_ = <blas_int> lwork, info = 0
    if real is float:
        cl.sgesdd(&jobz, &m_, &n_, a, &lda_, s, u, &ldu_, vt, &ldvt_, work, &lwork_, iwork, &info)
    else:
        cl.dgesdd(&jobz, &m_, &n_, a, &lda_, s, u, &ldu_, vt, &ldvt_, work, &lwork_, iwork, &info)
    return <int> info


cdef inline int syevd(char jobz, char uplo, Py_ssize_t n, real* a, Py_ssize_t lda, real* w, real* work, Py_ssize_t lwork,
                      blas_int* iwork, Py_ssize_t liwork) noexcept nogil:
    # a = U diag(w) U', w ascending; with jobz 'V' a becomes U
    cdef blas_int n_ = <blas_int> n, lda_ = <blas_int> lda, lwork_ = <blas_int> lwork
    cdef blas_int liwork_ = <blas_int> liwork, info = 0
    if real is float:
        cl.ssyevd(&jobz, &uplo, &n_, a, &lda_, w, work, &lwork_, iwork, &liwork_, &info)
    else:
        cl.dsyevd(&jobz, &uplo, &n_, a, &lda_, w, work, &lwork_, iwork, &liwork_, &info)
    return <int> info


cdef inline double ddot(Py_ssize_t n, const double* x, const double* y) noexcept nogil:
    # x'y
    cdef blas_int n_ = <blas_int> n, one = 1
    return cb.ddot(&n_, <double*> x, &one, <double*> y, &one)
