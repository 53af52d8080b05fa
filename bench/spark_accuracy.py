#!/usr/bin/env python3
"""Compares ParamdClassifier with Spark's own classifiers in one session, all with their defaults but for the layers.

Prints the tables of docs/spark.md: accuracy on a quarter of the rows that was not trained (median and worst of the
seeds, each with a split of its own) and seconds of a fit. scripts/spark_accuracy.sh runs it.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

import numpy as np
from paramd.spark import ParamdClassifier, jar_path
from pyspark.ml.classification import LogisticRegression, MultilayerPerceptronClassifier
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.ml.feature import StandardScaler
from pyspark.ml.linalg import Vectors
from pyspark.sql import SparkSession
from sklearn import datasets

REPOSITORY = Path(__file__).resolve().parents[1]
HIDDEN = 64
ALGORITHMS = ["adag", "adaptive_adag", "aeasgd", "averaging", "downpour", "dynsgd", "eamsgd", "easgd"]
SMALL = {
    "digits": datasets.load_digits,
    "iris": datasets.load_iris,
    "wine": datasets.load_wine,
    "breast_cancer": datasets.load_breast_cancer,
}


def frame(spark, features, labels):
    rows = [(float(label), Vectors.dense(row)) for row, label in zip(features, labels)]
    data = spark.createDataFrame(rows, ["label", "features"]).repartition(2).cache()
    data.count()
    return data


def split(spark, features, labels, seed):
    order = np.random.RandomState(seed).permutation(len(labels))
    tested = len(labels) // 4
    return [frame(spark, features[rows], labels[rows]) for rows in (order[tested:], order[:tested])]


def mnist(spark, rows):
    sys.path.insert(0, str(REPOSITORY / "examples" / "spark"))
    import mnist

    data = [mnist.read(spark, REPOSITORY / "data" / "mnist", name, n).repartition(2).cache() for name, n in (("train", rows), ("t10k", 10000))]
    for part in data:
        part.count()
    return data


def scaled(train, test):
    scaler = StandardScaler(withMean=True, inputCol="features", outputCol="scaled").fit(train)
    return [scaler.transform(part).select("label", scaler.getOutputCol()).withColumnRenamed("scaled", "features").cache() for part in (train, test)]


def tried(estimator, train, test):
    begin = time.monotonic()
    model = estimator.fit(train)
    seconds = time.monotonic() - begin
    return MulticlassClassificationEvaluator(metricName="accuracy").evaluate(model.transform(test)), seconds


def peers(features, classes, seed):
    return {
        "paramd": ParamdClassifier(hiddenLayers=[HIDDEN], seed=seed),
        "perceptron": MultilayerPerceptronClassifier(layers=[features, HIDDEN, classes], seed=seed),
        "logistic": LogisticRegression(),
    }


def summed_up(results):
    accuracies, seconds = zip(*results)
    return f"{100 * statistics.median(accuracies):.1f} / {100 * min(accuracies):.1f}, {statistics.median(seconds):.2f} s"


def compare(spark, name, splits, scalings):
    """A row of the table for each scaling; whether paramd is where it should be."""
    good = True
    for scaling in scalings:
        results = {}
        for seed, (train, test) in enumerate(splits, 1):
            if scaling == "scaled":
                train, test = scaled(train, test)
            features = len(train.head().features)
            classes = int(train.agg({"label": "max"}).head()[0]) + 1
            for peer, estimator in peers(features, classes, seed).items():
                results.setdefault(peer, []).append(tried(estimator, train, test))
        print(f"| {name}, {scaling} | " + " | ".join(summed_up(results[peer]) for peer in results) + " |", flush=True)
        ours, theirs = ([accuracy for accuracy, _ in results[peer]] for peer in ("paramd", "perceptron"))
        good &= statistics.median(ours) >= statistics.median(theirs) - 0.005 and min(ours) >= min(theirs) - 0.01
    return good


def every_algorithm(spark, name, splits):
    """A row for each solver and algorithm; whether all are within 2 points of the best."""
    medians = {}
    for solver in ("sgd", "momentum", "adam"):
        for algorithm in ALGORITHMS:
            estimator = ParamdClassifier(hiddenLayers=[HIDDEN], solver=solver, algorithm=algorithm)
            results = [tried(estimator.copy({estimator.seed: seed}), *data) for seed, data in enumerate(splits, 1)]
            medians[solver, algorithm] = statistics.median(accuracy for accuracy, _ in results)
            print(f"| {name} | {solver} | {algorithm} | {summed_up(results)} |", flush=True)
    return max(medians.values()) - min(medians.values()) <= 0.02


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--data", default=",".join(SMALL), help="some of digits,iris,wine,breast_cancer")
    parser.add_argument("--mnist_rows", type=int, default=20000, help="0: none of it")
    parser.add_argument("--algorithms", action="store_true", help="every solver with every algorithm, too")
    arguments = parser.parse_args()
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jar_path())
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    print("| data | paramd: median / worst, time | MultilayerPerceptronClassifier | LogisticRegression |\n|---|---|---|---|")
    good = True
    splits = {}
    for name in filter(None, arguments.data.split(",")):
        data = SMALL[name]()
        splits[name] = [split(spark, data.data, data.target, seed) for seed in range(1, arguments.seeds + 1)]
        good &= compare(spark, name, splits[name], ("raw", "scaled"))
    if arguments.mnist_rows:
        splits["MNIST"] = [mnist(spark, arguments.mnist_rows)]
        good &= compare(spark, "MNIST", splits["MNIST"], ("raw",))
    if arguments.algorithms:
        print("\n| data | solver | algorithm | median / worst, time |\n|---|---|---|---|")
        for name in splits:
            good &= every_algorithm(spark, name, splits[name])
    spark.stop()
    if not good:
        sys.exit("spark_accuracy: paramd is behind in a row above")


if __name__ == "__main__":
    main()
