package paramd.spark

import org.apache.spark.ml.classification.ProbabilisticClassificationModel
import org.apache.spark.ml.linalg.{DenseVector, Vector, Vectors}
import org.apache.spark.ml.param.ParamMap
import org.apache.spark.ml.util.{DefaultParamsReadable, MLReadable, MLReader, MLWriter}
import org.apache.spark.sql.{DataFrame, Dataset}

/** A network that tells classes. Applying it needs neither a daemon nor native code. */
final class ParamdClassificationModel private[spark] (
    override val uid: String,
    private[spark] val network: DenseNetwork,
    summary_ : Option[ParamdTrainingSummary]
) extends ProbabilisticClassificationModel[Vector, ParamdClassificationModel]
    with ParamdModel {

  // Not for the tasks that apply the model: null there.
  @transient private val kept = summary_

  /** Without a network, which [[ParamdClassificationModel.read]] adds. */
  private[spark] def this(uid: String) = this(uid, null, None)

  // Python finds what a class itself declares.
  override def layers: Array[Int] = super.layers
  override def weights: Vector = super.weights
  override def hasSummary: Boolean = super.hasSummary
  override def summary: ParamdTrainingSummary = super.summary

  override private[spark] def trainingSummary: Option[ParamdTrainingSummary] = Option(kept).flatten

  override def numFeatures: Int = network.features
  override def numClasses: Int = network.classes

  /** How right it is about rows with labels. */
  def evaluate(dataset: Dataset[_]): ParamdClassificationEvaluation =
    new ParamdClassificationEvaluation(transform(dataset), $(labelCol), $(predictionCol))

  override def transform(dataset: Dataset[_]): DataFrame = super.transform(ParamdModel.valid(dataset, this))

  override def predictRaw(features: Vector): Vector = Vectors.dense(outputs(features))

  override protected def raw2probabilityInPlace(rawPrediction: Vector): Vector = rawPrediction match {
    case vector: DenseVector =>
      val values = vector.values
      val largest = values.max
      var sum = 0.0
      for (i <- values.indices) {
        values(i) = math.exp(values(i) - largest)
        sum += values(i)
      }
      for (i <- values.indices) values(i) /= sum
      vector
    case other => throw new IllegalArgumentException(s"raw predictions of model $uid are dense, this one is $other")
  }

  // Of what is NaN there is no largest entry.
  override protected def raw2prediction(rawPrediction: Vector): Double =
    if (rawPrediction(0).isNaN) Double.NaN else super.raw2prediction(rawPrediction)

  override protected def probability2prediction(probability: Vector): Double =
    if (probability(0).isNaN) Double.NaN else super.probability2prediction(probability)

  override def copy(extra: ParamMap): ParamdClassificationModel =
    copyValues(new ParamdClassificationModel(uid, network, trainingSummary), extra).setParent(parent)

  override def write: MLWriter = new SavedNetwork.Writer(super.write, network, trainingSummary)

  override def toString: String =
    s"ParamdClassificationModel: uid=$uid, layers=${Option(network).map(_.layers.mkString("-")).getOrElse("none")}"
}

object ParamdClassificationModel extends MLReadable[ParamdClassificationModel] {
  private object Shell extends DefaultParamsReadable[ParamdClassificationModel]

  override def read: MLReader[ParamdClassificationModel] = new SavedNetwork.Reader[ParamdClassificationModel](
    Shell.read,
    (shell, network, summary) => shell.copyValues(new ParamdClassificationModel(shell.uid, network, summary))
  )

  override def load(path: String): ParamdClassificationModel = super.load(path)
}
