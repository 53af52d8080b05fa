package paramd.spark

import org.apache.spark.ml.Model
import org.apache.spark.ml.linalg.{Vector, Vectors}
import org.apache.spark.ml.param.ParamMap
import org.apache.spark.ml.util.{DefaultParamsReadable, MLReadable, MLReader, MLWriter}
import org.apache.spark.sql.{DataFrame, Dataset}
import org.apache.spark.sql.functions.{col, udf}
import org.apache.spark.sql.types.StructType

/** A network that tells numbers. Applying it needs neither a daemon nor native code. */
final class ParamdRegressionModel private[spark] (
    override val uid: String,
    private[spark] val network: DenseNetwork,
    summary_ : Option[ParamdTrainingSummary]
) extends Model[ParamdRegressionModel]
    with ParamdRegressionParams
    with ParamdModel {

  // Not for the tasks that apply the model: null there.
  @transient private val kept = summary_

  /** Without a network, which [[ParamdRegressionModel.read]] adds. */
  private[spark] def this(uid: String) = this(uid, null, None)

  // Python finds what a class itself declares.
  override def layers: Array[Int] = super.layers
  override def weights: Vector = super.weights
  override def hasSummary: Boolean = super.hasSummary
  override def summary: ParamdTrainingSummary = super.summary

  override private[spark] def trainingSummary: Option[ParamdTrainingSummary] = Option(kept).flatten

  def setFeaturesCol(value: String): this.type = set(featuresCol, value)
  def setPredictionCol(value: String): this.type = set(predictionCol, value)

  def numFeatures: Int = network.features
  def numOutputs: Int = network.layers.last

  /** Of a model of one output. */
  def predict(features: Vector): Double = outputs(features)(0)

  /** All outputs, in the order of labelCols. */
  def predictAll(features: Vector): Vector = Vectors.dense(outputs(features))

  override def transform(dataset: Dataset[_]): DataFrame = {
    transformSchema(dataset.schema)
    val predicted =
      if ($(labelCols).isEmpty) udf((features: Vector) => predict(features))
      else udf((features: Vector) => predictAll(features))
    ParamdModel.valid(dataset, this).withColumn($(predictionCol), predicted.asNonNullable()(col($(featuresCol))))
  }

  override def transformSchema(schema: StructType): StructType = predictedSchema(schema)

  override def copy(extra: ParamMap): ParamdRegressionModel =
    copyValues(new ParamdRegressionModel(uid, network, trainingSummary), extra).setParent(parent)

  override def write: MLWriter = new SavedNetwork.Writer(super.write, network, trainingSummary)

  override def toString: String =
    s"ParamdRegressionModel: uid=$uid, layers=${Option(network).map(_.layers.mkString("-")).getOrElse("none")}"
}

object ParamdRegressionModel extends MLReadable[ParamdRegressionModel] {
  private object Shell extends DefaultParamsReadable[ParamdRegressionModel]

  override def read: MLReader[ParamdRegressionModel] = new SavedNetwork.Reader[ParamdRegressionModel](
    Shell.read,
    (shell, network, summary) => shell.copyValues(new ParamdRegressionModel(shell.uid, network, summary))
  )

  override def load(path: String): ParamdRegressionModel = super.load(path)
}
