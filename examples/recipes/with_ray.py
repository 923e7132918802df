"""DFROSH with Ray: learning and merging are tasks; a lost worker costs Ray a retry."""

import ray
from common import PARTS, part

import fastsketch as fs


@ray.remote
def learn(index):
    with fs.thread_limit(1):
        return fs.SketchHash(64, part=index).update(part(index)).seal()


@ray.remote
def join(left, right):
    return left.copy().merge(right)


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False)
    level = [learn.remote(index) for index in range(PARTS)]
    while len(level) > 1:
        level = [join.remote(*level[i : i + 2]) if i + 1 < len(level) else level[i] for i in range(0, len(level), 2)]
    model = ray.get(level[0])
    print(model, model.encode(part(0)[:1]).tobytes().hex())
