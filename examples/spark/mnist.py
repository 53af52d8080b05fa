"""Trains MNIST on Spark, and evaluates the model. docs/spark.md tells how to submit it.

    mnist.py DATA [ALGORITHM]      DATA: the folder of MNIST's four files, which every executor must see
"""

import sys

import numpy
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.ml.linalg import Vectors, VectorUDT
from pyspark.sql import SparkSession
from pyspark.sql.types import DoubleType, StructField, StructType

from paramd.spark import ParamdClassifier


def read(spark, folder, name, rows, chunk=500):
    """A DataFrame of the first rows of a set: label, and features in [0, 1]."""

    def chunks(begins):
        for begin in begins:
            count = min(chunk, rows - begin)
            images = numpy.fromfile(f"{folder}/{name}-images-idx3-ubyte", numpy.uint8, count * 784, offset=16 + begin * 784)
            labels = numpy.fromfile(f"{folder}/{name}-labels-idx1-ubyte", numpy.uint8, count, offset=8 + begin)
            for image, label in zip(images.reshape(count, 784), labels):
                (ink,) = image.nonzero()
                yield float(label), Vectors.sparse(784, ink, image[ink] / 255)

    schema = StructType([StructField("label", DoubleType()), StructField("features", VectorUDT())])
    return spark.createDataFrame(spark.sparkContext.parallelize(range(0, rows, chunk)).mapPartitions(chunks), schema)


def main(folder, algorithm="adag"):
    spark = SparkSession.builder.appName("paramd-mnist").getOrCreate()
    classifier = ParamdClassifier(algorithm=algorithm, hiddenLayers=[128], maxIter=10, seed=1)
    model = classifier.fit(read(spark, folder, "train", 60000).cache())
    accuracy = MulticlassClassificationEvaluator(metricName="accuracy").evaluate(
        model.transform(read(spark, folder, "t10k", 10000))
    )
    print(f"{model.summary}; test accuracy {100 * accuracy:.2f} %")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
