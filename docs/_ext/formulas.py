"""Formulas as MathML, which every browser sets without a script, a font or a network, and screen readers read.

docutils translates TeX, Sphinx has the place to put it. Of what docutils does not know, `\\tag{1}` becomes a
number beside the formula and `\\dots` low dots. What cannot be translated stays TeX, and the build ends with a warning.
"""

import html
import re

from docutils import nodes
from docutils.utils.math import MathError, latex2mathml
from sphinx.util import logging

TAG = re.compile(r"\\tag\{([^}]*)\}")
DOTS = re.compile(r"\\dots\b")
log = logging.getLogger(__name__)


def mathml(text, node, block):
    """Return the element `math` of the TeX at a node."""
    try:
        return latex2mathml.tex2mathml(DOTS.sub(r"\\ldots", text), as_block=block)
    except MathError as error:
        log.warning("formula: %s", error, location=node)
        return f"<code>{html.escape(text)}</code>"


def visit_inline(translator, node):
    translator.body.append(mathml(node.astext(), node, block=False))
    raise nodes.SkipNode


def visit_block(translator, node):
    number = TAG.search(node.astext())
    formula = mathml(TAG.sub("", node.astext()), node, block=True)
    beside = f'<span class="formula-number">({number[1]})</span>' if number else ""
    # what is wider than the page is scrolled, by keyboard too
    start = translator.starttag(node, "div", CLASS="formula", tabindex="0", role="group", ids=node.get("ids", []))
    translator.body.append(f"{start}{formula}{beside}</div>\n")
    raise nodes.SkipNode


def setup(app):
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
