"""The gallery: which examples are run, and what is shown of those that are not.

An example says what it needs beyond the dependencies in a line of its own, with the names by which Python imports them:

    # needs: faiss, torch

It is run if these are there and the build runs the gallery (`make docs`). If it is not run, its page says why and shows
`_static/gallery/NAME.png`, drawn when it was last run (`python docs/_ext/stored.py` copies the pictures of a full build
there).
"""

import importlib.util
import re
import shutil
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1]
EXAMPLES = DOCS.parent / "examples" / "gallery"
PAGES = DOCS / "gallery"
PICTURES = DOCS / "_static" / "gallery"
NEEDS = re.compile(r"^# needs: *(.+)$", re.MULTILINE)
THUMB = (400, 280)
MARK = ".. GENERATED FROM PYTHON SOURCE LINES"


def examples():
    """The scripts, by path."""
    return sorted(EXAMPLES.rglob("plot_*.py"))


def missing(example):
    """What an example needs and is not installed."""
    needed = [name for line in NEEDS.findall(example.read_text(encoding="utf-8")) for name in re.split(r"[,\s]+", line)]
    return [name for name in needed if name and importlib.util.find_spec(name) is None]


def settings():
    """What `sphinx_gallery_conf` takes."""
    run = [example.stem for example in examples() if not missing(example)]
    return {
        "examples_dirs": [str(EXAMPLES)],
        "gallery_dirs": [PAGES.name],
        "filename_pattern": rf"/({'|'.join(run) or 'none'})\.py$",
        "run_stale_examples": True,  # another library may draw another picture
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


def was_run(page):
    """Whether the text of an example's page has what the example printed or drew."""
    return ".. image-sg::" in page or "sphx-glr-script-out" in page


def note(example):
    """Why an example was not run, and its stored picture: reStructuredText."""
    lacking = " and ".join(missing(example))
    why = f"Not run here, because {lacking} is not installed." if lacking else "Not run in this build."
    picture = PICTURES / f"{example.stem}.png"
    if not picture.exists():
        return f".. note::\n\n   {why}\n\n"
    title = re.match(r'[ru]*"""\s*(.*)', example.read_text(encoding="utf-8"))
    alt = title[1].strip() if title else example.stem
    image = f".. image:: /{picture.relative_to(DOCS).as_posix()}\n   :alt: {alt}\n   :class: sphx-glr-single-img\n\n"
    return f".. note::\n\n   {why} The picture is a stored one.\n\n{image}"


def of_page(app, name, source):
    """Puts the note behind the introduction of an example that was not run."""
    example = (
        EXAMPLES.joinpath(*Path(name).relative_to("gallery").parts).with_suffix(".py") if "gallery/" in name else None
    )
    if example is None or not example.exists() or was_run(source[0]):
        return
    title = re.search(r"^=+$", source[0], re.MULTILINE)
    introduced = source[0].index(MARK, title.end() if title else 0)
    source[0] = source[0][:introduced] + note(example) + source[0][introduced:]


def thumbnails(app):
    """Of examples that were not run, from their stored pictures; after the gallery's pages are written."""
    from sphinx_gallery.utils import scale_image

    for example in examples():
        folder = (PAGES / example.relative_to(EXAMPLES)).parent
        picture = PICTURES / f"{example.stem}.png"
        if picture.exists() and not was_run((folder / f"{example.stem}.rst").read_text(encoding="utf-8")):
            scale_image(picture, folder / "images" / "thumb" / f"sphx_glr_{example.stem}_thumb.png", *THUMB)


def keep():
    """Copies the first picture of each example that the last build ran to where stored pictures are."""
    for example in examples():
        folder = (PAGES / example.relative_to(EXAMPLES)).parent / "images"
        if was_run((PAGES / example.relative_to(EXAMPLES)).with_suffix(".rst").read_text(encoding="utf-8")):
            shutil.copyfile(folder / f"sphx_glr_{example.stem}_001.png", PICTURES / f"{example.stem}.png")
            print(PICTURES / f"{example.stem}.png")


def setup(app):
    app.connect("builder-inited", thumbnails, priority=950)
    app.connect("source-read", of_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


if __name__ == "__main__":
    keep()
