"""faiss's codes at a total of bytes a row: PQ, OPQ, scalar codes behind PCA, RaBitQ."""

import numpy as np

# Name, bits a direction, bytes of a row that are no such bits (its factors).
RABITQ = (("PCA, RaBitQ", 1, 8), ("PCA, RaBitQ, 2 bits", 2, 20))


def blocks(d, n):
    """Columns of rows with zero columns put in, so that n equal blocks of columns hold all d; d stands for a zero."""
    width, parts = -(-d // n), np.array_split(np.arange(d), n)
    return np.concatenate([np.r_[part, [d] * (width - len(part))] for part in parts]).astype(np.intp)


class Faiss:
    """An index of faiss's factory, behind PCA if it says so; `columns` is what `blocks` gives, or None."""

    def __init__(self, factory, columns=None):
        self.factory, self.columns = factory, columns

    def fit(self, rows):
        import faiss

        rows = self._rows(rows)
        self.index = faiss.index_factory(rows.shape[1], self.factory)
        last = faiss.downcast_index(self.index)
        last = faiss.downcast_index(last.index) if hasattr(last, "chain") else last
        self.bytes = last.code_size
        if hasattr(last, "qb"):
            last.qb = 8  # bits of a query's numbers: its best
        self.index.train(rows)
        return self

    def add(self, rows):
        for start in range(0, len(rows), 50_000):
            self.index.add(self._rows(rows[start : start + 50_000]))

    def encode(self, rows):
        return self.index.sa_encode(self._rows(rows))

    def search(self, queries, k):
        return self.index.search(self._rows(queries), k)[1]

    def _rows(self, rows):
        rows = np.ascontiguousarray(rows, np.float32)
        if self.columns is None:
            return rows
        return np.concatenate([rows, np.zeros((len(rows), 1), np.float32)], axis=1)[:, self.columns]


def peers(d, n_bytes):
    """{name: untrained peer} whose rows take n_bytes each, for rows of d columns."""
    m, out = n_bytes, {}

    def product(name, factory, n):
        out[name] = Faiss(factory, None if d % n == 0 else blocks(d, n))

    product("PQ", f"PQ{m}np", m)  # np: not polysemous, which codes compared by Hamming distance want, at half a minute
    if 2 * m <= d:
        product("PQ, 4 bits", f"PQ{2 * m}x4fs", 2 * m)
    # faiss's own advice: four directions a byte
    directions = min(4 * m, d // m * m)
    out["OPQ"] = Faiss(f"OPQ{m}_{directions},PQ{m}np")
    if 2 * m <= d:
        out["PCA, SQ4"] = Faiss(f"PCA{2 * m},SQ4")
    for name, bits, factors in RABITQ:
        directions = min((m - factors) * 8 // bits, d)
        if directions > 0:
            out[name] = Faiss(f"PCAR{directions},RaBitQ{'' if bits == 1 else bits}")
    return out
