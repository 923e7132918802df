"""Formats told by the first bytes of a stream or of text without a known suffix."""

import re

# How compressed streams begin, and the suffix of such files.
COMPRESSED = {b"\x1f\x8b": ".gz", b"BZh": ".bz2", b"\xfd7zXZ\x00": ".xz"}
# What is read from its end, or here and there.
NOT_STREAMED = {
    b"PK\x03\x04": "an archive (.npz)",
    b"PAR1": "a Parquet file",
    b"ARROW1": "an Arrow file",
    b"\x89HDF": "an HDF5 file",
}

SVMLIGHT, TABLE, MARKET = "svmlight", "table", "market"

_PAIRS = re.compile(rb"[ \t]*[^\s:,;]+(?:[ \t]+(?:qid:)?[0-9]+:\S+)+[ \t]*\r?")


def text_format(head: bytes) -> str:
    """Return the format of a text by its first lines: "svmlight", "table" or "market"."""
    if head[:14].lower() == b"%%matrixmarket":
        return MARKET
    for line in head.split(b"\n"):
        content = line.split(b"#", 1)[0]
        if not content.strip():
            continue
        if _PAIRS.fullmatch(content):
            return SVMLIGHT
        if re.search(rb"[,;\t]", line):
            return TABLE
        return SVMLIGHT
    return SVMLIGHT
