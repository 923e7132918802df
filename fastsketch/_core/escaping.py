"""Escaping of untrusted text before printing: control characters could command the terminal, or forge lines."""

import re

# C0 and C1 control characters with the line ends among them, line and paragraph separators, marks and overrides of the
# direction of text (Unicode TR 36, 3.1.1 and "Trojan Source", CVE-2021-42574), and the halves of surrogates that stand
# for bytes of file names which are no text.
_CONTROLS = re.compile("[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def escaped(text: object) -> str:
    r"""Escape control characters as in Python source, so that the text prints on one line.

    Examples of such escapes are ``\x1b``, ``\n`` and ``\u202e``.

    Examples
    --------
    >>> from fastsketch._core.escaping import escaped
    >>> print(escaped("a\x1b[31m b\nc"))
    a\x1b[31m b\nc
    """
    return _CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), str(text))
