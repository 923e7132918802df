"""The fast path for up to 16 rows: scale, learn, calibrate and update the metrics in one call without Python in between.

It serves linear models with one state (two classes, or real targets). A FewRows object stores pointers into the arrays
of its model and is rebuilt when one of the arrays is replaced. Rows or targets that need any other treatment (another
format, a new label, a refused row) are left to the general path in Python; the model is then unchanged.
"""

cimport cython
from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from fastsketch._kernels.brief cimport BRIEF
from fastsketch._kernels.features.columns cimport ColumnMap
from fastsketch._kernels.losses cimport finite
from fastsketch._kernels.online.inputs cimport Steady, TOTALS_, dense_loop, set_steady, sparse_loop
from fastsketch._kernels.online.metrics cimport loop_real, loop_two
from fastsketch._kernels.online.numbers cimport Lesson, RowBlock, SEEN, StateArrays
from fastsketch._kernels.online.readout cimport rounds_of_two, rounds_of_two_numbers
from fastsketch._kernels.online.rollback cimport Rollback, release, restore, save_array, save_entries

import sys

import numpy as np

from fastsketch._kernels.features.columns import INTERCEPT
from fastsketch._kernels.online.metrics import REAL

cdef object ndarray = np.ndarray
cdef object empty = np.empty
cdef double LARGEST_TARGET = sys.float_info.max

# Types of labels that are looked up without conversion.
SINGLE = frozenset((bool, int, float, str, np.bool_, np.int32, np.int64, np.float32, np.float64, np.str_))

cdef enum:
    # Maximum number of rows: for more, the fixed cost of the general path is small per row.
    MAX_ROWS = 16
    # Maximum number of values in the batch, including intercepts.
    MAX_VALUES = 1 << 16

cdef int32_t intercept_column = INTERCEPT
cdef int of_numbers = REAL


cdef struct Plan:
    # Pointers into the arrays of a model, and scratch for a batch.
    RowBlock rows
    bint intercept
    Py_ssize_t d                 # features of dense rows
    # running moments by slot or column, for scale="moments"
    double* first
    double* second
    double* totals
    Py_ssize_t known
    Steady steady
    # calibration and blending
    Py_ssize_t n_members         # 2 with a diagonal learner to blend with, else 1
    double* weights              # of the calibration (labels), and its information matrix
    double* information
    double* blend                # sums of the blend of real targets
    double readout_decay
    # metrics
    double* sums
    double* bins
    double* mistakes             # counter of wrong signs of the calibrated score; NULL without calibration
    double decay
    int metric_kind
    # the batch
    double* data
    int32_t* places
    int64_t[MAX_ROWS + 1] starts
    double[MAX_ROWS] targets
    double[MAX_ROWS] sample_weight
    double[2 * MAX_ROWS] members
    double[MAX_ROWS] scores
    Rollback before              # what is written back if a row is refused


@cython.auto_pickle(False)
cdef class FewRows(StateArrays):
    """The fast path of one model, which learns batches of a few rows without Python code.

    `model_state` is the ModelState (fastsketch.online) of a model with one main learner. `loss_scale` is the weight of
    every row, and `mistakes` the index of the mistakes in the array `tally`.
    """

    cdef Plan plan
    cdef object learner, diagonal_learner, labels, numbers, tally_of, map_of, single
    cdef StateArrays rounds, diagonal_rounds
    cdef ColumnMap columns
    cdef Py_ssize_t width        # of the rows; -1: any
    cdef Py_ssize_t slot_capacity
    cdef int64_t* count
    cdef int64_t* diagonal_count
    cdef double sign, output_sign
    cdef int32_t* slot_buffer
    cdef double* data_buffer
    cdef Py_ssize_t capacity

    def __init__(self, model_state, double loss_scale, int mistakes):
        cdef Plan* p = &self.plan
        cdef Py_ssize_t i
        states, inputs, metrics = model_state.states, model_state.inputs, model_state.metrics
        if self.n_views:
            raise TypeError("a plan is of one model")
        self.learner = states.main_learners[0]
        self.diagonal_learner = states.diagonal_learners[0] if states.diagonal_learners else None
        self.rounds = self.learner.rounds_now
        self.diagonal_rounds = None if self.diagonal_learner is None else self.diagonal_learner.rounds_now
        self.labels, self.sign, self.output_sign = model_state.labels, states.signs[0], model_state.sign()
        if self.labels is not None:
            self.numbers, self.tally_of = self.labels.numbers, type(self.labels.tally)
        self.count = <int64_t*> self.pointer_to(self.learner.count, b"l")
        p.n_members, p.intercept = states.n_members, inputs.intercept
        if self.diagonal_learner is not None:
            self.diagonal_count = <int64_t*> self.pointer_to(self.diagonal_learner.count, b"l")
        self.take_inputs(inputs, model_state.columns)
        self.take_scores(states, metrics, mistakes)
        p.rows.sample_weight = p.sample_weight
        for i in range(MAX_ROWS):
            p.sample_weight[i] = loss_scale

    cdef int take_inputs(self, inputs, columns) except -1:
        cdef Plan* p = &self.plan
        self.width = -1 if columns.width is None else columns.width
        self.slot_capacity = self.learner.base.shape[0]
        if self.diagonal_learner is not None:
            self.slot_capacity = min(self.slot_capacity, <Py_ssize_t> self.diagonal_learner.base.shape[0])
        if inputs.moments is not None:
            p.known = inputs.moments.shape[1]
            p.first = self.doubles(inputs.moments)
            p.second = p.first + p.known
            p.totals = self.doubles(inputs.moment_totals)
            set_steady(&p.steady, self.doubles(inputs.steady), p.known, False)
            if inputs.sparse:
                self.slot_capacity = min(self.slot_capacity, p.known)
        if inputs.sparse:
            self.columns = columns.map
        else:
            p.d = self.width
        return 0

    cdef int take_scores(self, states, metrics, int mistakes) except -1:
        cdef Plan* p = &self.plan
        readout = states.readout
        if readout is not None:
            p.readout_decay = readout.decay
            p.mistakes = self.doubles(states.counted.tally) + mistakes
            if hasattr(readout, "blend_sums"):
                p.blend = self.doubles(readout.blend_sums)
            else:
                p.weights = self.doubles(readout.readout_weights)
                p.information = self.doubles(readout.readout_information)
        p.sums = self.doubles(metrics.metric_sums)
        p.bins = self.doubles(metrics.auc_bins)
        p.decay, p.metric_kind = metrics.decay, metrics.how
        return 0

    def __dealloc__(self):
        release(&self.plan.before)
        free(self.data_buffer)
        free(self.slot_buffer)

    def is_stale(self):
        """Return True if the model has replaced one of the arrays to which this object has pointers."""
        return self.stale()

    cdef bint stale(self) except -1:
        if self.learner.rounds_now is not self.rounds:
            return True
        return self.diagonal_learner is not None and self.diagonal_learner.rounds_now is not self.diagonal_rounds

    # -- what Python calls -------------------------------------------------------------------------------------------------
    def learn(self, model, rows, targets):
        """Learn rows. Return False, with nothing changed, if the general path in Python must learn them.

        Sets the attributes last_scores, _until_look and _coef of `model`.
        """
        if self.stale():
            return False
        return self.learn_read(model, self.read_sparse(rows) if self.columns is not None else self.read_dense(rows),
                               targets)

    def learn_named(self, model, csr, targets):
        """Learn rows with feature names, converted to CSR (data, indices, indptr) and checked, as ``learn`` does."""
        return not self.stale() and self.learn_read(model, self.read_named(csr), targets)

    cdef bint learn_read(self, model, Py_ssize_t n, targets) except -1:
        cdef Plan* p = &self.plan
        cdef Py_ssize_t i
        cdef bint done
        cdef double[::1] scores
        if n < 1 or not self.read_targets(targets, n):
            return False
        p.rows.n, tally, left = n, None, model._until_look - n
        if self.labels is not None:
            if left <= 0:
                return False
            tally = self.tally_with(n)
        answer = empty(n)
        scores = answer
        if self.is_brief(n):
            done = self.pass_through()
        else:
            with nogil:
                done = self.pass_through()
        if not done:
            return False
        for i in range(n):
            scores[i] = p.scores[i] if self.output_sign > 0 else -p.scores[i] + 0.0
        # nothing here runs Python code, in which an interrupt could be raised
        if tally is not None:
            self.labels.tally = tally
        model._coef, model._until_look, model.last_scores = None, left, answer
        return True

    cdef bint is_brief(self, Py_ssize_t n) noexcept nogil:
        """Return True if the work is too short to be worth releasing the GIL."""
        cdef Plan* p = &self.plan
        cdef Py_ssize_t values = n * p.rows.n_slots if p.rows.indptr == NULL else p.rows.indptr[n]
        return self.rounds.work(values, n) <= BRIEF and n * p.rows.n_slots <= BRIEF

    # -- rows --------------------------------------------------------------------------------------------------------------
    cdef bint reserve(self, Py_ssize_t n_values) noexcept:
        cdef double* data
        cdef int32_t* places
        if n_values <= self.capacity:
            return True
        data = <double*> realloc(self.data_buffer, n_values * sizeof(double))
        if data == NULL:
            return False
        self.data_buffer = self.plan.data = data  # now, because realloc has freed the old block even if the next one fails
        places = <int32_t*> realloc(self.slot_buffer, n_values * sizeof(int32_t))
        if places == NULL:
            return False
        self.slot_buffer = self.plan.places = places
        self.capacity = n_values
        return True

    cdef Py_ssize_t read_dense(self, rows) except -2:
        """Copy dense float64 rows, and append intercepts. Return the number of rows, or -1 for other kinds of rows."""
        cdef Py_buffer view
        cdef Py_ssize_t n
        if type(rows) is not ndarray:
            return -1
        try:
            PyObject_GetBuffer(rows, &view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)
        except (BufferError, ValueError):
            return -1
        n = -1
        if view.format[0] == c"d" and 1 <= view.ndim <= 2 and view.shape[view.ndim - 1] == self.width:
            n = view.shape[0] if view.ndim == 2 else 1
            if n > MAX_ROWS or n * (self.width + 1) > MAX_VALUES or not self.reserve(n * (self.width + 1)):
                n = -1
            elif not self.copy_dense(n, <const double*> view.buf):
                n = -1
        PyBuffer_Release(&view)
        return n

    cdef bint copy_dense(self, Py_ssize_t n, const double* x) noexcept nogil:
        cdef Plan* p = &self.plan
        cdef Py_ssize_t i
        cdef double* out = p.data
        cdef bint good = True
        for i in range(n * p.d):
            good &= finite(x[i])
        if not good:
            return False
        for i in range(n):
            memcpy(out, x + i * p.d, p.d * sizeof(double))
            out += p.d
            if p.intercept:
                out[0] = 1.0
                out += 1
        p.rows.data, p.rows.slots, p.rows.indptr = p.data, NULL, NULL
        p.rows.longest = p.rows.n_slots = p.d + p.intercept
        return True

    cdef Py_ssize_t read_sparse(self, rows) except -2:
        """Copy canonical CSR rows, and append intercepts. Return the number of rows, or -1 for other kinds of rows."""
        cdef Py_buffer[3] views
        cdef Py_ssize_t n = -1, n_rows, n_columns
        cdef int got = 0
        module = sys.modules.get("scipy.sparse")
        # a module that another thread is importing is listed already, and may lack its classes
        kinds = getattr(module, "csr_array", None), getattr(module, "csr_matrix", None)
        if type(rows) is not kinds[0] and type(rows) is not kinds[1]:
            return -1
        shape = rows.shape
        if len(shape) != 2:
            return -1
        n_rows, n_columns = shape
        if not 1 <= n_rows <= MAX_ROWS:
            return -1
        if not (n_columns == self.width or (self.width < 0 and n_columns <= intercept_column)):
            return -1
        try:
            for part in (rows.data, rows.indices, rows.indptr):
                if type(part) is not ndarray:
                    return -1
                PyObject_GetBuffer(part, &views[got], PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)
                got += 1
            if is_plain(views, n_rows, n_columns):
                n = self.copy_sparse(n_rows, <const double*> views[0].buf, <const int32_t*> views[1].buf,
                                     <const int32_t*> views[2].buf)
        except (BufferError, ValueError):
            return -1
        finally:
            while got:
                got -= 1
                PyBuffer_Release(&views[got])
        return n

    cdef Py_ssize_t read_named(self, csr) except -2:
        cdef const double[::1] data = csr[0]
        cdef const int32_t[::1] indices = csr[1]
        cdef const int64_t[::1] indptr = csr[2]
        cdef int32_t[MAX_ROWS + 1] starts
        cdef Py_ssize_t i, n = indptr.shape[0] - 1
        if self.columns is None or not 1 <= n <= MAX_ROWS or not 0 < indptr[n] <= MAX_VALUES:
            return -1
        for i in range(n + 1):
            starts[i] = <int32_t> indptr[i]
        return self.copy_sparse(n, &data[0], &indices[0], starts)

    cdef Py_ssize_t copy_sparse(self, Py_ssize_t n, const double* data, const int32_t* indices,
                                const int32_t* indptr) except -2:
        cdef Plan* p = &self.plan
        cdef Py_ssize_t i, position = 0, nonzeros, total = indptr[n] + n * p.intercept
        cdef Py_ssize_t known = self.count[SEEN]
        if total > MAX_VALUES or not self.reserve(total + 1):
            return -1
        if self.diagonal_count != NULL:
            known = max(known, <Py_ssize_t> self.diagonal_count[SEEN])
        if self.columns.n > known:
            self.columns.forget(known)
        p.starts[0] = p.rows.longest = 0
        for i in range(n):
            nonzeros = indptr[i + 1] - indptr[i]
            memcpy(p.data + position, data + indptr[i], nonzeros * sizeof(double))
            if not self.columns.add_some(indices + indptr[i], nonzeros, p.places + position):
                return -1
            position += nonzeros
            if p.intercept:
                p.data[position] = 1.0
                if not self.columns.add_some(&intercept_column, 1, p.places + position):
                    return -1
                position += 1
            p.starts[i + 1] = position
            p.rows.longest = max(p.rows.longest, position - p.starts[i])
        p.rows.data, p.rows.slots, p.rows.indptr, p.rows.n_slots = p.data, p.places, p.starts, self.columns.n
        return n if self.columns.n <= self.slot_capacity else -1

    # -- targets -----------------------------------------------------------------------------------------------------------
    cdef bint read_targets(self, targets, Py_ssize_t n) except -1:
        cdef Plan* p = &self.plan
        cdef Py_ssize_t i
        target_list = targets
        if type(target_list) is ndarray:
            if target_list.dtype.kind not in ("biufU" if self.labels is not None else "biuf"):
                return False
            target_list = target_list.tolist()
        if type(target_list) is not list and type(target_list) is not tuple:
            target_list = (target_list,)
        if len(target_list) != n:
            return False
        for i in range(n):
            value = target_list[i]
            if self.labels is None:
                if not isinstance(value, (float, int)) or not -LARGEST_TARGET <= value <= LARGEST_TARGET:
                    return False
                p.targets[i] = value
                continue
            if type(value) not in SINGLE:
                return False
            number = self.numbers.get(value)
            if number is None:
                return False
            p.targets[i] = -self.sign if number else self.sign
        return True

    cdef object tally_with(self, Py_ssize_t n):
        """Return the count of rows of each class and of runs of equal classes, including the n rows of the batch."""
        cdef Py_ssize_t i
        rows, runs, last = self.labels.tally
        rows = list(rows)
        for i in range(n):
            number = 0 if self.plan.targets[i] == self.sign else 1
            rows[number] += 1
            if number != last:
                runs += 1
            last = number
        return self.tally_of(rows, runs, last)

    # -- the stages --------------------------------------------------------------------------------------------------------
    cdef bint pass_through(self) noexcept nogil:
        """Scale the rows, learn them, and update calibration and metrics; return False if a row is refused."""
        cdef Plan* p = &self.plan
        cdef const RowBlock* rows = &p.rows
        cdef Py_ssize_t n = rows.n
        cdef bint is_blended = self.diagonal_count != NULL
        if not self.rounds.is_ready(rows) or (is_blended and not self.diagonal_rounds.is_ready(rows)):
            return False
        self.save_all(is_blended)
        if p.before.lacks_memory:
            return False
        if ((p.known and self.scaled() < n)
                or (is_blended and not self.has_learned(self.diagonal_rounds, p.members + n))
                or not self.has_learned(self.rounds, p.members)):
            restore(&p.before)
            return False
        self.read_out()
        return True

    cdef bint has_learned(self, StateArrays state, double* scores) noexcept nogil:
        """Train one learner on the rows, and write their scores. Return True if it has learned all of them."""
        cdef Lesson lesson
        lesson.model, lesson.targets, lesson.scores = state.model, self.plan.targets, scores
        lesson.done, lesson.lacks_room = 0, False
        state.learn_block(&lesson, 1, &self.plan.rows)
        return lesson.done == self.plan.rows.n

    cdef void save_all(self, bint is_blended) noexcept nogil:
        cdef Plan* p = &self.plan
        cdef Rollback* before = &p.before
        cdef const int32_t* slots = p.rows.slots
        cdef Py_ssize_t i, n_values
        before.n = before.used = 0
        before.lacks_memory = False
        if p.rows.n > 1 or not self.rounds.takes_in_whole():
            self.rounds.save_before(before, &p.rows)
        if is_blended:
            self.diagonal_rounds.save_before(before, &p.rows)
        if not p.known:
            return
        save_array(before, p.totals, TOTALS_ * sizeof(double))
        if slots == NULL:
            save_array(before, p.first, 2 * p.known * sizeof(double))
            save_array(before, p.steady.centres, 2 * p.known * sizeof(double))
            return
        n_values = p.starts[p.rows.n]
        for i in range(2):
            save_entries(before, p.first + i * p.known, slots, n_values)
        if p.steady.centres != NULL:
            for i in range(4):
                save_entries(before, p.steady.centres + i * p.known, slots, n_values)

    cdef Py_ssize_t scaled(self) noexcept nogil:
        cdef Plan* p = &self.plan
        if p.rows.indptr == NULL:
            return dense_loop(p.rows.n, p.known, p.d + p.intercept, p.data, p.first, p.second, p.totals, True,
                              &p.steady)
        return sparse_loop(p.rows.n, p.data, p.places, p.starts, p.intercept, p.first, p.second, p.totals, p.known, True,
                           &p.steady)

    cdef void read_out(self) noexcept nogil:
        cdef Plan* p = &self.plan
        cdef Py_ssize_t i, n = p.rows.n
        if p.blend != NULL:
            rounds_of_two_numbers(n, p.members, p.targets, p.sample_weight, p.blend, p.scores, p.readout_decay)
        elif p.weights != NULL:
            rounds_of_two(p.n_members, n, p.members, p.targets, p.sample_weight, p.readout_decay, p.weights,
                          p.information, p.scores)
        else:
            memcpy(p.scores, p.members, n * sizeof(double))
        if p.mistakes != NULL:
            for i in range(n):
                p.mistakes[0] += p.scores[i] * p.targets[i] <= 0
        if p.metric_kind == of_numbers:
            loop_real(p.sums, n, p.scores, p.targets, NULL, p.decay)
        else:
            loop_two(p.sums, p.bins, n, p.scores, p.targets, NULL, p.decay, p.metric_kind)


cdef bint is_plain(const Py_buffer* views, Py_ssize_t n, Py_ssize_t n_columns) noexcept nogil:
    """Return whether the three arrays are n CSR rows of finite float64 with sorted, unique int32 indices."""
    cdef const double* data = <const double*> views[0].buf
    cdef const int32_t* indices = <const int32_t*> views[1].buf
    cdef const int32_t* starts = <const int32_t*> views[2].buf
    cdef Py_ssize_t i, j
    cdef int32_t last
    if views[0].format[0] != c"d" or views[1].format[0] != c"i" or views[2].format[0] != c"i":
        return False
    if views[0].ndim != 1 or views[1].ndim != 1 or views[2].ndim != 1 or views[2].shape[0] != n + 1:
        return False
    if starts[0] != 0 or views[0].shape[0] != views[1].shape[0]:
        return False
    for i in range(n):
        if not starts[i] <= starts[i + 1] <= views[0].shape[0]:
            return False
        last = -1
        for j in range(starts[i], starts[i + 1]):
            if not last < indices[j] < n_columns or not finite(data[j]):
                return False
            last = indices[j]
    return True
