"""DFROSH with MPI: every rank learns its part, a reduction merges. Run: mpirun -n 6 python with_mpi.py"""

from common import part
from mpi4py import MPI

import fastsketch as fs

comm = MPI.COMM_WORLD
with fs.thread_limit(1):
    mine = fs.SketchHash(64, part=comm.rank).update(part(comm.rank)).seal()
# merges give the same bits in any order, so the reduction may take any
model = comm.reduce(mine, op=MPI.Op.Create(lambda left, right, _: left.copy().merge(right), commute=True))
if comm.rank == 0:
    print(model, model.encode(part(0)[:1]).tobytes().hex())
