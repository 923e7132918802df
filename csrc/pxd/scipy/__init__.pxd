# Makes a package of this folder for Cython: linalg/ tells what it is for.
