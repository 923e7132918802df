"""An index: codes of rows that come and go, found by real-valued queries, saved whole or not at all."""

import os
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any, Final, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsketch._core.validation import Rows, as_choice, as_flag, as_rows, check_finite
from fastsketch._frame.parameters import bare_names
from fastsketch._kernels.guard import Guard, changes
from fastsketch.neighbours.codes._packed_codes import as_codes
from fastsketch.neighbours.codes._places import Ids, with_run
from fastsketch.neighbours.codes._rescoring import Source, rows_reader
from fastsketch.neighbours.codes._search import Metric, as_metric, check_width
from fastsketch.neighbours.index import _generations, _saving
from fastsketch.neighbours.index._cells import laid_out
from fastsketch.neighbours.index._contents import Contents
from fastsketch.neighbours.index._manifest import ROW_TYPES
from fastsketch.neighbours.index._readable_index import ReadableIndex
from fastsketch.neighbours.index._segment import Segment, kind_for, pieces
from fastsketch.neighbours.index._segment_room import CodedBatch, empty_room

KeptRows = Literal["float16", "float32"] | None
Partitions = int | Literal["auto"] | None
Asked = NDArray[np.floating[Any]] | None
KEPT: Final = (None, *ROW_TYPES)


@bare_names
class CodeIndex(ReadableIndex):
    """Codes of rows that are added, removed and found again, in memory and in a folder.

    Rows are encoded by what a model has learned when the index is made (``model.encoder()``). A model that has learned
    on is taken over by ``renew``: that begins a new generation. Codes of earlier generations stay as they are and are
    found by tables of their own encoder; estimates of distances are in the units of the rows, so that answers of all
    generations are ranked together.

    Parameters
    ----------
    model : SketchHash, SketchQuantizer, another hash that has learned, or the encoder of one
    rows : {None, "float16", "float32"}, default None
        Whether, and as what, the rows themselves are kept, to rank candidates by exact distances (``rescore``) and to
        encode them again (``reencode``): 2 or 4 bytes a feature, in memory until the index is saved and loaded
        memory-mapped. float16 has 11 bits: where the first rows lie so far from 0 that this is coarse beside their
        spread, a warning says so.
    metric : {"euclidean", "inner_product", "cosine", "hamming"}, default "euclidean"
        What ``search`` ranks by. "hamming" is for hashes alone.
    partitions : int, "auto" or None, default None
        Cells of near rows that ``compact`` and ``save`` cut a segment into, of which a search looks at the nearest:
        of a million rows in clusters one in sixteen. "auto": the root of its rows, from 65,536 on. None: all rows are
        looked at.

    Attributes
    ----------
    metric, rows, partitions
        As given.
    encoder : Encoder
        What rows are encoded by now.
    n_features : int
    ids : ndarray int64 (len(index),), of objects where ids are strings
        In the order in which the rows were added; those of a segment with cells, cell by cell.
    generations : list of dict
        For each encoder that rows of the index have, and for the present one: "fingerprint", "kind", "width" (bytes of
        a code), "factor_bytes" (of them), "n_rows", "n_removed" (rows that wait to be cleared away), "current".

    Raises
    ------
    TypeError, ValueError
        If model is none of these or has seen no rows, or a parameter is none of its values.

    Notes
    -----
    An answer depends on the rows in the index and on their ids, neither on the batches in which they came nor on saves.
    With partitions it has, of segments with cells, 99% of the rows that it would have without, as measured on rows of
    the segment; ``search(..., probes=)`` says how many cells are looked at, and by all of them it has the same bits.
    Ids are integers in [0, 2**62), or strings. Memory: the bytes of the codes, 8 of an id and its text, the kept rows,
    4 more a row where ids do not ascend, 1 where some were removed; 4 for cosines, once searched for; the last segment
    (of at most 2**20 rows) has room for a quarter more. Codes lie as they are scanned, in memory and in files, filled
    to whole fours of bytes (but for metric="hamming"): no search begins with packing them.

    One thread at a time changes an index; a second one is refused with a RuntimeError. Any number may search it, also
    meanwhile: each sees it before the change or after it. What fails or is interrupted has changed nothing.

    Examples
    --------
    >>> import numpy as np, fastsketch as fs
    >>> rows = np.random.default_rng(0).standard_normal((5000, 32)) * np.geomspace(3, 0.1, 32)
    >>> index = fs.CodeIndex(fs.SketchHash(16).update(rows), rows="float16")
    >>> index.add(rows)[:3]
    array([0, 1, 2])
    >>> distances, ids = index.search(rows[7], k=2)
    >>> int(ids[0, 0])
    7
    >>> index.remove([7])
    >>> len(index), 7 in index
    (4999, False)
    """

    def __init__(
        self, model: Any, *, rows: KeptRows = None, metric: Metric = "euclidean", partitions: Partitions = None
    ) -> None:
        if rows is not None:
            if not isinstance(rows, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"rows must be None or as what they are kept, a string, got {type(rows).__name__}")
            as_choice(rows, "rows", ROW_TYPES)
        as_choice(metric, "metric", get_args(Metric))
        encoder = _generations.as_encoder(model, metric=metric)
        as_metric(metric, encoder)
        room = empty_room(kind_for(metric), encoder, None if rows is None else ROW_TYPES[rows])
        cut = _generations.as_partitions(partitions, encoder)
        self._set_up(rows, metric, cut, Contents((), room, 0), None if cut is None else _generations.as_asked(model))

    def _set_up(
        self, rows: str | None, metric: str, partitions: int | str | None, contents: Contents, asked: Asked
    ) -> None:
        self._rows, self._metric, self._partitions, self._asked = rows, metric, partitions, asked
        self._contents = contents
        self._stamps: dict[Path, tuple[str, ...]] = {}  # of saves that this index was read from or has made
        self._memory_map = False
        self._guard = Guard()

    # -- rows that come ------------------------------------------------------------------------------------------------
    @changes
    def add(self, rows: Rows, ids: ArrayLike | None = None) -> Ids:
        """Encode rows and add them.

        Parameters
        ----------
        rows : array_like or scipy.sparse (n, d), or one row (d,)
            Real and finite.
        ids : array_like of int or of str (n,), optional
            Different, in [0, 2**62), and none that the index has; by default the next ones above all that it ever had.
            Strings: from the first rows on, of all.

        Returns
        -------
        ndarray int64 (n,), of objects where ids are strings
            The ids.

        Raises
        ------
        TypeError, ValueError
            If rows are no finite real matrix of this width (or do not fit in the float16 that they are kept as), or ids
            are none, not as many, not different or already in the index. The index is then as it was.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rows = np.random.default_rng(0).standard_normal((1000, 32)) * np.geomspace(3, 0.1, 32)
        >>> model = fs.SketchQuantizer(8).update(rows)
        >>> index = fs.CodeIndex(model)
        >>> index.add(rows[:3]), index.add(rows[3:5], ids=[100, 50]), index.add(rows[5])
        (array([0, 1, 2]), array([100,  50]), array([101]))
        """
        contents, numbers = self._contents.with_names(ids)
        checked = as_rows(rows, contents.encoder.n_features)
        n = checked.shape[0]
        given = contents.new_ids(numbers, n)

        def batches() -> Iterator[CodedBatch]:
            for piece in pieces(n):
                some = checked[piece]
                kept = _generations.as_kept(some, self._rows, contents, offset=piece.start)
                check_finite(some, offset=piece.start)
                yield CodedBatch(contents.encoder.encode(some), given[piece], kept)

        self._contents = contents.with_rows(batches(), n)
        return contents.named(given)

    @changes
    def add_codes(
        self, codes: ArrayLike, ids: ArrayLike | None = None, *, fingerprint: str, rows: Rows | None = None
    ) -> Ids:
        """Add codes that were made elsewhere, by an encoder of this index.

        Parameters
        ----------
        codes : array_like of uint8 (n, width)
        ids : array_like of int or of str (n,), optional
            As for ``add``.
        fingerprint : str
            ``model.encoder().fingerprint`` of the model that has made the codes: that of the present encoder or of an
            earlier generation.
        rows : array_like or scipy.sparse (n, d), optional
            The rows themselves, if the index keeps them.

        Returns
        -------
        ndarray int64 (n,)
            The ids.

        Raises
        ------
        TypeError, ValueError
            If the codes are those of a model that the index does not know, no matrix of uint8 of its width, or ids or
            rows are not as ``add`` wants them. The index is then as it was.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rows = np.random.default_rng(0).standard_normal((1000, 32)) * np.geomspace(3, 0.1, 32)
        >>> model = fs.SketchQuantizer(8).update(rows)
        >>> index = fs.CodeIndex(model)
        >>> index.add_codes(model.encode(rows[:3]), fingerprint=model.encoder().fingerprint)
        array([0, 1, 2])
        """
        contents, numbers = self._contents.with_names(ids)
        encoder = contents.encoder_of(fingerprint)
        checked = as_codes(codes, "codes")
        check_width(checked, encoder)
        if (rows is None) != (self._rows is None):
            wanted = "the rows of the codes, which it keeps" if rows is None else "rows=None: it keeps none"
            raise ValueError(f"this index needs {wanted}")
        kept = None
        if rows is not None:
            dense = as_rows(rows, encoder.n_features)
            if dense.shape[0] != len(checked):
                raise ValueError(f"rows must be as many as the {len(checked)} codes, got {dense.shape[0]}")
            kept = _generations.as_kept(dense, self._rows, contents)
        given = contents.new_ids(numbers, len(checked))
        if not len(given):
            return contents.named(given)
        if encoder == contents.encoder:
            self._contents = contents.with_rows([CodedBatch(checked, given, kept)], len(given))
        else:
            held = kind_for(self._metric).of(checked, encoder.layout)
            segment = Segment(encoder, held, given, kept, runs=with_run((), given))
            self._contents = contents.with_segment(segment)
        return contents.named(given)

    # -- rows that go --------------------------------------------------------------------------------------------------
    @changes
    def remove(self, ids: ArrayLike) -> None:
        """Remove rows; their space is reclaimed by ``compact``, and by a save once a quarter of a segment is gone.

        Parameters
        ----------
        ids : array_like of int or of str (n,), or one

        Raises
        ------
        IndexError
            If one is not in the index, which is then as it was.
        TypeError, ValueError
            If they are no ids, or one comes twice.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rows = np.random.default_rng(0).standard_normal((1000, 32)) * np.geomspace(3, 0.1, 32)
        >>> model = fs.SketchQuantizer(8).update(rows)
        >>> index = fs.CodeIndex(model)
        >>> _ = index.add(rows)
        >>> index.remove([3, 5])
        >>> len(index), 3 in index, 4 in index
        (998, False, True)
        """
        wanted = self._contents.different(self._contents.known_numbers(ids))
        if len(wanted):
            self._contents = self._contents.without(wanted)

    @changes
    def compact(self) -> Self:
        """Clear removed rows away, join small segments and cut them into cells, if there are ``partitions``.

        What is mapped from files is read where that is needed. With partitions segments of up to 2**24 rows are joined.

        Returns
        -------
        self

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rows = np.random.default_rng(0).standard_normal((1000, 32)) * np.geomspace(3, 0.1, 32)
        >>> model = fs.SketchQuantizer(8).update(rows)
        >>> index = fs.CodeIndex(model)
        >>> _ = index.add(rows)
        >>> index.remove(np.arange(500))
        >>> index.facts()["n_removed"], index.compact().facts()["n_removed"]
        (500, 0)
        """
        self._contents = self._contents.compacted(self._in_cells, wide=self._partitions is not None)
        return self

    def _in_cells(self, segment: Segment) -> Segment:
        return laid_out(segment, self._partitions, self._metric, self._asked)

    # -- generations ---------------------------------------------------------------------------------------------------
    @changes
    def renew(self, model: Any) -> Self:
        """Encode what is added from now on by another model, or by what this one has learned since.

        Codes that are there stay as they are; ``reencode`` brings them forward.

        Parameters
        ----------
        model : as for the index itself

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If it is none, of rows of another width, or its codes have no distances of this index's metric.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rows = np.random.default_rng(0).standard_normal((1000, 32)) * np.geomspace(3, 0.1, 32)
        >>> model = fs.SketchQuantizer(8).update(rows)
        >>> index = fs.CodeIndex(model)
        >>> _ = index.add(rows)
        >>> _ = index.renew(model.update(rows + 1)).add(rows[:10])
        >>> len(index.generations)
        2
        """
        encoder = _generations.as_encoder(model, metric=self._metric)
        as_metric(self._metric, encoder)
        _generations.as_partitions(self._partitions, encoder)
        if encoder.n_features != self.n_features:
            raise ValueError(f"model must be of rows of {self.n_features} features, got {encoder.n_features}")
        known = {segment.encoder.fingerprint: segment.encoder for segment in self._contents.segments}
        if encoder != self.encoder:
            self._contents = self._contents.closed(known.get(encoder.fingerprint, encoder))
            self._asked = None if self._partitions is None else _generations.as_asked(model)
        return self

    @changes
    def reencode(self, rows: Source | None = None, *, decoded: bool = False) -> Self:
        """Encode the rows of earlier generations by the present encoder.

        Parameters
        ----------
        rows : array_like (n, d) or callable, optional
            As ``rescore`` of ``search``; not needed if rows are kept.
        decoded : bool, default False
            Without rows, encode what the old codes stand for. What those had lost stays lost, and the new codes lose
            more: distances are then estimated with the errors of both.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If there are no rows to encode and decoded is not asked for, or they are too few, not finite or of another
            width. The index is then as it was.

        Examples
        --------
        >>> import numpy as np, fastsketch as fs
        >>> rows = np.random.default_rng(0).standard_normal((1000, 32)) * np.geomspace(3, 0.1, 32)
        >>> model = fs.SketchQuantizer(8).update(rows)
        >>> index = fs.CodeIndex(model, rows="float16")
        >>> _ = index.add(rows)
        >>> _ = index.renew(model.update(rows + 1)).add(rows[:10])
        >>> len(index.generations), len(index.reencode().generations)
        (2, 1)
        """
        as_flag(decoded, "decoded")
        contents = self._contents
        given = None if rows is None else rows_reader(rows, self.n_features, "rows")
        if given is not None and decoded:
            raise ValueError("decoded=True is for an index without rows: rows were given")
        if given is None and self._rows is None and not decoded:
            raise ValueError(
                "reencode needs the rows, which this index does not keep: pass them, or a function of ids, or say "
                "decoded=True for what the old codes stand for"
            )

        def rows_of(segment: Segment, positions: NDArray[np.int64]) -> Any:
            if given is not None:
                ids = segment.ids[positions]
                order = np.argsort(ids)
                return given(ids[order], contents.named(ids[order]))[np.argsort(order)]
            if segment.rows is not None:
                return segment.rows[positions]
            return segment.encoder.decode(segment.codes.take(positions))

        self._contents = _generations.brought_forward(contents, rows_of)
        return self

    # -- keeping it ----------------------------------------------------------------------------------------------------
    @changes
    def save(self, path: str | PathLike[str], *, overwrite: bool = False) -> None:
        """Save to a folder, whole or not at all, whatever happens meanwhile.

        What an earlier save has written there is not written again. Small segments are joined, and those written anew
        of which a quarter or more is removed.

        Parameters
        ----------
        path : str or path
            A folder, made if it is not there.
        overwrite : bool, default False
            Whether to replace an index in it that is not this one as it was read or saved last.

        Raises
        ------
        IndexConflict
            If the folder has an index that is not this one: another one, or what somebody else has saved since.
        OSError
            If something else is there or it cannot be written; LockHeld if another process is saving to it.
        RuntimeError
            If another thread is.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> import numpy as np, fastsketch as fs
        >>> rows = np.random.default_rng(0).standard_normal((1000, 32)) * np.geomspace(3, 0.1, 32)
        >>> model = fs.SketchQuantizer(8).update(rows)
        >>> index = fs.CodeIndex(model)
        >>> _ = index.add(rows)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     index.save(Path(folder, "shop.index"))
        ...     print(len(fs.CodeIndex.load(Path(folder, "shop.index"), memory_map=False)))
        1000
        """
        as_flag(overwrite, "overwrite")
        folder = _saving.place_of(path)
        stamp = os.urandom(16).hex()
        known = self._stamps.get(folder, ())

        def job() -> Contents:
            # before it is there: a save that is interrupted when all is done was ours
            self._stamps = {**self._stamps, folder: (*known, stamp)}
            return _saving.save(
                folder,
                self._contents.tidied(self._in_cells),
                metric=self._metric,
                rows=self._rows,
                partitions=self._partitions,
                asked=self._asked,
                stamp=stamp,
                known=known,
                overwrite=overwrite,
                memory_map=self._memory_map,
            )

        self._contents = _saving.alone(folder, job)

    @classmethod
    def load(cls, path: str | PathLike[str], *, memory_map: bool = True, verify: bool | None = None) -> "CodeIndex":
        """Read an index that was saved.

        Parameters
        ----------
        path : str or path
            The folder.
        memory_map : bool, default True
            Read codes, ids and kept rows from the files when they are needed, not into memory; the same for what later
            saves write. Nobody but an index may change these files meanwhile: it never does, it writes new ones.
        verify : bool, optional
            Whether kept rows are read and held against their checksums, as everything else is in any case. By default
            they are unless they are mapped.

        Returns
        -------
        CodeIndex

        Raises
        ------
        StateError
            If there is no index, or a file of it is missing, cut short, changed, of a newer version or none that
            belongs to it.
        """
        as_flag(memory_map, "memory_map")
        check = not memory_map if verify is None else as_flag(verify, "verify")
        folder = _saving.place_of(path)
        saved = _saving.read(folder, memory_map=memory_map, verify=check)
        index = cls.__new__(cls)
        index._set_up(saved.rows, saved.metric, saved.partitions, saved.contents, saved.asked)
        index._stamps, index._memory_map = {folder: (saved.stamp,)}, memory_map
        return index

    def copy(self) -> "CodeIndex":
        """Return an independent index with the same rows; it shares the arrays that never change."""
        other = type(self).__new__(type(self))
        # a room of its own: rows to come are written into it
        other._set_up(self._rows, self._metric, self._partitions, self._contents.closed(), self._asked)
        other._stamps, other._memory_map = self._stamps, self._memory_map
        return other

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_contents": self._contents.closed()}  # without room that nobody has written to

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> "CodeIndex":
        return self.copy()
