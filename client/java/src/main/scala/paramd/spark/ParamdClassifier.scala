package paramd.spark

import java.time.Duration
import java.util.UUID

import org.apache.spark.ml.attribute.AttributeGroup
import org.apache.spark.ml.classification.ProbabilisticClassifier
import org.apache.spark.ml.linalg.Vector
import org.apache.spark.ml.param.ParamMap
import org.apache.spark.ml.util.{DefaultParamsReadable, DefaultParamsWritable, Identifiable}
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.{Dataset, Row}
import org.apache.spark.sql.functions.col
import org.apache.spark.sql.types.DoubleType

import paramd.{Admin, ModelSpec, ParamdException, Security}

import scala.util.Using

/**
 * Trains a network of fully connected layers with ReLU between them, one worker a partition, through a daemon that lives
 * as long as the fit.
 */
final class ParamdClassifier(override val uid: String)
    extends ProbabilisticClassifier[Vector, ParamdClassifier, ParamdClassificationModel]
    with ParamdParams
    with DefaultParamsWritable {

  def this() = this(Identifiable.randomUID("paramd"))

  def setAlgorithm(value: String): this.type = set(algorithm, value)
  def setConsistency(value: String): this.type = set(consistency, value)
  def setHyperparameters(value: Array[String]): this.type = set(hyperparameters, value)
  def setNumWorkers(value: Int): this.type = set(numWorkers, value)
  def setParallelismFactor(value: Int): this.type = set(parallelismFactor, value)
  def setCommunicationWindow(value: Int): this.type = set(communicationWindow, value)
  def setBatchSize(value: Int): this.type = set(batchSize, value)
  def setHiddenLayers(value: Array[Int]): this.type = set(hiddenLayers, value)

  /** Epochs: passes of each worker over its partition. */
  def setMaxIter(value: Int): this.type = set(maxIter, value)

  /** Learning rate; if it is not set, the algorithm's with solver sgd, 0.01 with momentum and 0.001 with adam. */
  def setStepSize(value: Double): this.type = set(stepSize, value)
  def setSolver(value: String): this.type = set(solver, value)
  def setSeed(value: Long): this.type = set(seed, value)
  def setServer(value: String): this.type = set(server, value)
  def setModelName(value: String): this.type = set(modelName, value)
  def setTlsCa(value: String): this.type = set(tlsCa, value)
  def setTlsCert(value: String): this.type = set(tlsCert, value)
  def setTlsKey(value: String): this.type = set(tlsKey, value)
  def setTokenFile(value: String): this.type = set(tokenFile, value)
  def setInsecure(value: Boolean): this.type = set(insecure, value)

  override def copy(extra: ParamMap): ParamdClassifier = defaultCopy(extra)

  override protected def train(dataset: Dataset[_]): ParamdClassificationModel = {
    if ($(maxIter) == 0) throw new IllegalArgumentException("maxIter is 0: set it to the number of epochs, at least 1")
    val layers = (featuresOf(dataset) +: $(hiddenLayers)) :+ getNumClasses(dataset, ParamdClassifier.MaxClasses)
    if (DenseNetwork.parameters(layers) > Int.MaxValue) {
      throw new IllegalArgumentException(
        s"layers ${layers.mkString("-")} have more than 2^31 parameters: use fewer features or smaller hiddenLayers"
      )
    }
    Using.resource(Daemon(dataset.sparkSession.sparkContext, $(server), security, $(insecure))) { daemon =>
      Using.resource(Admin.connect(daemon.address, ParamdClassifier.AdminTimeout, daemon.security)) { admin =>
        val name = if ($(modelName).isEmpty) s"$uid-${UUID.randomUUID()}" else $(modelName)
        create(admin, name, layers)
        try fitted(admin, name, layers, partitions(dataset).mapPartitionsWithIndex(task(daemon, name, layers)))
        finally if ($(modelName).isEmpty && $(server).nonEmpty) admin.deleteModel(name) // else its daemon ends
      }
    }
  }

  /** The features column's size, as its metadata say, or else its first row. */
  private def featuresOf(dataset: Dataset[_]): Int = {
    val size = AttributeGroup.fromStructField(dataset.schema($(featuresCol))).size
    if (size > 0) return size
    val first = dataset.select($(featuresCol)).head(1)
    if (first.isEmpty) throw new IllegalArgumentException("nothing to train on: the data has no rows")
    first.head.getAs[Vector](0).size
  }

  private def create(admin: Admin, name: String, layers: Array[Int]): Unit = {
    val spec = new ModelSpec(name).algorithm($(algorithm))
    Using.resource(TrainingTask.network(layers, $(solver), learningRate, $(seed)))(_.describe(spec))
    if ($(consistency).nonEmpty) spec.consistency($(consistency))
    for ((key, value) <- $(hyperparameters).flatMap(ParamdParams.parse(_))) spec.hyperparameter(key, value)
    if ($(communicationWindow) > 0) spec.hyperparameter("communication_window", $(communicationWindow))
    learningRate.foreach(spec.hyperparameter("learning_rate", _))
    if ($(modelName).nonEmpty && exists(admin, name)) {
      throw new IllegalArgumentException(
        s"the daemon already has a model $name: choose another modelName, or delete it with paramctl delete $name"
      )
    }
    admin.createModel(spec)
  }

  private def exists(admin: Admin, name: String): Boolean =
    try {
      admin.model(name)
      true
    } catch {
      case e: ParamdException if e.code == ParamdException.Code.NOT_FOUND => false
    }

  private def learningRate: Option[Double] =
    get(stepSize).orElse(Map("momentum" -> 0.01, "adam" -> 0.001).get($(solver)))

  private def partitions(dataset: Dataset[_]): RDD[(Vector, Double)] = {
    val data = dataset.select(col($(featuresCol)), col($(labelCol)).cast(DoubleType))
    val workers = if ($(numWorkers) > 0) $(numWorkers) else dataset.sparkSession.sparkContext.defaultParallelism
    val wanted = Math.multiplyExact(workers, $(parallelismFactor))
    val divided = if (data.rdd.getNumPartitions < wanted) data.repartition(wanted) else data.coalesce(wanted)
    divided.rdd.map(ParamdClassifier.example)
  }

  private def security: Security = {
    val security = new Security()
    if ($(tlsCa).nonEmpty) security.tlsCa($(tlsCa))
    if ($(tlsCert).nonEmpty) security.tlsCert($(tlsCert))
    if ($(tlsKey).nonEmpty) security.tlsKey($(tlsKey))
    if ($(tokenFile).nonEmpty) security.tokenFile($(tokenFile))
    if ($(insecure)) security.insecure(true)
    security
  }

  private def task(daemon: Daemon, name: String, layers: Array[Int]) =
    new TrainingTask(daemon.address, daemon.security, name, layers, $(solver), learningRate, $(seed), $(batchSize), $(maxIter))

  private def fitted(admin: Admin, name: String, layers: Array[Int], tasks: RDD[Long]): ParamdClassificationModel = {
    val rows = tasks.collect()
    val info = admin.model(name)
    if (info.version == 0) {
      throw new IllegalStateException(
        s"no worker of model $name committed anything (${rows.sum} rows in ${rows.length} partitions): is the data empty?"
      )
    }
    val center = new Array[Float](DenseNetwork.parameters(layers).toInt)
    admin.pull(name, center)
    val summary = new ParamdTrainingSummary(
      rows.count(_ > 0),
      rows.sum,
      info,
      admin.stalenessHistogram(name),
      admin.history(name, false),
      admin.history(name, true)
    )
    new ParamdClassificationModel(uid, new DenseNetwork(layers, center), summary)
  }
}

object ParamdClassifier extends DefaultParamsReadable[ParamdClassifier] {
  private val MaxClasses = 100000
  private val AdminTimeout = Duration.ofSeconds(60)

  private def example(row: Row): (Vector, Double) = {
    if (row.isNullAt(0) || row.isNullAt(1)) {
      throw new IllegalArgumentException("a row has null for features or label: drop such rows, or fill them in")
    }
    (row.getAs[Vector](0), row.getDouble(1))
  }

  override def load(path: String): ParamdClassifier = super.load(path)
}
