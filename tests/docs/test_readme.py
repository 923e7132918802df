"""README.md: five jobs that run as pasted and print what they say, commands that run, a page one gets through."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.docs.blocks import alike, blocks, shell

ROOT = Path(__file__).parents[2]
HOST = "https://github.com/fastsketch/fastsketch"
SITE = "https://fastsketch.github.io/fastsketch"
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))
JOBS = {
    "Components of a stream": "components",
    "Anomalies": "anomalies",
    "Neighbours": "neighbours",
    "Recommending": "recommending",
    "Learning from clicks": "learning",
}


def code_of(job):
    (found,) = (block.code for block in blocks(SECTIONS[job]) if block.language == "python")
    return found


@pytest.mark.parametrize("job", JOBS)
def test_a_job_runs_as_pasted(job, tmp_path):
    """In a fresh interpreter; the comment behind the last line is what it prints."""
    code = code_of(job)
    if "fastsketch.sklearn" in code:
        pytest.importorskip("sklearn")
    printed = re.search(r"^print\(.*\)  # (.*)\n\Z", code, re.MULTILINE)
    assert printed, code
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert alike(done.stdout, printed[1]), done.stdout


@pytest.mark.parametrize("job", JOBS)
def test_a_job_is_short_has_its_numbers_and_a_page(job):
    assert sum(bool(line.strip()) for line in code_of(job).splitlines()) <= 8
    rows = re.findall(r"^\|(.*)\|$", SECTIONS[job], re.MULTILINE)
    assert len(rows) >= 5 and any("+-" in row for row in rows[2:])  # ours, today's tool, a simple rival; spread
    assert f"({SITE}/jobs/{JOBS[job]}.html)" in SECTIONS[job]


def test_commands_run(tmp_path):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "rows.npy", rng.standard_normal((500, 40)))
    lines = (f"{hour},{'ab'[hour % 2]},{'yes' if hour > 9 else 'no'}" for hour in rng.integers(24, size=300))
    (tmp_path / "clicks.csv").write_text("\n".join(["hour,site,clicked", *lines, ""]), encoding="ascii")
    (commands,) = (block.code for block in blocks(SECTIONS["From the shell"]) if block.language == "sh")
    shell(commands, tmp_path)
    assert np.load(tmp_path / "scores.npy").shape == (500, 3)
    assert (tmp_path / "clicks.fsk").exists()


def test_the_way_to_the_first_job_is_short():
    """What it is in three sentences, a picture, three commands; at most 1,100 words in all, addresses not counted."""
    head = TEXT.split("\n## ")[0]
    assert head.index("exact where possible and certified where not") < head.index("![") < head.index("make demo")
    assert re.search(r"!\[[^\]]{20,}\]\((\S+)\)", head)
    assert "pip install" in head and "make test" in head
    assert len([word for word in re.sub(r"\]\([^)]*\)", "]", TEXT).split() if re.search(r"\w", word)]) <= 1100


def test_links_lead_somewhere():
    """All are whole addresses, for a package index has no files beside it; what they name is in the repository."""
    pictures, targets = (re.findall(rf"{kind}\[[^\]]*\]\(([^)\s]+)\)", TEXT) for kind in ("!", "(?<!!)"))
    assert len(pictures) == 1 and len(targets) >= 15
    for target, kind in [*((one, "raw") for one in pictures), *((one, "blob") for one in targets)]:
        page = re.sub(rf"^{re.escape(SITE)}/(.*)\.html", rf"{HOST}/blob/main/docs/\1.md", target)
        home = f"{HOST}/{kind}/main/"
        assert page.startswith(home), target
        path, _, place = page.removeprefix(home).partition("#")
        assert (ROOT / path).is_file(), target
        if place:
            text = (ROOT / path).read_text(encoding="utf-8")
            assert place in map(_anchor, re.findall(r"^#+ (.*)$", text, re.MULTILINE))


def _anchor(heading):
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
