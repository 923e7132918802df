"""Says whether a wheel, which was built from the sdist, holds every compiled kernel of the tree."""

import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    kernels = [path.relative_to(ROOT).with_suffix("").as_posix() for path in (ROOT / "fastsketch").rglob("*.pyx")]
    absent = [kernel for kernel in kernels if not any(name.startswith(f"{kernel}.") for name in names)]
    size = Path(wheel).stat().st_size
    unpacked = sum(entry.file_size for entry in zipfile.ZipFile(wheel).infolist())
    print(f"{Path(wheel).name}: {len(kernels)} kernels, {size / 2**20:.1f} MB, installed {unpacked / 2**20:.1f} MB")
    return f"the wheel lacks {', '.join(absent)}" if absent else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
