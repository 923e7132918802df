"""Many small sketches at once: the rows of a batch go to the buffers of their groups, and what is full is shrunk.

A group lies in a record of `room` rows, the newest first, as in a buffer of sketching/dense.pyx; one with room for all
of it (`capacity` rows) goes on with lam, gain, mean and mean_low. Its sums and counts are a row of two tables, in the
order of SketchState. Whoever calls has seen to it that every group has the room that its new rows need.

Groups are independent, so parts of a batch are groups, and the bits do not depend on threads; they are those that
`absorb` of sketching/dense.pyx gives the rows of a group alone. A part works with a DenseState of its own: it takes the
numbers of a group, and gives them back.
"""

from libc.math cimport frexp, ldexp
from libc.stdint cimport int64_t
from libc.string cimport memcpy, memset

from fastsketch._kernels.level cimport follow
from fastsketch._kernels.linalg.blas cimport real, converged
from fastsketch._kernels.linalg.parts cimport lower_bound
from fastsketch._kernels.linalg.rows cimport load_rows, scan_rows
from fastsketch._kernels.pool cimport FS_PARTS, fs_blas_alone, fs_part, fs_pool_from, fs_pool_parts, fs_pool_run, join
from fastsketch._kernels.sketching.dense cimport DenseState, flush, settle


follow()
join()


# Bytes of a part of a scan; products of a part of a batch.
cdef double LEAST_SCAN = 524288.0
cdef double LEAST = 3e6


cdef struct Scan:
    Py_ssize_t n, d, ld, n_parts
    const void* x
    double* largest
    Py_ssize_t bad[FS_PARTS]


# Tables of all groups, and what is common to them.
cdef struct Table:
    double* book
    int64_t* count
    const int64_t* record    # addresses
    const int64_t* room
    Py_ssize_t tail          # bytes before lam in a record with room for all
    int low, high, most      # binary exponents: see exponent_for of sketching/_engines


cdef struct Batch:
    Table table
    Py_ssize_t n, d, ld, n_groups, n_parts
    const void* rows
    const double* largest
    const int64_t* order     # rows by group, those of a group as they come
    const int64_t* start     # of each group in `order`, and the end
    const int64_t* group
    const int64_t* tail      # of a reading: addresses
    void* handle             # what is done with a group: float_handle or double_handle
    void* state[FS_PARTS]    # a DenseState each
    void* work[FS_PARTS]
    Py_ssize_t lwork
    int info[FS_PARTS]


cdef struct Copies:
    Py_ssize_t n, n_parts, row_bytes, tail_doubles
    const int64_t* source
    const int64_t* target
    const int64_t* size


cdef void scan_part(Scan* job, ptrdiff_t part, real* unused) noexcept nogil:
    cdef Py_ssize_t i
    job.bad[part] = -1
    for i in range(fs_pool_from(job.n, job.n_parts, part, 1), fs_pool_from(job.n, job.n_parts, part + 1, 1)):
        if scan_rows(1, job.d, job.ld, <const real*> job.x + i * job.ld, job.largest + i) >= 0:
            job.bad[part] = i
            return


def scan(const real[:, :] rows, double[::1] largest):
    """Index of the first row with a NaN or an infinity, or -1; largest[i] = max |row i| before it."""
    cdef Scan job
    cdef Py_ssize_t part
    job.n, job.d, job.ld = rows.shape[0], rows.shape[1], rows.strides[0] // <Py_ssize_t> sizeof(real)
    if job.n == 0:
        return -1
    job.n_parts = min(job.n, fs_pool_parts(<double> job.n * job.d * sizeof(real), LEAST_SCAN))
    job.x, job.largest = &rows[0, 0], &largest[0]
    with nogil:
        fs_pool_run(job.n_parts, <fs_part> scan_part[real], &job, NULL, 0)
    for part in range(job.n_parts):
        if job.bad[part] >= 0:
            return job.bad[part]
    return -1


cdef void take_numbers(DenseState s, const Table* table, Py_ssize_t g) noexcept nogil:
    cdef const double* book = table.book + 5 * g
    cdef const int64_t* count = table.count + 6 * g
    s.shrinkage, s.squared_norm, s.weight, s.settled_weight, s.rounding = book[0], book[1], book[2], book[3], book[4]
    s.fill, s.kept, s.age, s.n_rows, s.exponent, s.top = count[0], count[1], count[2], count[3], count[4], count[5]


cdef void give_numbers(DenseState s, const Table* table, Py_ssize_t g) noexcept nogil:
    cdef double* book = table.book + 5 * g
    cdef int64_t* count = table.count + 6 * g
    book[0], book[1], book[2], book[3], book[4] = s.shrinkage, s.squared_norm, s.weight, s.settled_weight, s.rounding
    count[0], count[1], count[2], count[3], count[4], count[5] = s.fill, s.kept, s.age, s.n_rows, s.exponent, s.top


cdef void take_tail(DenseState s, const double* lam) noexcept nogil:
    """lam, gain, mean and mean_low of a record."""
    cdef Py_ssize_t n = s.lam.shape[0], d = s.mean.shape[0]
    memcpy(&s.lam[0], lam, n * sizeof(double))
    memcpy(&s.gain[0], lam + n, n * sizeof(double))
    if d:
        memcpy(&s.mean[0], lam + 2 * n, d * sizeof(double))
        memcpy(&s.mean_low[0], lam + 2 * n + d, d * sizeof(double))


cdef void give_tail(DenseState s, double* lam) noexcept nogil:
    cdef Py_ssize_t n = s.lam.shape[0], d = s.mean.shape[0]
    memcpy(lam, &s.lam[0], n * sizeof(double))
    memcpy(lam + n, &s.gain[0], n * sizeof(double))
    if d:
        memcpy(lam + 2 * n, &s.mean[0], d * sizeof(double))
        memcpy(lam + 2 * n + d, &s.mean_low[0], d * sizeof(double))


cdef void rescale(DenseState s, Py_ssize_t exponent, real* newest, double* lam) noexcept nogil:
    """Store a group divided by another power of two; `lam` is NULL as long as it has no tail."""
    cdef double factor = ldexp(1.0, <int> max(-1022, min(1022, s.exponent - exponent)))
    cdef Py_ssize_t i, n = s.lam.shape[0], d = s.mean.shape[0]
    # the kept rows stand for gain times their entries
    for i in range((s.fill - s.kept) * s.n_features):
        newest[i] *= <real> factor
    if lam is not NULL:
        for i in range(n):
            lam[i] = lam[i] * factor * factor
            lam[n + i] *= factor
        for i in range(2 * d):
            lam[2 * n + i] *= factor
    s.shrinkage = s.shrinkage * factor * factor
    s.squared_norm = s.squared_norm * factor * factor
    s.rounding = s.rounding * factor * factor * factor * factor
    s.exponent = exponent


cdef int take_rows(DenseState s, Batch* job, Py_ssize_t which, Py_ssize_t part, real* kind) noexcept nogil:
    """All rows of one group of the batch (`kind` only selects the type)."""
    cdef Py_ssize_t g = job.group[which], d = job.d, limit = s.capacity - s.center, i, count, top, exponent
    cdef const int64_t* place = job.order + job.start[which]
    cdef Py_ssize_t n = job.start[which + 1] - job.start[which], done = 0
    cdef real* record = <real*> <void*> <size_t> job.table.record[g]
    cdef real* end = record + job.table.room[g] * d
    cdef double* lam = NULL
    cdef double largest = 0.0, scale, square
    cdef int binary = 0, info
    take_numbers(s, &job.table, g)
    if job.table.room[g] == s.capacity:
        lam = <double*> (<char*> record + job.table.tail)
    for i in range(n):
        largest = max(largest, job.largest[place[i]])
    if largest > 0.0:
        frexp(min(largest, 1e308), &binary)
        top = max(<Py_ssize_t> binary, s.top)
        exponent = 0
        if top < job.table.low or top > job.table.high:
            exponent = max(-job.table.most, min(job.table.most, top))
        if exponent != s.exponent:
            rescale(s, exponent, end - s.fill * d, lam)
        s.top = top
    scale = ldexp(1.0, <int> -s.exponent)
    while done < n:
        count = min(limit - s.fill, n - done)
        for i in range(count):
            load_rows(1, d, job.ld, <const real*> job.rows + place[done + i] * job.ld, <const double*> NULL, -1, scale,
                      end - (s.fill + i + 1) * d, d, &square)
            s.weight += 1.0
            if not s.center:
                s.squared_norm += square
        s.fill += count
        s.n_rows += count
        done += count
        if s.fill == limit:
            take_tail(s, lam)
            info = flush(s, record, <real*> NULL, <real*> job.work[part], job.lwork)
            if info:
                return info
            give_tail(s, lam)
    give_numbers(s, &job.table, g)
    return 0


# Called by pointers whose first argument is no Python object: the pool's threads may not touch counts of references.
ctypedef int (*float_handle)(void*, Batch*, Py_ssize_t, Py_ssize_t, float*) noexcept nogil
ctypedef int (*double_handle)(void*, Batch*, Py_ssize_t, Py_ssize_t, double*) noexcept nogil


cdef inline int handle(Batch* job, Py_ssize_t which, Py_ssize_t part, real* kind) noexcept nogil:
    if real is float:
        return (<float_handle> job.handle)(job.state[part], job, which, part, kind)
    else:
        return (<double_handle> job.handle)(job.state[part], job, which, part, kind)


cdef Py_ssize_t first_group(const Batch* job, Py_ssize_t part) noexcept nogil:
    """Parts have about as many rows each; of a reading, as many groups."""
    cdef Py_ssize_t wanted = fs_pool_from(job.n, job.n_parts, part, 1)
    return wanted if job.start is NULL else lower_bound(job.start, 0, job.n_groups, wanted)


cdef void take_part(Batch* job, ptrdiff_t part, real* unused) noexcept nogil:
    cdef Py_ssize_t which
    job.info[part] = 0
    for which in range(first_group(job, part), first_group(job, part + 1)):
        job.info[part] = handle(job, which, part, <real*> NULL)
        if job.info[part]:
            return


cdef int table_of(Table* table, double[:, ::1] book, int64_t[:, ::1] count, const int64_t[::1] record,
                  const int64_t[::1] room, Py_ssize_t tail, tuple exponents) except -1:
    table.book, table.count, table.record, table.room = &book[0, 0], &count[0, 0], &record[0], &room[0]
    table.tail = tail
    table.low, table.high, table.most = exponents
    return 0


cdef int with_states(Batch* job, list states, real* kind) except -1:
    """The states of the parts, and their work (`kind` only selects the type)."""
    cdef Py_ssize_t part
    cdef real[::1] work
    cdef DenseState state
    for part in range(job.n_parts):
        state = states[part]
        work = state.work
        job.state[part], job.work[part], job.lwork = <void*> state, &work[0], work.shape[0]
    return 0


cdef int first_failure(const Batch* job) noexcept:
    cdef Py_ssize_t part
    for part in range(job.n_parts):
        if job.info[part]:
            return job.info[part]
    return 0


def parts_of(Py_ssize_t n, Py_ssize_t d, Py_ssize_t capacity):
    """Parts of a batch of n rows: as many states are needed."""
    return fs_pool_parts(4.0 * n * d * capacity, LEAST)


def absorb(const real[:, :] rows, const double[::1] largest, const int64_t[::1] order, const int64_t[::1] start,
           const int64_t[::1] group, *, double[:, ::1] book, int64_t[:, ::1] count, const int64_t[::1] record,
           const int64_t[::1] room, Py_ssize_t tail, tuple exponents, list states):
    """Put finite rows (columns contiguous) into the groups' records: rows order[start[i]:start[i + 1]] are group[i]'s.

    Raises LinAlgError if an eigensolver does not converge: some groups have then all their rows, and others none.
    """
    cdef Batch job
    if order.shape[0] == 0:
        return
    table_of(&job.table, book, count, record, room, tail, exponents)
    job.n, job.d, job.ld = order.shape[0], rows.shape[1], rows.strides[0] // <Py_ssize_t> sizeof(real)
    job.rows, job.largest = &rows[0, 0], &largest[0]
    job.order, job.start, job.group, job.n_groups = &order[0], &start[0], &group[0], group.shape[0]
    job.n_parts, job.handle = len(states), <void*> take_rows[real]
    with_states[real](&job, states, NULL)
    with nogil:
        fs_blas_alone(1)
        fs_pool_run(job.n_parts, <fs_part> take_part[real], &job, NULL, 0)
        fs_blas_alone(0)
    converged(first_failure(&job), "the eigensolver of the shrink")


cdef void copy_part(void* context, ptrdiff_t part, void* unused) noexcept nogil:
    cdef Copies* job = <Copies*> context
    cdef Py_ssize_t i
    for i in range(fs_pool_from(job.n, job.n_parts, part, 1), fs_pool_from(job.n, job.n_parts, part + 1, 1)):
        if job.size[i] > 0:  # what has no bytes may have no address
            memcpy(<void*> <size_t> job.target[i], <const void*> <size_t> job.source[i], job.size[i])


def copy(const int64_t[::1] source, const int64_t[::1] target, const int64_t[::1] size):
    """Bytes from addresses to others."""
    cdef Copies job
    cdef double total = 0.0
    cdef Py_ssize_t i
    job.n = source.shape[0]
    if job.n == 0:
        return
    for i in range(job.n):
        total += size[i]
    job.n_parts = min(job.n, fs_pool_parts(total, LEAST_SCAN))
    job.source, job.target, job.size = &source[0], &target[0], &size[0]
    with nogil:
        fs_pool_run(job.n_parts, copy_part, &job, NULL, 0)


def begin_tails(const int64_t[::1] address, Py_ssize_t n_lam, Py_ssize_t n_mean):
    """lam = 0, gain = 1, mean = mean_low = 0 at these addresses."""
    cdef Py_ssize_t i, j
    cdef double* lam
    with nogil:
        for i in range(address.shape[0]):
            lam = <double*> <void*> <size_t> address[i]
            memset(lam, 0, (2 * n_lam + 2 * n_mean) * sizeof(double))
            for j in range(n_lam):
                lam[n_lam + j] = 1.0


cdef int last_shrink(DenseState s, Batch* job, Py_ssize_t g, Py_ssize_t part, real* kind) noexcept nogil:
    """The numbers of a group when it is read, in a copy: settled, and shrunk if it has too many rows to stay."""
    cdef Py_ssize_t d = job.d, most = min(s.n_keep + 1, s.capacity - 1 - s.center), fill
    cdef const real* record = <const real*> <void*> <size_t> job.table.record[g]
    cdef real* buffer = <real*> job.rows + part * s.capacity * d
    cdef int info = 0
    take_numbers(s, &job.table, g)
    fill = s.fill
    if fill > 0:  # a record without rows may have no address
        memcpy(buffer + (s.capacity - fill) * d, record, fill * d * sizeof(real))
    take_tail(s, <const double*> <void*> <size_t> job.tail[g])
    if fill + (s.center and fill > s.kept) > most:
        info = flush(s, buffer, <real*> NULL, <real*> job.work[part], job.lwork)
    else:
        info = settle(s, buffer)
    give_numbers(s, &job.table, g)
    return info


def last_numbers(real[:, :, ::1] buffers, *, double[:, ::1] book, int64_t[:, ::1] count, const int64_t[::1] rows,
                 const int64_t[::1] tail, list states):
    """Bring sums and counts of groups to what they are when each is read; rows and tails lie at addresses, and stay.

    buffers: (parts, capacity, d) of scratch.
    """
    cdef Batch job
    if rows.shape[0] == 0:
        return
    table_of(&job.table, book, count, rows, rows, 0, (0, 0, 0))
    job.n = job.n_groups = rows.shape[0]
    job.d, job.rows, job.tail, job.start = buffers.shape[2], &buffers[0, 0, 0], &tail[0], NULL
    job.n_parts, job.handle = len(states), <void*> last_shrink[real]
    with_states[real](&job, states, NULL)
    with nogil:
        fs_blas_alone(1)
        fs_pool_run(job.n_parts, <fs_part> take_part[real], &job, NULL, 0)
        fs_blas_alone(0)
    converged(first_failure(&job), "the eigensolver of the shrink")
