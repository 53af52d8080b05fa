"""Trains classifiers and regressions on Spark through paramd. docs/spark.md tells more, also what the parameters mean.

    spark = SparkSession.builder.config("spark.jars", paramd.spark.jar_path()).getOrCreate()
    model = ParamdClassifier(numWorkers=2, hiddenLayers=[128]).fit(train)
    model.transform(test)

Everything happens in the JVM. PySpark finds the class of a loaded stage by the JVM's name for it, so both are called
paramd.spark.NAME, and must stay in this file.
"""

from concurrent.futures import Future, wait
from pathlib import Path
from typing import TYPE_CHECKING, List

from pyspark import InheritableThread
from pyspark.ml.classification import _JavaProbabilisticClassificationModel, _JavaProbabilisticClassifier
from pyspark.ml.classification import _ProbabilisticClassifierParams
from pyspark.ml.linalg import Vector
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.param.shared import (
    HasElasticNetParam,
    HasFeaturesCol,
    HasHandleInvalid,
    HasLabelCol,
    HasMaxIter,
    HasPredictionCol,
    HasRegParam,
    HasSeed,
    HasSolver,
    HasStandardization,
    HasStepSize,
    HasTol,
    HasValidationIndicatorCol,
    HasWeightCol,
)
from pyspark.ml.util import HasTrainingSummary, JavaMLReadable, JavaMLWritable
from pyspark.ml.wrapper import JavaEstimator, JavaModel, JavaWrapper
from pyspark.sql import DataFrame

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "ParamdClassificationEvaluation",
    "ParamdClassificationModel",
    "ParamdClassifier",
    "ParamdRegressionModel",
    "ParamdRegressor",
    "ParamdTrainingSummary",
    "jar_path",
]


def jar_path() -> str:
    """The jar with paramd and its native code, for `spark.jars`, before the session starts."""
    jar = Path(__file__).with_name("paramd.jar")
    if not jar.exists():
        raise FileNotFoundError(f"{jar} is missing: install the wheel that scripts/build_python.sh makes")
    return str(jar)


class _ParamdParams(
    HasElasticNetParam,
    HasHandleInvalid,
    HasMaxIter,
    HasRegParam,
    HasSeed,
    HasSolver,
    HasStandardization,
    HasStepSize,
    HasTol,
    HasValidationIndicatorCol,
    HasWeightCol,
):
    patience: Param[int] = Param(
        Params._dummy(),
        "patience",
        "epochs without a better validation loss, by more than tol of it, after which a worker stops; without "
        "validationIndicatorCol it means nothing",
        typeConverter=TypeConverters.toInt,
    )
    algorithm: Param[str] = Param(
        Params._dummy(),
        "algorithm",
        "how the workers train together, as in the daemon's list, but for single and ensemble",
        typeConverter=TypeConverters.toString,
    )
    consistency: Param[str] = Param(
        Params._dummy(),
        "consistency",
        "async, bounded:S or sync; empty: the algorithm's",
        typeConverter=TypeConverters.toString,
    )
    hyperparameters: Param[List[str]] = Param(
        Params._dummy(),
        "hyperparameters",
        "further hyperparameters of the algorithm, each NAME=NUMBER",
        typeConverter=TypeConverters.toListString,
    )
    numWorkers: Param[int] = Param(
        Params._dummy(),
        "numWorkers",
        "workers that train at the same time; 0: as many as Spark's default parallelism",
        typeConverter=TypeConverters.toInt,
    )
    parallelismFactor: Param[int] = Param(
        Params._dummy(),
        "parallelismFactor",
        "partitions for each of numWorkers: the data is divided into numWorkers times this many",
        typeConverter=TypeConverters.toInt,
    )
    communicationWindow: Param[int] = Param(
        Params._dummy(),
        "communicationWindow",
        "minibatches between two exchanges; 0: the algorithm's",
        typeConverter=TypeConverters.toInt,
    )
    shuffle: Param[bool] = Param(
        Params._dummy(),
        "shuffle",
        "whether rows change partition before the training, so that no worker sees one class or one day alone",
        typeConverter=TypeConverters.toBoolean,
    )
    batchSize: Param[int] = Param(
        Params._dummy(), "batchSize", "rows in a minibatch", typeConverter=TypeConverters.toInt
    )
    hiddenLayers: Param[List[int]] = Param(
        Params._dummy(),
        "hiddenLayers",
        "units of each hidden layer, from input to output; none: a linear classifier",
        typeConverter=TypeConverters.toListInt,
    )
    server: Param[str] = Param(
        Params._dummy(),
        "server",
        "HOST:PORT of a daemon that already runs; empty: the driver starts one for the fit",
        typeConverter=TypeConverters.toString,
    )
    connectTimeout: Param[float] = Param(
        Params._dummy(),
        "connectTimeout",
        "seconds within which `server` must be there",
        typeConverter=TypeConverters.toFloat,
    )
    modelName: Param[str] = Param(
        Params._dummy(),
        "modelName",
        "the daemon's name for what is trained, which stays there after the fit and must not be there before; empty: "
        "a name of its own, which is deleted after the fit",
        typeConverter=TypeConverters.toString,
    )
    overwrite: Param[bool] = Param(
        Params._dummy(),
        "overwrite",
        "whether a model that `server` has under `modelName` is deleted first",
        typeConverter=TypeConverters.toBoolean,
    )
    tlsCa: Param[str] = Param(
        Params._dummy(),
        "tlsCa",
        "the driver's PEM file of the authorities of the certificate of `server`; empty: PARAMD_TLS_CA, else no TLS",
        typeConverter=TypeConverters.toString,
    )
    tlsCert: Param[str] = Param(
        Params._dummy(),
        "tlsCert",
        "the driver's PEM file of a certificate to show to `server`; empty: PARAMD_TLS_CERT",
        typeConverter=TypeConverters.toString,
    )
    tlsKey: Param[str] = Param(
        Params._dummy(),
        "tlsKey",
        "the driver's PEM file of its key; empty: PARAMD_TLS_KEY",
        typeConverter=TypeConverters.toString,
    )
    tokenFile: Param[str] = Param(
        Params._dummy(),
        "tokenFile",
        "the driver's file of a token that `server` knows; empty: PARAMD_TOKEN_FILE",
        typeConverter=TypeConverters.toString,
    )
    insecure: Param[bool] = Param(
        Params._dummy(),
        "insecure",
        "whether the daemon that the driver starts does without TLS and token, so that anyone who reaches its port can "
        "train",
        typeConverter=TypeConverters.toBoolean,
    )

    def __init__(self, *args):
        super().__init__(*args)
        # The other defaults come from the JVM. PySpark leaves arrays unconverted, and has some of its own.
        self._setDefault(
            hyperparameters=[],
            hiddenLayers=[128],
            solver="adam",
            maxIter=0,
            regParam=0.0,
            elasticNetParam=0.0,
            tol=1e-3,
            standardization=True,
        )

    def getPatience(self) -> int:
        return self.getOrDefault(self.patience)

    def getAlgorithm(self) -> str:
        return self.getOrDefault(self.algorithm)

    def getConsistency(self) -> str:
        return self.getOrDefault(self.consistency)

    def getHyperparameters(self) -> List[str]:
        return self.getOrDefault(self.hyperparameters)

    def getNumWorkers(self) -> int:
        return self.getOrDefault(self.numWorkers)

    def getParallelismFactor(self) -> int:
        return self.getOrDefault(self.parallelismFactor)

    def getCommunicationWindow(self) -> int:
        return self.getOrDefault(self.communicationWindow)

    def getShuffle(self) -> bool:
        return self.getOrDefault(self.shuffle)

    def getBatchSize(self) -> int:
        return self.getOrDefault(self.batchSize)

    def getHiddenLayers(self) -> List[int]:
        return self.getOrDefault(self.hiddenLayers)

    def getServer(self) -> str:
        return self.getOrDefault(self.server)

    def getConnectTimeout(self) -> float:
        return self.getOrDefault(self.connectTimeout)

    def getModelName(self) -> str:
        return self.getOrDefault(self.modelName)

    def getOverwrite(self) -> bool:
        return self.getOrDefault(self.overwrite)

    def getTlsCa(self) -> str:
        return self.getOrDefault(self.tlsCa)

    def getTlsCert(self) -> str:
        return self.getOrDefault(self.tlsCert)

    def getTlsKey(self) -> str:
        return self.getOrDefault(self.tlsKey)

    def getTokenFile(self) -> str:
        return self.getOrDefault(self.tokenFile)

    def getInsecure(self) -> bool:
        return self.getOrDefault(self.insecure)


class _ParamdEstimator(_ParamdParams, JavaMLWritable):
    def __init__(self, java_class: str, **params):
        super().__init__()
        self._java_obj = self._new_java_obj(java_class, self.uid)
        # PySpark's own default differs from process to process.
        self._setDefault(seed=self._java_obj.getOrDefault(self._java_obj.getParam("seed")))
        self._transfer_params_from_java()
        self._set(**params)

    def _fit_java(self, dataset: DataFrame):
        """Waits for a thread that fits: PySpark's handler of Ctrl-C can't cancel jobs while its own thread asks the JVM."""
        fitted = Future()

        def fit():
            try:
                fitted.set_result(super(_ParamdEstimator, self)._fit_java(dataset))
            except BaseException as error:
                fitted.set_exception(error)

        InheritableThread(target=fit, daemon=True).start()
        try:
            return fitted.result()
        except KeyboardInterrupt:
            # The handler has cancelled the jobs that there were; the fit may just have begun another.
            while not wait([fitted], timeout=0.5).done:
                dataset.sparkSession.sparkContext.cancelAllJobs()
            raise

    def setParams(self, **params) -> "Self":
        return self._set(**params)

    def setInitialModel(self, model) -> "Self":
        """Training goes on from its weights, with everything scaled as it was for it. Not saved with the estimator."""
        self._java_obj.setInitialModel(model._java_obj)
        return self

    def setAlgorithm(self, value: str) -> "Self":
        return self._set(algorithm=value)

    def setConsistency(self, value: str) -> "Self":
        return self._set(consistency=value)

    def setHyperparameters(self, value: List[str]) -> "Self":
        return self._set(hyperparameters=value)

    def setNumWorkers(self, value: int) -> "Self":
        return self._set(numWorkers=value)

    def setParallelismFactor(self, value: int) -> "Self":
        return self._set(parallelismFactor=value)

    def setCommunicationWindow(self, value: int) -> "Self":
        return self._set(communicationWindow=value)

    def setShuffle(self, value: bool) -> "Self":
        return self._set(shuffle=value)

    def setBatchSize(self, value: int) -> "Self":
        return self._set(batchSize=value)

    def setHiddenLayers(self, value: List[int]) -> "Self":
        return self._set(hiddenLayers=value)

    def setMaxIter(self, value: int) -> "Self":
        """Epochs, passes of each worker over its partition; 0: as many as it takes for little data, and at least 10."""
        return self._set(maxIter=value)

    def setStepSize(self, value: float) -> "Self":
        """Learning rate; if it is not set, one that suits solver and algorithm."""
        return self._set(stepSize=value)

    def setSolver(self, value: str) -> "Self":
        """The workers' own optimizer: sgd, momentum (Nesterov) or adam."""
        return self._set(solver=value)

    def setSeed(self, value: int) -> "Self":
        return self._set(seed=value)

    def setServer(self, value: str) -> "Self":
        return self._set(server=value)

    def setConnectTimeout(self, value: float) -> "Self":
        return self._set(connectTimeout=value)

    def setModelName(self, value: str) -> "Self":
        return self._set(modelName=value)

    def setOverwrite(self, value: bool) -> "Self":
        return self._set(overwrite=value)

    def setTlsCa(self, value: str) -> "Self":
        return self._set(tlsCa=value)

    def setTlsCert(self, value: str) -> "Self":
        return self._set(tlsCert=value)

    def setTlsKey(self, value: str) -> "Self":
        return self._set(tlsKey=value)

    def setTokenFile(self, value: str) -> "Self":
        return self._set(tokenFile=value)

    def setInsecure(self, value: bool) -> "Self":
        return self._set(insecure=value)

    def setRegParam(self, value: float) -> "Self":
        """Strength λ of the penalty λ/2 · Σ w² on the layers' kernels, not their biases."""
        return self._set(regParam=value)

    def setElasticNetParam(self, value: float) -> "Self":
        """Anything but 0 is refused: the penalty is L2 alone."""
        return self._set(elasticNetParam=value)

    def setStandardization(self, value: bool) -> "Self":
        return self._set(standardization=value)

    def setHandleInvalid(self, value: str) -> "Self":
        return self._set(handleInvalid=value)

    def setWeightCol(self, value: str) -> "Self":
        return self._set(weightCol=value)

    def setValidationIndicatorCol(self, value: str) -> "Self":
        """A column of booleans: true rows are not trained, but tell when to stop, see `patience` and `tol`."""
        return self._set(validationIndicatorCol=value)

    def setPatience(self, value: int) -> "Self":
        return self._set(patience=value)

    def setTol(self, value: float) -> "Self":
        return self._set(tol=value)


class ParamdClassifier(
    _ParamdEstimator,
    _JavaProbabilisticClassifier["ParamdClassificationModel"],
    _ProbabilisticClassifierParams,
    JavaMLReadable["ParamdClassifier"],
):
    """A network that tells classes, trained by one worker a partition. Takes its parameters by name."""

    def __init__(self, **params):
        super().__init__("paramd.spark.ParamdClassifier", **params)

    def _create_model(self, java_model) -> "ParamdClassificationModel":
        return ParamdClassificationModel(java_model)


class _ParamdRegressionParams(HasFeaturesCol, HasLabelCol, HasPredictionCol):
    labelCols: Param[List[str]] = Param(
        Params._dummy(),
        "labelCols",
        "columns of several outputs at once, whose predictions are a vector in this order; none: labelCol alone",
        typeConverter=TypeConverters.toListString,
    )

    def __init__(self, *args):
        super().__init__(*args)
        self._setDefault(labelCols=[])

    def getLabelCols(self) -> List[str]:
        return self.getOrDefault(self.labelCols)


class ParamdRegressor(
    _ParamdEstimator,
    JavaEstimator["ParamdRegressionModel"],
    _ParamdRegressionParams,
    JavaMLReadable["ParamdRegressor"],
):
    """A network that tells numbers, one a row or several, trained likewise. Takes its parameters by name."""

    def __init__(self, **params):
        super().__init__("paramd.spark.ParamdRegressor", **params)

    def _create_model(self, java_model) -> "ParamdRegressionModel":
        return ParamdRegressionModel(java_model)

    def setFeaturesCol(self, value: str) -> "Self":
        return self._set(featuresCol=value)

    def setLabelCol(self, value: str) -> "Self":
        return self._set(labelCol=value)

    def setLabelCols(self, value: List[str]) -> "Self":
        return self._set(labelCols=value)

    def setPredictionCol(self, value: str) -> "Self":
        return self._set(predictionCol=value)


class ParamdTrainingSummary(JavaWrapper):
    """How a fit went."""

    def __str__(self) -> str:
        return self._call_java("toString")

    @property
    def numWorkers(self) -> int:
        """Tasks that trained, one a partition that had rows."""
        return self._call_java("numWorkers")

    @property
    def rows(self) -> int:
        """In these partitions."""
        return self._call_java("rows")

    @property
    def updates(self) -> int:
        """Commits applied to the center."""
        return self._call_java("updates")

    @property
    def trainingTimeSeconds(self) -> float:
        """From the first worker's join to the last commit."""
        return self._call_java("trainingTimeSeconds")

    @property
    def meanStaleness(self) -> float:
        return self._call_java("meanStaleness")

    @property
    def stalenessHistogram(self) -> List[int]:
        """Commits with staleness i; the last entry holds all larger ones too."""
        return self._call_java("stalenessHistogram")

    @property
    def totalIterations(self) -> int:
        """Epochs that were trained."""
        return self._call_java("totalIterations")

    @property
    def accuracy(self) -> float:
        """Of the last epoch's minibatches, as they were trained; NaN for a regression."""
        return self._call_java("accuracy")

    @property
    def objectiveHistory(self) -> List[float]:
        """Each epoch's mean loss, as its minibatches were trained."""
        return self._call_java("objectiveHistory")

    @property
    def accuracyHistory(self) -> List[float]:
        """Likewise the part of rows whose class was right; empty for a regression."""
        return self._call_java("accuracyHistory")

    @property
    def validationHistory(self) -> List[float]:
        """Likewise the mean loss of the rows for validation at the end of the epoch; empty without such rows."""
        return self._call_java("validationHistory")

    @property
    def history(self) -> DataFrame:
        """Each worker's minibatches: worker, step, epoch, timeSeconds, loss, accuracy. Of a model that was not loaded."""
        return self._call_java("history")

    @property
    def averagedHistory(self) -> DataFrame:
        """The mean over workers, step by step: step, epoch, timeSeconds, loss, accuracy. Likewise."""
        return self._call_java("averagedHistory")


class ParamdClassificationEvaluation(JavaWrapper):
    """How right a model is about rows with labels."""

    def __str__(self) -> str:
        return self._call_java("toString")

    @property
    def predictions(self) -> DataFrame:
        """The rows with what the model adds."""
        return self._call_java("predictions")

    @property
    def accuracy(self) -> float:
        return self._call_java("accuracy")

    @property
    def weightedPrecision(self) -> float:
        return self._call_java("weightedPrecision")

    @property
    def weightedRecall(self) -> float:
        return self._call_java("weightedRecall")

    @property
    def weightedFMeasure(self) -> float:
        return self._call_java("weightedFMeasure")


class _ParamdModel(_ParamdParams, JavaMLWritable, HasTrainingSummary[ParamdTrainingSummary]):
    @property
    def layers(self) -> List[int]:
        """Units of each layer, from input to output."""
        return self._call_java("layers")

    @property
    def weights(self) -> Vector:
        """Each layer's kernel [inputs, outputs], row-major, then its bias [outputs]; of features as they were scaled."""
        return self._call_java("weights")

    @property
    def _summaryCls(self) -> type:
        return ParamdTrainingSummary

    def setHandleInvalid(self, value: str) -> "Self":
        return self._set(handleInvalid=value)


class ParamdClassificationModel(
    _JavaProbabilisticClassificationModel[Vector],
    _ParamdModel,
    _ProbabilisticClassifierParams,
    JavaMLReadable["ParamdClassificationModel"],
):
    """A network that tells classes. Applying it needs neither a daemon nor native code."""

    def evaluate(self, dataset: DataFrame) -> ParamdClassificationEvaluation:
        self._transfer_params_to_java()
        return ParamdClassificationEvaluation(self._call_java("evaluate", dataset))


class ParamdRegressionModel(
    JavaModel,
    _ParamdModel,
    _ParamdRegressionParams,
    JavaMLReadable["ParamdRegressionModel"],
):
    """A network that tells numbers. Applying it needs neither a daemon nor native code."""

    @property
    def numFeatures(self) -> int:
        return self._call_java("numFeatures")

    @property
    def numOutputs(self) -> int:
        return self._call_java("numOutputs")

    def predict(self, value: Vector) -> float:
        """Of a model of one output."""
        return self._call_java("predict", value)
