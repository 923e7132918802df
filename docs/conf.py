"""How Sphinx makes the site: `make docs` runs the gallery, `make docs-quick` shows its stored pictures instead.

The fastsketch that is installed is the one that is described. Nothing is loaded from elsewhere, neither while the site
is built nor while a page is read: inventories of other projects are stored (`_ext/inventories.py`), formulas are MathML
(`_ext/formulas.py`), fonts and scripts come with the theme.
"""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

import inventories  # noqa: E402
import stored  # noqa: E402

import fastsketch  # noqa: E402

project = "fastsketch"
author = "The fastsketch developers"
copyright = author
version = release = fastsketch.__version__
language = "en"

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "api_pages",
    "citation",
    "command_line",
    "figures",
    "formulas",
    "outside",
    "stored",
]
exclude_patterns = ["_*", "**/_*", "gallery/**/*.ipynb", "gallery/**/*.py"]
templates_path = ["_templates"]
nitpicky = True
smartquotes = False  # B'B is B transposed times B
suppress_warnings = [
    "config.cache",  # settings of the gallery that are functions
    "sphinx_gallery.space_in_filename",  # the tree may lie below a folder with a space: no link has that part
]

# Pages
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
myst_enable_extensions = ["attrs_inline", "attrs_block", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
highlight_language = "none"  # of a fence without a language: output, or a shell
html_math_renderer = "mathml"

# Reference. Types stand in the docstrings, with shapes, once.
autosummary_generate = True
autodoc_typehints = "none"
numpydoc_show_class_members = False
intersphinx_mapping = inventories.mapping(HERE / "_build" / "inventories")

sphinx_gallery_conf = stored.settings()

# Looks
html_theme = "pydata_sphinx_theme"
html_title = "fastsketch"
html_static_path = ["_static"]
html_css_files = ["custom.css"]
html_js_files = ["labels.js"]
html_logo = "_static/logo.svg"
html_favicon = "_static/logo.svg"
html_context = {"default_mode": "auto"}  # light or dark as the reader's system is
html_show_sourcelink = False
html_copy_source = False
html_sidebars = {"start": []}  # it has no pages below it
html_theme_options = {
    "logo": {"text": "fastsketch", "alt_text": "fastsketch, first page"},
    "header_links_before_dropdown": 6,
    "navigation_with_keys": True,
    "collapse_navigation": True,  # the tree of all pages in every page is most of the time of a build
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
    "icon_links": [
        {"name": "Source", "url": "https://github.com/fastsketch/fastsketch", "icon": "fa-brands fa-github"}
    ],
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
