"""The gallery: which examples are run, and what is shown of those that are not.

An example says what it needs beyond the dependencies in a line of its own, with the names by which Python imports them:

    # needs: faiss, torch

It is run if these are there and the build runs the gallery (`make docs`). If it is not run, its page says why and shows
`_static/gallery/NAME.png`, which `examples/gallery/store_pictures.py` drew.
"""

import re
from importlib.machinery import PathFinder
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1]
EXAMPLES = DOCS.parent / "examples" / "gallery"
PAGES = DOCS / "gallery"
PICTURES = DOCS / "_static" / "gallery"
STYLE = EXAMPLES / "style.mplstyle"
NEEDS = re.compile(r"^# needs: *(.+)$", re.MULTILINE)
THUMB = (400, 280)
MARK = ".. GENERATED FROM PYTHON SOURCE LINES"
TAGS = "id='sg-tag-list' "


def examples():
    """Return the scripts, sorted by path."""
    return sorted(EXAMPLES.rglob("plot_*.py"))


def missing(example):
    """List the packages that an example needs and that are not installed."""
    needed = [name for line in NEEDS.findall(example.read_text(encoding="utf-8")) for name in re.split(r"[,\s]+", line)]
    # on the path: a stand-in among the modules (without_torch.py) is no package
    return [name for name in needed if name and PathFinder.find_spec(name) is None]


# As the jobs are, in the README too.
SECTIONS = ("components", "anomalies", "neighbours", "matrices", "learning", "jobs")


def settings():
    """Return the value of `sphinx_gallery_conf`."""
    run = [example.stem for example in examples() if not missing(example)]
    return {
        "examples_dirs": [str(EXAMPLES)],
        "gallery_dirs": [PAGES.name],
        "ignore_pattern": r"(^|/)(?!plot_)[^/]*\.py$",
        "filename_pattern": rf"/({'|'.join(run) or 'none'})\.py$",
        "run_stale_examples": True,  # another library may draw another picture
        "reset_modules": (in_style,),
        "subsection_order": [f"../examples/gallery/{section}" for section in SECTIONS],
        "within_subsection_order": "FileNameSortKey",
        "backreferences_dir": "gallery/backreferences",
        "doc_module": ("fastsketch",),
        "reference_url": {"fastsketch": None},
        "remove_config_comments": True,
        "thumbnail_size": THUMB,
        "download_all_examples": False,
        "show_signature": False,
        "write_computation_times": False,
    }


def in_style(gallery_conf, name):
    """Reset matplotlib before each example to the style of the stored pictures."""
    import matplotlib as mpl

    mpl.rcdefaults()
    mpl.style.use(STYLE)


def was_run(page):
    """Return whether the page of an example has what the example printed or drew."""
    return ".. image-sg::" in page or "sphx-glr-script-out" in page


def title(example):
    """Return the first line of the docstring of an example."""
    return re.search(r'"""\s*(.*)', example.read_text(encoding="utf-8"))[1].strip()


def note(example):
    """Return why an example was not run, and its stored picture, as reStructuredText."""
    lacking = " and ".join(missing(example))
    why = f"Not run here, because {lacking} is not installed." if lacking else "Not run in this build."
    picture = PICTURES / f"{example.stem}.png"
    if not picture.exists():
        return f".. note::\n\n   {why}\n\n"
    where = "/" + picture.relative_to(DOCS).as_posix()
    image = f".. image:: {where}\n   :alt: {title(example)}\n   :class: sphx-glr-single-img\n\n"
    return f".. note::\n\n   {why} The picture is a stored one.\n\n{image}"


def with_note(text, example):
    """Add the note after the introduction of an example that was not run."""
    if was_run(text):
        return text
    introduced = text.index(MARK, re.search(r"^=+$", text, re.MULTILINE).end())
    return text[:introduced] + note(example) + text[introduced:]


def with_words(text, titles):
    """Add words to the pictures of an index, and keep one list of tags, as an id must be unique."""
    text = re.sub(r"(sphx_glr_(\w+)_thumb\.png\n +:alt:)", lambda found: f"{found[1]} {titles[found[2]]}", text)
    first, tags, rest = text.partition(TAGS)
    return first + tags + rest.replace(TAGS, "")


def of_page(app, name, source):
    """Edit the pages of the gallery that sphinx-gallery wrote."""
    if not name.startswith("gallery/"):
        return
    found = {PAGES.name + "/" + path.relative_to(EXAMPLES).with_suffix("").as_posix(): path for path in examples()}
    if name in found:
        source[0] = with_note(source[0], found[name])
    else:
        source[0] = with_words(source[0], {path.stem: title(path) for path in examples()})


def thumbnails(app):
    """Make thumbnails of examples that were not run from their stored pictures, after the pages are written."""
    from sphinx_gallery.utils import scale_image

    for example in examples():
        folder = (PAGES / example.relative_to(EXAMPLES)).parent
        picture = PICTURES / f"{example.stem}.png"
        if picture.exists() and not was_run((folder / f"{example.stem}.rst").read_text(encoding="utf-8")):
            scale_image(picture, folder / "images" / "thumb" / f"sphx_glr_{example.stem}_thumb.png", *THUMB)


def setup(app):
    app.connect("builder-inited", thumbnails, priority=950)
    app.connect("source-read", of_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
