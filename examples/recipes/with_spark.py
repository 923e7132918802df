"""DFROSH with Spark: every partition becomes one model by mapInPandas; the driver merges their bytes."""

import pandas as pd
from common import PARTS, part
from pyspark.sql import SparkSession

import fastsketch as fs


def learn(frames):
    """One call a partition. Its number must come with the data: Spark may run a partition again elsewhere."""
    for frame in frames:
        for index in frame["index"]:
            with fs.thread_limit(1):
                model = fs.SketchHash(64, part=int(index)).update(part(int(index))).seal()
            yield pd.DataFrame({"model": [model.to_bytes()]})


if __name__ == "__main__":
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    rows = spark.createDataFrame([(index,) for index in range(PARTS)], "index int").repartition(PARTS)
    found = rows.mapInPandas(learn, "model binary").collect()
    model = fs.merge([fs.from_bytes(bytes(row.model)) for row in found])
    print(model, model.encode(part(0)[:1]).tobytes().hex())
    spark.stop()
