import os
import re
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from conftest import EXAMPLES, MNIST, REPOSITORY
from paramd.spark import ParamdClassificationModel, ParamdClassifier, ParamdRegressionModel, ParamdRegressor, jar_path
from py4j.java_collections import JavaArray
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.ml.feature import MinMaxScaler
from pyspark.ml.linalg import Vectors
from pyspark.ml.tuning import CrossValidator, ParamGridBuilder

def wait_until(condition):
    deadline = time.monotonic() + 180
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def accuracy(predictions):
    return MulticlassClassificationEvaluator(metricName="accuracy").evaluate(predictions)


def classifier(**params):
    return ParamdClassifier(numWorkers=2, hiddenLayers=[64], seed=1, **params)


@pytest.mark.parametrize("algorithm", ["adag", "dynsgd", "aeasgd"])
def test_trains_mnist(algorithm, train, test):
    model = classifier(algorithm=algorithm, maxIter=8).fit(train)

    assert accuracy(model.transform(test)) >= 0.95
    assert model.numClasses == 10
    assert model.layers == [784, 64, 10]
    summary = model.summary
    assert summary.numWorkers == 2
    assert summary.rows == train.count()
    assert summary.updates == sum(summary.stalenessHistogram) > 0
    assert summary.trainingTimeSeconds > 0
    assert summary.history.columns == ["worker", "step", "epoch", "timeSeconds", "loss", "accuracy"]
    assert summary.averagedHistory.count() == 8 * 469


def test_parameters_and_defaults_are_those_of_the_jvm(spark):
    estimator = ParamdClassifier()
    jvm = spark._jvm.paramd.spark.ParamdClassifier()
    for param in jvm.params():
        assert estimator.hasParam(param.name())
        if jvm.hasDefault(param):
            value = jvm.getDefault(param).get()
            assert estimator.getOrDefault(param.name()) == (list(value) if isinstance(value, JavaArray) else value)
    with pytest.raises(AttributeError):
        ParamdClassifier(windows=3)


def test_a_pipeline_goes_to_the_jvm_and_back(spark, train, test, tmp_path):
    scaler = MinMaxScaler(inputCol="features", outputCol="scaled")
    pipeline = Pipeline(stages=[scaler, classifier(featuresCol="scaled", maxIter=1)])
    pipeline.save(str(tmp_path / "pipeline"))
    fitted = Pipeline.load(str(tmp_path / "pipeline")).fit(train)
    expected = fitted.transform(test).select("prediction").collect()

    fitted.save(str(tmp_path / "from-python"))
    in_jvm = spark._jvm.org.apache.spark.ml.PipelineModel.load(str(tmp_path / "from-python"))
    assert in_jvm.stages()[1].getClass().getName() == "paramd.spark.ParamdClassificationModel"
    in_jvm.write().save(str(tmp_path / "from-jvm"))
    loaded = PipelineModel.load(str(tmp_path / "from-jvm"))

    assert isinstance(loaded.stages[1], ParamdClassificationModel)
    assert loaded.stages[1].summary.accuracy == fitted.stages[1].summary.accuracy > 0.5
    assert loaded.stages[1].getHiddenLayers() == [64]
    assert loaded.transform(test).select("prediction").collect() == expected


def test_cross_validation_chooses_among_parameters(train):
    estimator = classifier(maxIter=1)
    grid = ParamGridBuilder().addGrid(estimator.stepSize, [1e-6, 0.5]).build()
    evaluator = MulticlassClassificationEvaluator(metricName="accuracy")
    validator = CrossValidator(estimator=estimator, estimatorParamMaps=grid, evaluator=evaluator, numFolds=2, seed=1)
    validated = validator.fit(train.limit(3000))

    assert validated.avgMetrics[1] > validated.avgMetrics[0]
    assert validated.bestModel.getStepSize() == 0.5


def test_the_whole_example_of_the_documentation_runs(spark):
    page = (REPOSITORY / "docs" / "spark.md").read_text(encoding="utf-8")
    names = {}
    exec(re.search(r"## A whole example.*?```python\n(.*?)```", page, re.DOTALL).group(1), names)
    assert names["model"].evaluate(names["test"]).accuracy > 0.9


def test_a_regression_tells_numbers_and_goes_on_from_a_model(spark, tmp_path):
    rows = [(3.0 * x, -x, Vectors.dense(x)) for x in (i / 50 for i in range(-100, 100))]
    data = spark.createDataFrame(rows, ["label", "other", "features"])
    model = ParamdRegressor(numWorkers=1).fit(data)
    assert abs(model.predict(Vectors.dense(1.5)) - 4.5) < 0.3
    several = ParamdRegressor(numWorkers=1, maxIter=5, labelCols=["label", "other"])
    first = several.fit(data)
    assert len(first.transform(data).head().prediction) == first.numOutputs == 2
    first.save(str(tmp_path / "model"))
    loaded = ParamdRegressionModel.load(str(tmp_path / "model"))
    assert loaded.summary.objectiveHistory == first.summary.objectiveHistory
    again = several.setInitialModel(loaded).fit(data)
    assert again.summary.objectiveHistory[0] < first.summary.objectiveHistory[0]


def test_the_example_can_be_submitted():
    submit = [os.path.join(os.path.dirname(sys.executable), "spark-submit"), "--master", "local[2]"]
    output = subprocess.run(
        submit + ["--jars", jar_path(), EXAMPLES / "mnist.py", MNIST],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    ).stdout
    assert float(re.search(r"test accuracy (\S+) %", output).group(1)) >= 95


def test_ctrl_c_ends_a_fit_and_its_daemon(tmp_path):
    script = tmp_path / "endless.py"
    script.write_text(
        textwrap.dedent(
            """
            from paramd.spark import ParamdClassifier, jar_path
            from pyspark.ml.linalg import Vectors
            from pyspark.sql import SparkSession

            builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
            spark = builder.config("spark.jars", jar_path()).getOrCreate()
            rows = spark.createDataFrame([(float(i % 2), Vectors.dense(i)) for i in range(100)], ["label", "features"])
            try:
                ParamdClassifier(numWorkers=2, maxIter=10**9).fit(rows)
            except KeyboardInterrupt:
                print("interrupted", flush=True)
            input()
            print(spark.range(7).count(), "rows")
            """
        )
    )
    # A process group of its own, all of which a terminal's Ctrl-C reaches.
    child = subprocess.Popen(
        [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )

    def daemons():
        group = subprocess.run(["ps", "-o", "comm=", "-g", str(child.pid)], stdout=subprocess.PIPE, text=True).stdout
        return group.split().count("paramd")

    try:
        wait_until(lambda: daemons() == 1)
        os.killpg(child.pid, signal.SIGINT)
        assert child.stdout.readline() == "interrupted\n"
        wait_until(lambda: daemons() == 0)
        # And the session goes on.
        assert child.communicate("\n", timeout=60)[0] == "7 rows\n"
    finally:
        if child.poll() is None:
            child.kill()
