package paramd.spark

import org.apache.spark.ml.attribute.AttributeGroup
import org.apache.spark.ml.param.Param
import org.apache.spark.ml.param.shared.HasFeaturesCol
import org.apache.spark.ml.util.DefaultParamsWritable
import org.apache.spark.sql.Dataset
import org.slf4j.LoggerFactory

import scala.util.Using

/**
 * Trains a network of fully connected layers with ReLU between them, one worker a partition, through a daemon that lives
 * as long as the fit, unless `server` names one.
 *
 * @tparam E the estimator itself: Java has no type of `this`
 */
private[spark] trait ParamdEstimator[E <: ParamdEstimator[E]] extends ParamdParams with HasFeaturesCol with DefaultParamsWritable {
  private var initial = Option.empty[ParamdModel]

  private def tell[T](param: Param[T], value: T): E = set(param, value).asInstanceOf[E]

  def setAlgorithm(value: String): E = tell(algorithm, value)
  def setConsistency(value: String): E = tell(consistency, value)
  def setHyperparameters(value: Array[String]): E = tell(hyperparameters, value)
  def setNumWorkers(value: Int): E = tell(numWorkers, value)
  def setParallelismFactor(value: Int): E = tell(parallelismFactor, value)
  def setCommunicationWindow(value: Int): E = tell(communicationWindow, value)
  def setShuffle(value: Boolean): E = tell(shuffle, value)
  def setBatchSize(value: Int): E = tell(batchSize, value)
  def setHiddenLayers(value: Array[Int]): E = tell(hiddenLayers, value)

  /** Epochs, passes of each worker over its partition; 0: as many as it takes for little data, and at least 10. */
  def setMaxIter(value: Int): E = tell(maxIter, value)

  /** Learning rate; if it is not set, one that suits solver and algorithm. */
  def setStepSize(value: Double): E = tell(stepSize, value)
  def setSolver(value: String): E = tell(solver, value)

  /** Strength λ of the penalty λ/2 · Σ w² on the layers' kernels, not their biases. */
  def setRegParam(value: Double): E = tell(regParam, value)

  /** Anything but 0 is refused: the penalty is L2 alone. */
  def setElasticNetParam(value: Double): E = tell(elasticNetParam, value)

  /** Whether features are brought to deviation 1 first, and if they are dense to mean 0; the model does it likewise. */
  def setStandardization(value: Boolean): E = tell(standardization, value)
  def setHandleInvalid(value: String): E = tell(handleInvalid, value)
  def setWeightCol(value: String): E = tell(weightCol, value)

  /** A column of booleans: true rows are not trained, but tell when to stop, see `patience` and `tol`. */
  def setValidationIndicatorCol(value: String): E = tell(validationIndicatorCol, value)
  def setPatience(value: Int): E = tell(patience, value)
  def setTol(value: Double): E = tell(tol, value)
  def setSeed(value: Long): E = tell(seed, value)
  def setServer(value: String): E = tell(server, value)
  def setConnectTimeout(value: Double): E = tell(connectTimeout, value)
  def setModelName(value: String): E = tell(modelName, value)
  def setOverwrite(value: Boolean): E = tell(overwrite, value)
  def setTlsCa(value: String): E = tell(tlsCa, value)
  def setTlsCert(value: String): E = tell(tlsCert, value)
  def setTlsKey(value: String): E = tell(tlsKey, value)
  def setTokenFile(value: String): E = tell(tokenFile, value)
  def setInsecure(value: Boolean): E = tell(insecure, value)

  private[spark] def setInitial(model: Option[ParamdModel]): E = {
    initial = model
    this.asInstanceOf[E]
  }
  private[spark] def initialModel: Option[ParamdModel] = initial

  /** @param classes as the label's metadata tell; of a classifier */
  private[spark] def fitted(
      dataset: Dataset[_],
      labels: Seq[String],
      loss: String,
      classes: Option[Int]
  ): (DenseNetwork, ParamdTrainingSummary) = {
    FitSpec.check(this, loss)
    val context = dataset.sparkSession.sparkContext
    val workers = if ($(numWorkers) > 0) $(numWorkers) else context.defaultParallelism
    val fit = new Fit(context, this, s"$uid: $workers workers")
    fit.run {
      val rows = new TrainingRows(
        ParamdModel.valid(dataset, this),
        TrainingColumns($(featuresCol), labels, named(weightCol), named(validationIndicatorCol)),
        Math.multiplyExact(workers, $(parallelismFactor)),
        $(shuffle)
      )
      Using.resource(rows) { rows =>
        val data = DataSummary(rows.rdd, loss == FitSpec.Softmax)
        val plan = planOf(dataset, data, labels, loss, classes)
        val (center, summary) = fit.train(plan, initial.map(_.network.parameters), rows.rdd)
        for (warning <- data.warning(summary.accuracy)) ParamdEstimator.Log.warn("{}: {}", uid: Any, warning: Any)
        (new DenseNetwork(plan.spec.layers.toArray, center, plan.input, plan.output), summary)
      }
    }
  }

  private def named(column: Param[String]) = get(column).filter(_.nonEmpty)

  private def planOf(dataset: Dataset[_], data: DataSummary, labels: Seq[String], loss: String, classes: Option[Int]) = {
    if (data.rows == 0) {
      throw new IllegalArgumentException(
        if (data.validationRows == 0) "nothing to train on: the data has no rows"
        else s"nothing to train on: all ${data.validationRows} rows are for validation"
      )
    }
    val features = math.max(data.features, AttributeGroup.fromStructField(dataset.schema($(featuresCol))).size)
    val outputs = if (loss == FitSpec.Softmax) data.classesOf(classes, labels.head) else labels.length
    val spec = FitSpec.of(this, DataShape(features, outputs, data.rowsOfWorker, data.sparseRow), loss)
    for (model <- initial if model.network.layers.toSeq != spec.layers) {
      throw new IllegalArgumentException(
        s"the initial model has layers ${model.network.layers.mkString("-")}, but this fit ${spec.layers.mkString("-")}: " +
          "set hiddenLayers as they were, and give it data of the same features and classes"
      )
    }
    val started = initial.map(_.network)
    TrainingPlan(
      spec,
      started.fold(if ($(standardization)) data.standardization else Scaling.None)(_.input),
      started.fold(if (loss == FitSpec.Softmax) Scaling.None else data.labelStandardization)(_.output),
      named(weightCol).map(column => 1 / data.meanWeightOf(column)),
      $(patience),
      $(tol)
    )
  }
}

private[spark] object ParamdEstimator {
  private val Log = LoggerFactory.getLogger("paramd.spark.ParamdEstimator")
}
