"""Formulas as MathML, which every browser sets without a script, a font or a network, and screen readers read.

docutils has the translator from TeX; Sphinx has the place to put it.
"""

from docutils import nodes
from docutils.utils.math import latex2mathml


def mathml(node, block):
    """The element `math` of a node's TeX."""
    return latex2mathml.tex2mathml(node.astext(), as_block=block)


def visit_inline(translator, node):
    translator.body.append(mathml(node, block=False))
    raise nodes.SkipNode


def visit_block(translator, node):
    translator.body.append(translator.starttag(node, "div", CLASS="formula"))
    translator.body.append(mathml(node, block=True) + "</div>\n")
    raise nodes.SkipNode


def setup(app):
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
