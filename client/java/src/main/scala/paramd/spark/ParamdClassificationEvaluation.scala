package paramd.spark

import org.apache.spark.mllib.evaluation.MulticlassMetrics
import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.functions.col
import org.apache.spark.sql.types.DoubleType

/**
 * How right a model is about rows with labels; computed when it is first asked for. Not thread-safe.
 *
 * @param predictions the rows with what the model adds
 */
final class ParamdClassificationEvaluation private[spark] (val predictions: DataFrame, labelCol: String, predictionCol: String) {
  @transient private lazy val metrics = new MulticlassMetrics(
    predictions.select(col(predictionCol), col(labelCol).cast(DoubleType)).rdd.map(row => (row.getDouble(0), row.getDouble(1)))
  )

  /** Part of the rows whose class is right. */
  def accuracy: Double = metrics.accuracy
  def weightedPrecision: Double = metrics.weightedPrecision
  def weightedRecall: Double = metrics.weightedRecall
  def weightedFMeasure: Double = metrics.weightedFMeasure
  def labels: Array[Double] = metrics.labels
  def precisionByLabel: Array[Double] = labels.map(metrics.precision)
  def recallByLabel: Array[Double] = labels.map(metrics.recall)

  override def toString: String =
    f"accuracy ${accuracy * 100}%.2f %%, precision $weightedPrecision%.4f, recall $weightedRecall%.4f, F1 $weightedFMeasure%.4f"
}
