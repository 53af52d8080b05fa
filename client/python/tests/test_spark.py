import os
import re
import subprocess
import sys

import pytest
from conftest import EXAMPLES, MNIST
from paramd.spark import ParamdClassificationModel, ParamdClassifier, jar_path
from py4j.java_collections import JavaArray
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.ml.feature import MinMaxScaler
from pyspark.ml.tuning import CrossValidator, ParamGridBuilder

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
        # PySpark has a default of its own for the seed.
        if jvm.hasDefault(param) and param.name() != "seed":
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
    assert not loaded.stages[1].hasSummary
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


def test_the_example_can_be_submitted():
    submit = [os.path.join(os.path.dirname(sys.executable), "spark-submit"), "--master", "local[2]"]
    output = subprocess.run(
        submit + ["--jars", jar_path(), EXAMPLES / "mnist.py", MNIST],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    ).stdout
    assert float(re.search(r"test accuracy (\S+) %", output).group(1)) >= 95
