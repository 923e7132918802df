"""Tables of user, item and value."""

import warnings

import numpy as np
import pytest

import fastsketch as fs
from fastsketch.data import SourceError, Triples
from fastsketch.data.names._triples import describe_repeated_pair

COLUMNS = {"user": ["ann", "bob", "ann"], "item": ["Heat", "Heat", "Alien"], "rating": [5.0, 3.0, 4.0]}
MATRIX = [[5, 4], [3, 0]]


def frames():
    for name, make in (("pandas", "DataFrame"), ("polars", "DataFrame"), ("pyarrow", "table")):
        try:
            yield getattr(__import__(name), make)(COLUMNS)
        except ImportError:
            continue


def test_forms():
    lines = list(zip(*COLUMNS.values(), strict=True))
    tables = [Triples.of(lines), Triples.of({"ann": {"Heat": 5, "Alien": 4}, "bob": {"Heat": 3}})]
    for frame in frames():
        tables += [Triples.of(frame), Triples.of(frame, columns=("user", "item", "rating"))]
        assert Triples.of(frame, columns=("item", 0)).matrix().toarray().tolist() == [[1, 1], [1, 0]]
    for table in tables:
        assert table.matrix().toarray().tolist() == MATRIX
        assert (list(table.user_ids), list(table.item_ids)) == (["ann", "bob"], ["Heat", "Alien"])
        assert (len(table), repr(table)) == (3, "<Triples: 3 lines of 2 users and 2 items>")
        assert Triples.of(table) is table


def test_values():
    table = Triples([1, 1, 2], ["a", "a", "b"], values=np.array([1, 2, 3], np.float32))
    assert table.values.dtype == np.float32
    assert table.matrix().toarray().tolist() == [[3, 0], [0, 3]]  # one pair twice
    assert describe_repeated_pair(table) == "the pair (1, a)"
    assert describe_repeated_pair(Triples([1, 2], [1, 1])) is None
    assert Triples([1], [1], values=[True]).values.dtype == np.float64
    everybody = Triples.of({"new": [], "me": ["a"], "odd": []})
    assert list(everybody.user_ids) == ["new", "me", "odd"]
    assert everybody.matrix().toarray().tolist() == [[0], [1], [0]]
    assert Triples([], []).matrix().shape == (0, 0)


def test_text(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text("user,item,rating,when\n ann ,Heat,5,1\nbob,Heat,3,2\nann,Alien,4,3\n")
    assert Triples.of(path).matrix().toarray().tolist() == MATRIX
    assert Triples.of(path, columns=(0, 1, 2)).matrix().toarray().tolist() == MATRIX
    assert Triples.of(str(path), columns=("item", "user")).matrix().toarray().tolist() == [[1, 1], [1, 0]]
    assert Triples.of(path, columns=(0, 1, 3), header=True).values.tolist() == [1, 2, 3]
    path.write_text("1,2,3,4\n5,6,7,8\n")
    with pytest.raises(SourceError, match=r"r.csv, line 1: columns must say which are users, .* there are 4 "):
        Triples.of(path, header=False)
    path.write_text("user,item\n7,x\n")
    assert list(Triples.of(path).user_ids) == ["7"]  # text has strings
    assert len(Triples.of(path, header=False)) == 2
    for text, options, match in (
        ("a,b,1\na,b,x\n", {}, "r.csv, line 2: column 3: 'x' is no finite decimal number"),
        ("a,b,1\na,,2\n", {}, "line 2: column 2: an id must not be empty"),
        ("", {}, "holds no lines"),
        ("u,v\na,b\n", {"columns": ("u", "w")}, "line 1: columns: the table has no column 'w': it has 'u', 'v'"),
        ("u,v\na,b\n", {"columns": (0, 4), "header": True}, "5 columns are needed, there are 2"),
    ):
        path.write_text(text)
        with pytest.raises(SourceError, match=match):
            Triples.of(path, **options)
    with pytest.raises(SourceError, match="cannot be read"):
        Triples.of(tmp_path / "none.csv")
    with pytest.raises(ValueError, match="columns has names"):
        Triples.of(path, columns=("u", "v"), header=False)


def test_times_are_no_values(tmp_path):
    path = tmp_path / "r.csv"
    told = "ann,Heat,1700000001\nbob,Heat,1700000002\n"
    for text, said in (
        (told, r"r.csv: column 3 holds what looks like times, and no values \(--columns of three"),
        ("user,item,timestamp\nann,Heat,7\nbob,Heat,8\n", r"column 3 \('timestamp'\) holds what looks like times"),
    ):
        path.write_text(text)
        with pytest.warns(UserWarning, match=said):
            assert Triples.of(path).values is None
        assert Triples.of(path, columns=(0, 1, 2), header=text is not told).values is not None
    frame = pytest.importorskip("pandas").DataFrame({"user": ["ann"], "item": ["x"], "at": [1700000001]})
    with pytest.warns(UserWarning, match=r"the DataFrame: column 3 \('at'\) holds what looks like times"):
        assert Triples.of(frame).values is None


def test_parquet(tmp_path):
    pa = pytest.importorskip("pyarrow")
    parquet, feather = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow.feather")
    table = pa.table({"when": [1, 2, 3], **COLUMNS})
    parquet.write_table(table, tmp_path / "r.parquet")
    feather.write_feather(table, tmp_path / "r.arrow")
    for name in ("r.parquet", "r.arrow"):
        found = Triples.of(tmp_path / name, columns=("user", "item", "rating"))
        assert found.matrix().toarray().tolist() == MATRIX
        assert Triples.of(tmp_path / name).matrix().toarray().tolist() == MATRIX  # columns are found by their names
    unnamed = table.rename_columns(["a", "b", "c", "d"])
    parquet.write_table(unnamed, tmp_path / "u.parquet")
    feather.write_feather(unnamed.append_column("e", unnamed["b"]), tmp_path / "u.arrow")  # three columns of words
    with pytest.raises(ValueError, match=r"u\.arrow: columns must say .* there are 5, 'a', 'b', .* fs.open_rows"):
        Triples.of(tmp_path / "u.arrow")
    with pytest.raises(SourceError, match="cannot be read"):
        Triples.of(tmp_path / "none.parquet")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(SourceError, match=r"bad.parquet is damaged or no Parquet file"):
        Triples.of(tmp_path / "bad.parquet")
    missing = pa.table({"user": ["a", None], "item": ["x", "y"]})
    parquet.write_table(missing, tmp_path / "r.parquet")
    with pytest.raises(SourceError, match=r"r.parquet: users must not be missing: entry 1"):
        Triples.of(tmp_path / "r.parquet")
    assert Triples.of(table.select(["user", "item"]).to_reader()).matrix().nnz == 3


@pytest.mark.parametrize("called", [None, "row", "user.key"])
def test_the_index_of_a_pandas_table_is_no_column(tmp_path, called):
    """It was read as ratings: of rows that somebody has filtered, pandas writes the index into the file."""
    pd, pa = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    feather = pytest.importorskip("pyarrow.feather")
    kept = pd.DataFrame({**COLUMNS, "of": [0, 1, 1]}, index=pd.Index([1000, 7, 1], name=called)).query("of >= 0")
    for names in (["user", "item"], ["user", "item", "rating"]):
        some = kept[names]
        some.to_parquet(tmp_path / "k.parquet")
        some.to_parquet(tmp_path / "K.PARQUET")
        feather.write_feather(pa.Table.from_pandas(some), tmp_path / "k.Feather")
        expected = Triples.of(some.reset_index(drop=True)).matrix().toarray().tolist()
        files = [tmp_path / name for name in ("k.parquet", "K.PARQUET", "k.Feather")]
        for table in (*files, pa.Table.from_pandas(some)):
            assert Triples.of(table).matrix().toarray().tolist() == expected, (table, names)
    kept.set_index("user").to_parquet(tmp_path / "k.parquet")  # whoever asks for it has it
    found = Triples.of(tmp_path / "k.parquet", columns=("user", "item", "rating"))
    assert found.matrix().toarray().tolist() == MATRIX
    kept.assign(more=1).to_parquet(tmp_path / "k.parquet")  # with columns that have names of their own
    assert Triples.of(tmp_path / "k.parquet").matrix().toarray().tolist() == MATRIX


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: Triples([1, 2], [1]), ValueError, "one entry a line each, got 2 and 1"),
        (lambda: Triples([1], [1], values=[np.nan]), ValueError, r"entry 0, the pair \(1, 1\), has nan"),
        (lambda: Triples([1], [1], values=["a"]), TypeError, "real numbers"),
        (lambda: Triples([1], [1], values=[1, 2]), ValueError, "each of the 1 lines"),
        (lambda: Triples([1], [1], values=[None]), ValueError, "must be finite"),
        (lambda: Triples([1], [1], values=[1j]), TypeError, "real numbers"),
        (lambda: Triples([None], [1]), ValueError, "users must not be missing"),
        (lambda: Triples.of(3), TypeError, "must be a data frame, a path"),
        (lambda: Triples.of([(1,)]), ValueError, "tuples"),
        (lambda: Triples.of(["a.csv", "b.csv"]), ValueError, r"one file, got \['a.csv', 'b.csv'\]: put"),
        (lambda: Triples.of("no-such-?.csv"), ValueError, r"one file, got 'no-such-\?.csv'"),
        (lambda: Triples.of([(1, 2), (1, 2, 3)]), ValueError, "all of one length"),
        (lambda: Triples.of({"a": "xyz"}), TypeError, "as a dict"),
        (lambda: Triples.of([(1, 2)], columns=(0, 1)), ValueError, "columns names those of a data frame or a file"),
    ],
)
def test_what_is_no_table(call, error, match):
    with pytest.raises(error, match=match):
        call()


def test_columns_of_a_frame_are_named():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({**COLUMNS, "when": [1, 2, 3]})
    unnamed = frame.set_axis(["a", "b", "c", "d"], axis=1)
    assert Triples.of(unnamed).matrix().toarray().tolist() == MATRIX  # the only two columns of words
    with pytest.raises(ValueError, match="columns must say which are users, .* there are 5, 'a', 'b', 'c', 'd', 'e' "):
        Triples.of(unnamed.assign(e=unnamed["b"]))
    for columns, match in (
        (("user",), "columns must name"),
        ("user", "columns must name"),
        (("user", "who"), "the table has no column 'who': it has 'user'"),
        (("user", "user"), "'user' stands there twice"),
        ((0, 4), "the table has 4 columns, got position 4"),
    ):
        with pytest.raises(ValueError, match=match):
            Triples.of(frame, columns=columns)
    with pytest.raises(TypeError, match="names or numbers"):
        Triples.of(frame, columns=(0.0, 1))
    twice = pd.concat([frame, frame], axis=1)
    with pytest.raises(ValueError, match="the DataFrame: two columns are called 'user'"):
        Triples.of(twice, columns=("user", "item"))


# -- which columns -----------------------------------------------------------------------------------------------------
EVENTS = [
    ("userid,timestamp,artid", "u{u},12400{k:05d},a{i}", (0, 2, None)),
    ("timestamp,item_id,user_id,rating", "12400{k:05d},a{i},u{u},{r}", (2, 1, 3)),
    ("rating,movieId,userId", "{r},a{i},u{u}", (2, 1, 0)),
    ("userId,movieId,rating,timestamp", "u{u},a{i},{r},12400{k:05d}", (0, 1, 2)),
    ("order,customer_id,day,product,quantity", "{k},u{u},2024-01-0{r},a{i},{r}", (1, 3, 4)),
    ("reviewerID,asin,overall,unixReviewTime,title", "u{u},a{i},{r},12400{k:05d},t{i}", (0, 1, 2)),
    (None, "u{u},a{i},{r},12400{k:05d}", (0, 1, 2)),
    (None, "u{u},12400{k:05d},a{i}", (0, 2, None)),
    ("who,what,score,amount", "u{u},a{i},{r},7", (0, 1, 2)),
]


@pytest.mark.parametrize(
    ("head", "row", "taken", "form"),
    [(*event, form) for event in EVENTS for form in ("csv", "parquet", "frame") if form == "csv" or event[0]],
)
def test_columns_are_found_by_their_names_and_times_are_never_taken(head, row, taken, form, tmp_path):
    """In every form of a table; of columns without such names, the only two with words."""
    pd = pytest.importorskip("pandas")
    lines = [row.format(u=k % 4, i=k * k % 7, r=1 + k % 5, k=k) for k in range(30)]
    path = tmp_path / "e.csv"
    path.write_text("\n".join([head, *lines] if head else lines) + "\n")
    if form != "csv":
        frame = pd.read_csv(path)
        if form == "parquet":
            pytest.importorskip("pyarrow")
            frame.to_parquet(path.with_suffix(".parquet"))
        path = frame if form == "frame" else path.with_suffix(".parquet")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* holds what looks like times, and no values")
        table = Triples.of(path, header=head is not None if form == "csv" else None)
    cells = [line.split(",") for line in lines]
    assert [table.user_ids[int(k)] for k in table.users] == [line[taken[0]] for line in cells]
    assert [table.item_ids[int(k)] for k in table.items] == [line[taken[1]] for line in cells]
    if taken[2] is None:
        assert table.values is None
    else:
        assert table.values.tolist() == [float(line[taken[2]]) for line in cells]


def test_a_wide_table_of_ratings_is_no_table_of_events(tmp_path):
    path = tmp_path / "wide.csv"
    head = ",".join(["user", *(f"joke{k}" for k in range(8))])
    lines = [f"u{k}," + ",".join(str((k * j) % 5) for j in range(8)) for k in range(9)]
    path.write_text("\n".join([head, *lines]) + "\n")
    with pytest.raises(
        SourceError, match="columns must say which are users, items and values: there are 9, 'user', 'j"
    ):
        Triples.of(path)
    with pytest.raises(SourceError, match="columns must say which are users"):
        fs.SketchedEASE().update(path)
