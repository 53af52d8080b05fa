package paramd.spark

import org.apache.spark.ml.attribute.{Attribute, AttributeGroup, BinaryAttribute, NominalAttribute}
import org.apache.spark.ml.classification.ProbabilisticClassifier
import org.apache.spark.ml.linalg.Vector
import org.apache.spark.ml.param.ParamMap
import org.apache.spark.ml.util.{DefaultParamsReadable, DefaultParamsWritable, Identifiable}
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.Dataset

import paramd.ModelSpec

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
  def setShuffle(value: Boolean): this.type = set(shuffle, value)
  def setBatchSize(value: Int): this.type = set(batchSize, value)
  def setHiddenLayers(value: Array[Int]): this.type = set(hiddenLayers, value)

  /** Epochs: passes of each worker over its partition. */
  def setMaxIter(value: Int): this.type = set(maxIter, value)

  /** Learning rate; if it is not set, the algorithm's with solver sgd, 0.01 with momentum and 0.001 with adam. */
  def setStepSize(value: Double): this.type = set(stepSize, value)
  def setSolver(value: String): this.type = set(solver, value)
  def setSeed(value: Long): this.type = set(seed, value)
  def setServer(value: String): this.type = set(server, value)
  def setConnectTimeout(value: Double): this.type = set(connectTimeout, value)
  def setModelName(value: String): this.type = set(modelName, value)
  def setOverwrite(value: Boolean): this.type = set(overwrite, value)
  def setTlsCa(value: String): this.type = set(tlsCa, value)
  def setTlsCert(value: String): this.type = set(tlsCert, value)
  def setTlsKey(value: String): this.type = set(tlsKey, value)
  def setTokenFile(value: String): this.type = set(tokenFile, value)
  def setInsecure(value: Boolean): this.type = set(insecure, value)

  override def copy(extra: ParamMap): ParamdClassifier = defaultCopy(extra)

  override protected def train(dataset: Dataset[_]): ParamdClassificationModel = {
    if ($(maxIter) == 0) throw new IllegalArgumentException("maxIter is 0: set it to the number of epochs, at least 1")
    if ($(modelName).nonEmpty && $(server).isEmpty) {
      throw new IllegalArgumentException(
        "modelName without server: the fit's own daemon ends with it, and its models too. Name a daemon that runs, or " +
          "save the model that fit returns"
      )
    }
    val context = dataset.sparkSession.sparkContext
    val workers = if ($(numWorkers) > 0) $(numWorkers) else context.defaultParallelism
    val columns = TrainingColumns($(featuresCol), Seq($(labelCol)))
    val fit = new Fit(context, this, s"$uid: $workers workers, ${$(maxIter)} epochs")
    fit.run {
      val rows = new TrainingRows(dataset, columns, Math.multiplyExact(workers, $(parallelismFactor)), $(shuffle))
      Using.resource(rows) { rows =>
        val layers = layersOf(dataset, rows.rdd)
        if (DenseNetwork.parameters(layers) > Int.MaxValue) {
          throw new IllegalArgumentException(
            s"layers ${layers.mkString("-")} have more than 2^31 parameters: use fewer features or smaller hiddenLayers"
          )
        }
        val trained = fit.train(
          spec(_, layers),
          DenseNetwork.parameters(layers).toInt,
          (daemon, name) => rows.rdd.mapPartitionsWithIndex(task(daemon, name, layers))
        )
        new ParamdClassificationModel(uid, new DenseNetwork(layers, trained.center), trained.summary)
      }
    }
  }

  /** From one pass over the rows, as the labels' metadata may know of more classes than there are rows of. */
  private def layersOf(dataset: Dataset[_], rows: RDD[TrainingRow]): Array[Int] = {
    val features = AttributeGroup.fromStructField(dataset.schema($(featuresCol))).size
    val classes = Attribute.fromStructField(dataset.schema($(labelCol))) match {
      case nominal: NominalAttribute => nominal.getNumValues
      case _: BinaryAttribute => Some(2)
      case _ => None
    }
    val seen = rows.mapPartitions(rows => Iterator.single(ParamdClassifier.seen(rows))).collect()
    if (seen.forall(_.features < 0)) throw new IllegalArgumentException("nothing to train on: the data has no rows")
    val first = if (features >= 0) features else seen.map(_.features).max
    (first +: $(hiddenLayers)) :+ classes.getOrElse(seen.map(_.label).max + 1)
  }

  private def spec(name: String, layers: Array[Int]): ModelSpec = {
    val spec = new ModelSpec(name).algorithm($(algorithm))
    Using.resource(TrainingTask.network(layers, $(solver), learningRate, $(seed)))(_.describe(spec))
    if ($(consistency).nonEmpty) spec.consistency($(consistency))
    for ((key, value) <- $(hyperparameters).flatMap(ParamdParams.parse(_))) spec.hyperparameter(key, value)
    if ($(communicationWindow) > 0) spec.hyperparameter("communication_window", $(communicationWindow))
    learningRate.foreach(spec.hyperparameter("learning_rate", _))
    spec
  }

  private def learningRate: Option[Double] =
    get(stepSize).orElse(Map("momentum" -> 0.01, "adam" -> 0.001).get($(solver)))

  private def task(daemon: Daemon, name: String, layers: Array[Int]) =
    new TrainingTask(daemon.address, daemon.security, name, layers, $(solver), learningRate, $(seed), $(batchSize), $(maxIter))
}

object ParamdClassifier extends DefaultParamsReadable[ParamdClassifier] {
  private val MaxClasses = 100000

  /** Of a partition: features of a row, −1 without one, and the largest label. */
  private final case class Seen(features: Int, label: Int)

  private def seen(rows: Iterator[TrainingRow]): Seen =
    rows.foldLeft(Seen(-1, -1)) { (seen, row) =>
      val label = row.labels(0)
      if (!(label >= 0 && label < MaxClasses && label == label.toInt)) {
        throw new BadRowException(
          s"label $label is no class: labels are integers from 0 to ${MaxClasses - 1}; StringIndexer makes such"
        )
      }
      Seen(row.features.size, math.max(seen.label, label.toInt))
    }

  override def load(path: String): ParamdClassifier = super.load(path)
}
