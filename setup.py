"""Compiles the kernels, and says what to do where that cannot be done; all metadata is in pyproject.toml.

A kernel is a .pyx file below fastsketch/_kernels and what it names: declarations (.pxd), headers of csrc/, and for each
header fs_NAME.h the file fs_NAME.c, if there is one. All that is compiled is kept in build/kernels by a digest of what
it was made of, so that a second build of the same tree compiles nothing; nothing is written beside the sources.
"""

import atexit
import contextlib
import glob
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, LinkError, PlatformError

# FASTSKETCH_DEBUG=1 turns on bounds checks; FASTSKETCH_TRACE=1 line tracing for profilers; FASTSKETCH_SANITIZE=1 the
# address and undefined-behaviour sanitizers of gcc or clang (`make asan`); FASTSKETCH_BUILD=FOLDER keeps what is
# compiled there in place of build/kernels; FASTSKETCH_OBJECTS=FOLDER has copies of csrc/'s objects, too. CFLAGS are
# honoured, and so is CC: on Windows the kernels have vector instructions with CC=clang-cl, with Microsoft's cl they are
# plain C.
DEBUG = os.environ.get("FASTSKETCH_DEBUG") == "1"
TRACE = os.environ.get("FASTSKETCH_TRACE") == "1"
SANITIZE = os.environ.get("FASTSKETCH_SANITIZE") == "1"
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": DEBUG,
    "wraparound": False,
    "initializedcheck": DEBUG,
    "cdivision": True,
    "embedsignature": True,
    "freethreading_compatible": True,
    "linetrace": TRACE,
}
if sys.platform == "win32":
    FLAGS = ["/O2", "/std:c11"]
    if Path(os.environ.get("CC", "")).stem == "clang-cl":
        FLAGS += ["/clang:-O3", "/clang:-ffp-contract=off"]
else:
    # -std=c11 and no contraction: levels of a kernel that round alike return the same bits (csrc/fs_level.h)
    # (and roots that need not set errno are taken several at a time)
    FLAGS = ["-O3", "-std=c11", "-ffp-contract=off", "-fno-math-errno", "-g0", "-fvisibility=hidden"]
# Files of csrc/ that gcc compiles best at -O2: at -O3 it takes three times as long, and plain C is a third as fast.
AT_O2 = ("fs_dots.c",)
if SANITIZE:
    FLAGS += ["-O1", "-g1", "-fno-omit-frame-pointer", *SANITIZERS]

KERNELS = Path("fastsketch/_kernels")
CSRC = Path("csrc")
# What Cython writes alike for every module (memoryviews), once for all.
SHARED = "fastsketch._kernels._cyutility"
CIMPORT = re.compile(r"^\s*from fastsketch\._kernels\.([\w.]+) cimport", re.M)
HEADER = re.compile(r'"(fs_\w+(?:\.inc)?\.h)"')
# Compilers that run at a time: each takes some 400 MB.
MOST_AT_ONCE = 8
# Of the same kernel, for trees that go to and fro between commits, compilers or Pythons.
MOST_KEPT = 8
ROOM = 300 * 2**20  # bytes that a build takes, and some to spare
TEMPORARY = "fastsketch-build-"

CANNOT = "fastsketch is being built from source, and {what}."
NO_COMPILER = """{cannot}
Wheels need no compiler: update pip, or take a Python version and a system that fastsketch has wheels for.
To compile: {do}."""
TO_COMPILE = {
    "win32": "install Microsoft's C++ Build Tools (Visual Studio 2022 or newer)",
    "darwin": "run xcode-select --install",
}.get(sys.platform, "install gcc or clang and Python's headers (Debian: gcc python3-dev; Fedora: gcc python3-devel)")


def made_of(path, known=None):
    """Return all files of this tree that decide what a file compiles to, that file first."""
    known = {} if known is None else known
    if path not in known and path.exists():
        known[path] = None
        text = path.read_text("utf-8")
        for module in CIMPORT.findall(text):
            made_of(Path(KERNELS, module.replace(".", "/") + ".pxd"), known)
        for header in HEADER.findall(text):
            made_of(CSRC / header, known)
        if path.suffix == ".pyx":
            made_of(path.with_suffix(".pxd"), known)
        elif path.suffix == ".h":
            made_of(path.with_suffix(".c"), known)
    return list(known)


def digest(paths, *more):
    """Return 20 digits that stand for the names and contents of files, and for what else a result depends on."""
    found = hashlib.sha256(repr(more).encode())
    for path in sorted(paths):
        found.update(f"{path.as_posix()}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return found.hexdigest()[:20]


def temporary_folder(within=None):
    """Return a new folder, in that of this build if no other is named, that is gone when this process ends."""
    folder = tempfile.mkdtemp(prefix=TEMPORARY, dir=within or STORE)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def store_folder():
    """Return the folder for what was compiled: a temporary one where the tree cannot be written."""
    named = os.environ.get("FASTSKETCH_BUILD")
    folder = Path(named or "build/kernels").absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        if named:
            remedy = "name a folder that can be written, or leave FASTSKETCH_BUILD unset"
            sys.exit(f"FASTSKETCH_BUILD={named} cannot be used ({error}): {remedy}.")
        return temporary_folder(tempfile.gettempdir())
    return folder


def wait_for_others(folder):
    """Hold a lock on the folder until this process ends: two builds of a tree would mix their files."""
    with contextlib.suppress(ImportError):  # Windows has no fcntl: build there one after the other
        import fcntl

        # to read alone: it may be another user's
        lock = os.fdopen(os.open(folder / "lock", os.O_RDONLY | os.O_CREAT, 0o666))
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            print(f"another build is at work in {folder}: waiting for its end", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        atexit.register(lock.close)
        for left in folder.glob(f"{TEMPORARY}*"):  # by a build that was killed: none is at work now
            shutil.rmtree(left, ignore_errors=True)


class BuildKernels(build_ext):
    """Compiles on all cores what is not kept yet, or says what is lacking."""

    def finalize_options(self):
        super().finalize_options()
        try:
            shlex.split(os.environ.get("CC", ""))
        except ValueError as error:
            raise PlatformError(
                f"{CANNOT.format(what=f'CC cannot be read ({error})')}\nTo compile: mend CC."
            ) from error
        if self.parallel is None:  # not set by --parallel or setup.cfg
            self.parallel = min(os.cpu_count() or 1, MOST_AT_ONCE)

    def build_extensions(self):
        lacks = self.use_clang_cl() if self.compiler.compiler_type == "msvc" else self.lacking()
        if lacks:
            raise PlatformError(NO_COMPILER.format(cannot=CANNOT.format(what=lacks), do=TO_COMPILE))
        with self.failures_in_words():
            self.compile_all()

    def compile_all(self):
        suffix = Path(self.get_ext_filename("kernel")).suffix
        declared = sorted(CSRC.rglob("*.pxd"))
        # what each module is made of: what Cython writes for all of them is not of this tree
        self.files = {ext.name: [*made_of(Path(ext.pyx)), *declared] if ext.pyx else [] for ext in self.extensions}
        variables = [os.environ.get(name) for name in ("CFLAGS", "LDFLAGS")]
        compiler = (self.compiler_version(), FLAGS, AT_O2, *variables, sys.platform)
        python = (sys.version_info[:2], sysconfig.get_config_var("SOABI"), sysconfig.get_platform())
        names, kept = {}, {}
        for ext in self.extensions:
            key = digest(self.files[ext.name], self.cython_version(), DIRECTIVES, compiler, python)
            names[ext.name] = f"{ext.name}-{key}{suffix}"
            kept[ext.name] = find_kept(names[ext.name])
        todo = [ext for ext in self.extensions if not kept[ext.name]]
        wanted = os.environ.get("FASTSKETCH_OBJECTS")
        parts = {path for ext in (self.extensions if wanted else todo) for path in self.files[ext.name]}
        parts = sorted((path for path in parts if path.suffix == ".c"), key=longer)
        if todo:
            self.write_c(todo)
        objects = dict(self.at_once(lambda part: self.compile_part(part, compiler), parts))
        if wanted:
            for path, made in objects.items():
                shutil.copyfile(made, Path(wanted, path.with_suffix(self.compiler.obj_extension).name))
        if todo:
            for ext in todo:
                ext.extra_objects = [objects[path] for path in self.files[ext.name] if path in objects]
            built = self.at_once(self.build_one, sorted(todo, key=lambda ext: longer(Path(ext.sources[0]))))
            for ext, path in built:
                kept[ext.name] = keep(path, names[ext.name])
        for ext in self.extensions:
            target = Path(self.get_ext_fullpath(ext.name))
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(kept[ext.name], target)
            os.utime(kept[ext.name])
        lasts = not STORE.name.startswith(TEMPORARY)
        said = f"all are kept in {STORE}" if lasts else "none is kept: build/kernels cannot be written"
        print(f"{len(todo)} of {len(self.extensions)} kernels compiled; {said}")

    def write_c(self, extensions):
        """Let Cython translate what is not translated yet: each `sources` then is a C file of the store."""
        wanted = {}
        for ext in extensions:
            texts = [path for path in self.files[ext.name] if path.suffix in (".pyx", ".pxd")]
            wanted[ext.name] = f"{ext.name}-{digest(texts, self.cython_version(), DIRECTIVES)}.c"
        todo = [ext for ext in extensions if not find_kept(wanted[ext.name])]
        if todo:
            from Cython.Build import cythonize

            written = cythonize(
                todo,
                nthreads=self.parallel,
                build_dir=str(temporary_folder()),
                include_path=[".", str(CSRC / "pxd")],
                shared_utility_qualified_name=SHARED,
                compiler_directives=DIRECTIVES,
                force=True,
                quiet=True,
            )
            for ext, made in zip(todo, written, strict=True):
                keep(made.sources[0], wanted[ext.name])
        for ext in extensions:
            ext.sources = [str(find_kept(wanted[ext.name]))]

    def compile_part(self, path, compiler):
        """Compile a file of csrc/ once for all modules, and return it with its object."""
        name = f"{path.stem}-{digest(made_of(path), compiler)}{self.compiler.obj_extension}"
        kept = find_kept(name)
        if not kept:
            flags = ["-O2" if flag == "-O3" and path.name in AT_O2 else flag for flag in FLAGS]
            given = {"include_dirs": [str(CSRC)], "extra_postargs": flags}
            (made,) = self.compiler.compile([str(path)], output_dir=str(temporary_folder()), **given)
            kept = keep(made, name)
        return path, str(kept)

    def build_one(self, ext):
        """Compile and link a module, and return it with its file."""
        one = copy(self)
        one.inplace, one.build_lib, one.build_temp = False, str(temporary_folder()), str(temporary_folder())
        one.build_extension(ext)
        return ext, one.get_ext_fullpath(ext.name)

    def at_once(self, function, things):
        """Return what a function makes of each, on as many cores as there may be."""
        with ThreadPoolExecutor(self.parallel) as pool:
            try:
                return list(pool.map(function, things))
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def cython_version(self):
        from importlib.metadata import version

        return version("Cython")

    def compiler_version(self):
        """Return what the compiler says of itself."""
        if self.compiler.compiler_type == "msvc":
            return self.compiler.cc
        command = [*self.compiler.compiler_so, "--version"]
        return command, subprocess.run(command, capture_output=True, text=True, check=False).stdout

    @contextlib.contextmanager
    def failures_in_words(self):
        """Say what to do about a disk that is full or a compiler that is too old."""
        try:
            yield
        except (CompileError, LinkError, OSError) as error:
            for folder in (STORE, Path(tempfile.gettempdir())):
                free = shutil.disk_usage(folder).free
                if free < ROOM:
                    what = f"the disk of {folder} is full ({free >> 20} MB are free)"
                    do = f"make room for {ROOM >> 20} MB, or name another folder by FASTSKETCH_BUILD or TMPDIR"
                    raise PlatformError(f"{CANNOT.format(what=what)}\nTo compile: {do}.") from error
            if isinstance(error, OSError):
                raise
            what = f"{self.compiler.compiler_type} compiler failed: its own words are above ({error})"
            do = "take gcc 10, clang 14 or newer (CC=...); CFLAGS=-DFS_NO_LEVELS leaves vector instructions out"
            raise PlatformError(f"{CANNOT.format(what='the ' + what)}\nTo compile: {do}.") from error

    def lacking(self):
        for word in self.compiler.compiler_so:
            if Path(word).name not in ("ccache", "sccache", "env") and "=" not in word:
                if not shutil.which(word):
                    return f"there is no C compiler: {word} is not found"
                break
        folders = [sysconfig.get_path("include"), *self.compiler.include_dirs]
        if not any(Path(folder, "Python.h").exists() for folder in folders):
            return f"Python's headers are not installed: no Python.h in {folders[0]}"
        return None

    def use_clang_cl(self):
        try:
            self.compiler.initialize()
        except PlatformError as error:
            return f"there is no C compiler: {str(error).splitlines()[0]}"
        cc = os.environ.get("CC", "")
        if Path(cc).stem == "clang-cl":
            if not shutil.which(cc):
                return f"there is no C compiler: {cc} (CC) is not found"
            self.compiler.cc = shutil.which(cc)
        return None


def longer(path):
    """Return a key that puts first what takes the longest to compile: more text, with the loops that it includes."""
    return -sum(part.stat().st_size for part in made_of(path))


def find_kept(name):
    """Return the file that keep() put into the store by this name, None if there is none or it is not whole."""
    path = Path(name)
    for kept in STORE.glob(f"{glob.escape(path.stem)}-*{path.suffix}"):
        with contextlib.suppress(PermissionError):  # another user's: made anew
            if kept.stem.endswith(f"-{digest([], kept.read_bytes())}"):
                return kept
        kept.unlink(missing_ok=True)  # cut off, by a disk that was full or a machine that went down
    return None


def keep(made, name):
    """Put a file into the store, whole or not at all, under the name and a digest of its bytes; return its path."""
    path = Path(name)
    kept = STORE / f"{path.stem}-{digest([], Path(made).read_bytes())}{path.suffix}"
    shutil.copyfile(made, beside := STORE / f".{kept.name}-{os.getpid()}")
    beside.replace(kept)
    older = sorted(STORE.glob(f"{path.stem.rpartition('-')[0]}-*{path.suffix}"), key=lambda file: -file.stat().st_mtime)
    for file in older[MOST_KEPT:]:
        file.unlink(missing_ok=True)
    return kept


def extension(name, pyx=None):
    # What a Python executable need not have linked itself: older C libraries keep threads and mathematics apart.
    libraries = [] if sys.platform == "win32" else ["m", "pthread"]
    made = Extension(
        name,
        [pyx or f"{name.replace('.', '/')}.c"],
        include_dirs=[str(CSRC)],
        extra_compile_args=FLAGS,
        extra_link_args=SANITIZERS if SANITIZE else [],
        libraries=libraries,
        define_macros=[("CYTHON_TRACE", "1")] if TRACE else [],
    )
    made.pyx = pyx
    return made


def extensions():
    """Return a module for each .pyx file, and the one that all of them share."""
    found = sorted(path.as_posix() for path in KERNELS.rglob("*.pyx"))
    return [extension(SHARED), *(extension(path[:-4].replace("/", "."), path) for path in found)]


if __name__ == "__main__":
    STORE = store_folder()
    wait_for_others(STORE)
    # A folder of its own: what an earlier build left under build/ would be installed with this one.
    options = {"build": {"build_base": str(temporary_folder())}}
    if "sdist" not in sys.argv:  # an sdist holds its own, by a path in the tree
        options["egg_info"] = {"egg_base": str(temporary_folder())}
    setup(ext_modules=extensions(), cmdclass={"build_ext": BuildKernels}, options=options)
