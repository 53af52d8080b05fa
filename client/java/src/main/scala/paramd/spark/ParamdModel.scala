package paramd.spark

import org.apache.spark.ml.linalg.{Vector, Vectors}
import org.apache.spark.ml.param.shared.HasFeaturesCol
import org.apache.spark.ml.util.DefaultParamsWritable
import org.apache.spark.sql.{DataFrame, Dataset}
import org.apache.spark.sql.functions.{col, udf}

/** A trained network. Applying it needs neither a daemon nor native code. */
private[spark] trait ParamdModel extends ParamdParams with HasFeaturesCol with DefaultParamsWritable {
  private[spark] def network: DenseNetwork
  private[spark] def trainingSummary: Option[ParamdTrainingSummary]

  /** Units of each layer, from input to output. */
  def layers: Array[Int] = network.layers.clone()

  /** Each layer's kernel [inputs, outputs], row-major, then its bias [outputs]; of features as they were scaled. */
  def weights: Vector = Vectors.dense(network.parameters.map(_.toDouble))

  def hasSummary: Boolean = trainingSummary.isDefined

  /** Of the fit that made this model. */
  def summary: ParamdTrainingSummary = trainingSummary.getOrElse(
    throw new IllegalStateException(s"model $uid has no training summary: only a model that fit returned has one, and what was saved of it")
  )

  /** What the network puts out, or NaN alone if handleInvalid wants that of such features. */
  private[spark] def outputs(features: Vector): Array[Double] = ParamdModel.invalid(features) match {
    case None if features.size == network.features => network.outputs(features)
    case None =>
      throw new IllegalArgumentException(
        s"column ${$(featuresCol)} has a row of ${features.size} features, but the network was trained with ${network.features}"
      )
    case Some(_) if $(handleInvalid) == "keep" => Array.fill(network.layers.last)(Double.NaN)
    case Some(what) =>
      throw new IllegalArgumentException(
        s"column ${$(featuresCol)} has a row $what: mend such rows, or set handleInvalid to skip, which leaves them out, or " +
          s"to keep, which makes their predictions NaN. The row's features: ${ParamdModel.shown(features)}"
      )
  }
}

private[spark] object ParamdModel {
  private val ShownCharacters = 200

  /** What is wrong with a row's features, or nothing. */
  def invalid(features: Vector): Option[String] =
    if (features == null) Some("that is null")
    else {
      var wrong = Option.empty[String]
      features.foreachActive { (index, value) =>
        if (wrong.isEmpty && !(math.abs(value) <= Float.MaxValue)) wrong = Some(s"whose feature $index is $value")
      }
      wrong
    }

  /** Without the rows that handleInvalid leaves out. */
  def valid(dataset: Dataset[_], params: ParamdParams with HasFeaturesCol): DataFrame =
    if (params.getHandleInvalid != "skip") dataset.toDF()
    else {
      val isValid = udf((features: Vector) => invalid(features).isEmpty)
      dataset.toDF().filter(isValid(col(params.getFeaturesCol)))
    }

  private def shown(features: Vector) = {
    val text = String.valueOf(features)
    if (text.length > ShownCharacters) text.take(ShownCharacters) + "…" else text
  }
}
