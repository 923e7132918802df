"""Questions to an index; nothing here changes it."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.validation import Rows, as_flag
from fastsketch.data.files._checks import MOST_COUNT
from fastsketch.neighbours.codes import Encoder
from fastsketch.neighbours.codes._places import Ids
from fastsketch.neighbours.codes._rescoring import Source
from fastsketch.neighbours.codes._search import Found
from fastsketch.neighbours.index import _generations
from fastsketch.neighbours.index._contents import Contents
from fastsketch.neighbours.index._index_search import kept_rows, search


class ReadableIndex:
    """An index as those see it who read it: each call takes its contents as they are then, whoever changes them."""

    _rows: str | None
    _metric: str
    _partitions: int | str | None
    _contents: Contents  # replaced whole

    # -- what it is ----------------------------------------------------------------------------------------------------
    @property
    def rows(self) -> str | None:
        """Return the dtype in which rows are kept, "float16" or "float32", or None."""
        return self._rows

    @property
    def metric(self) -> str:
        """Return what a search ranks by."""
        return self._metric

    @property
    def partitions(self) -> int | str | None:
        """Return how many cells a segment is cut into: a number, "auto" or None."""
        return self._partitions

    @property
    def encoder(self) -> Encoder:
        """Return what rows are encoded by now."""
        return self._contents.encoder

    @property
    def n_features(self) -> int:
        """Return the number of columns."""
        return self.encoder.n_features

    def __len__(self) -> int:
        return self._contents.n_live

    @property
    def ids(self) -> Ids:
        """Return the ids, int64 or strings (len(index),), in the order in which the rows were added."""
        return self._contents.named(self._contents.live_ids)

    @property
    def generations(self) -> list[dict[str, Any]]:
        """Return facts of each generation, the oldest first."""
        return _generations.facts(self._contents)

    def facts(self) -> dict[str, Any]:
        """Return what there is to know at a glance, as json can write it.

        Returns
        -------
        dict
            "kind", "n_rows", "n_removed", "n_features", "metric", "rows", "partitions", "cells" (of each segment that
            has any, their number and how many are looked at for 10, 100 and 1,000 neighbours), "n_segments", "n_bytes"
            (of all arrays, mapped ones too) and "generations".
        """
        contents = self._contents
        return {
            "kind": type(self).__name__,
            "n_rows": contents.n_live,
            "n_removed": sum(segment.n_removed for segment in contents.segments),
            "n_features": contents.encoder.n_features,
            "metric": self._metric,
            "rows": self._rows,
            "partitions": self._partitions,
            "cells": [[len(cells.middles), *cells.probes] for s in contents.segments if (cells := s.cells) is not None],
            "n_segments": len(contents.segments),
            "n_bytes": sum(segment.n_bytes() for segment in contents.segments),
            "generations": _generations.facts(contents),
        }

    def __repr__(self) -> str:
        kept = "" if self._rows is None else f", rows={self._rows!r}"
        return f"<CodeIndex({self.encoder!r}{kept}, metric={self._metric!r}): {len(self)} rows>"

    # -- reading -------------------------------------------------------------------------------------------------------
    def search(
        self,
        queries: Rows,
        k: int = 10,
        *,
        oversample: float = 4,
        rescore: bool | Source | None = None,
        allow: ArrayLike | None = None,
        probes: int | None = None,
        pad: bool = True,
    ) -> Found:
        """Find the k rows nearest to every query.

        Parameters
        ----------
        queries : array_like or scipy.sparse (m, d), or one row (d,)
            Real and finite.
        k : int, default 10
        oversample : float, default 4
            ceil(k * oversample) candidates are rescored.
        rescore : bool, array_like (n, d) or callable, optional
            True: candidates by their codes are ranked by the distance to the kept rows; False: codes alone. By
            default True if rows are kept. Rows of the caller: an array or memmap whose row i is that of id i, or a
            function that returns the rows (c, d) of ids int64 (c,).
        allow : array_like of int or of str, or of bool (len(index),), optional
            Ids of the rows that may be found, or a mask in the order of ``ids``.
        probes : int, optional
            Cells of each segment that are looked at, of an index with ``partitions``: at most those that there are. By
            default so many that they hold 99% of the nearest rows, as ``compact`` or ``save`` has measured it. A query
            of which the cells hold fewer than k rows looks at all.
        pad : bool, default True
            Where fewer than k rows may be found, fill answers up with id -1 (None where ids are strings) at an infinite
            distance, or a product of -inf (Hamming distances: 2**31 - 1). False: refuse such a k.

        Returns
        -------
        distances : ndarray (m, k)
            Ascending: euclidean distances, estimated from codes or exact; Hamming distances are int32 unless rescored
            (then Euclidean). Inner products and cosines descend.
        ids : ndarray int64 (m, k), of objects where ids are strings
            Among equal distances the lower id comes first; of strings, the one that was added first.

        Raises
        ------
        IndexError
            If an id of allow is not in the index.
        TypeError, ValueError
            If queries are no finite real matrix of this width, k exceeds the rows that may be found and pad is False,
            probes exceed the cells, or there are no rows to rescore by, or too few, or of another width.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rows = np.random.default_rng(0).standard_normal((1000, 32)) * np.geomspace(3, 0.1, 32)
        >>> model = fs.SketchQuantizer(8).update(rows)
        >>> index = fs.CodeIndex(model, rows="float16")
        >>> _ = index.add(rows)
        >>> distances, ids = index.search(rows[7], k=3)
        >>> int(ids[0, 0]), bool(distances[0, 0] < distances[0, 1])
        (7, True)
        >>> distances, ids = index.search(rows[7], k=3, allow=np.arange(100, 200))
        >>> bool((ids >= 100).all())
        True
        """
        if probes is not None and self._partitions is None:
            raise ValueError("probes is for an index that was made with partitions")
        source: Any = self._rows is not None if rescore is None else rescore
        if isinstance(source, bool | np.bool_):
            if source and self._rows is None:
                raise ValueError('rescore=True needs kept rows: make the index with rows="float16", or pass the rows')
            source = True if source else None
        return search(
            self._contents,
            queries,
            k=k,
            metric=self._metric,
            rescore=source,
            oversample=oversample,
            allow=allow,
            probes=probes,
            pad=as_flag(pad, "pad"),
        )

    def contains(self, ids: ArrayLike) -> NDArray[np.bool_]:
        """Return which ids are in the index, bool (n,) for array_like of ids (n,); TypeError or ValueError otherwise.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rows = np.random.default_rng(0).standard_normal((1000, 32)) * np.geomspace(3, 0.1, 32)
        >>> model = fs.SketchQuantizer(8).update(rows)
        >>> index = fs.CodeIndex(model)
        >>> _ = index.add(rows)
        >>> index.contains([0, 999, 1000])
        array([ True,  True, False])
        """
        return self._contents.locate(self._contents.numbers_of(ids))[0] >= 0

    def __contains__(self, one: object) -> bool:
        if self._contents.names is not None:
            return isinstance(one, str) and bool(self.contains([one])[0])
        if isinstance(one, bool | np.bool_) or not isinstance(one, int | np.integer) or not 0 <= one < MOST_COUNT:
            return False
        return bool(self.contains(np.array([one], np.int64))[0])

    def get(self, ids: ArrayLike) -> NDArray[np.float32]:
        """Return the rows of ids: as they are kept, or what their codes stand for.

        Parameters
        ----------
        ids : array_like of int or of str (n,), or one

        Returns
        -------
        ndarray float32 (n, d)

        Raises
        ------
        IndexError
            If one is not in the index.
        TypeError, ValueError
            If they are no ids, or rows are not kept and codes of this kind stand for none.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rows = np.random.default_rng(0).standard_normal((1000, 32)) * np.geomspace(3, 0.1, 32)
        >>> model = fs.SketchQuantizer(8).update(rows)
        >>> index = fs.CodeIndex(model, rows="float16")
        >>> _ = index.add(rows)
        >>> bool(np.allclose(index.get([7]), rows[7], atol=0.01))
        True
        """
        contents = self._contents
        which, where = contents.located(contents.known_numbers(ids), "ids")
        return kept_rows(contents, which, where)

    def to_faiss(self) -> Any:
        """Return a faiss.IndexBinaryIDMap2 of the sign bits and ids (extra: faiss); factors are left out.

        Strings become numbers, in the order in which they came.

        Raises
        ------
        ImportError
            Without faiss.
        ValueError
            If the codes are no signs, or of more than one generation, whose bits mean different things.
        """
        try:
            import faiss
        except ImportError as error:
            raise ImportError("to_faiss needs faiss: pip install 'fastsketch[faiss]'") from error

        contents = self._contents
        encoders = {segment.encoder for segment in contents.segments if segment.n_live} or {contents.encoder}
        if len(encoders) > 1:
            raise ValueError(f"the index has codes of {len(encoders)} generations: reencode() it first")
        (encoder,) = encoders
        if not encoder.has_bits:
            raise ValueError("faiss takes binary codes: those of a quantizer are no signs")
        width = encoder.layout.nibble_bytes
        flat: Any = faiss.IndexBinaryFlat(8 * width)
        index = faiss.IndexBinaryIDMap2(flat)
        flat.this.disown()
        index.own_fields = True
        for segment in contents.segments:
            codes = segment.codes.part(0, len(segment))
            codes = codes if segment.live is None else codes[segment.live]
            index.add_with_ids(np.ascontiguousarray(codes[:, :width]), segment.live_ids)
        return index
