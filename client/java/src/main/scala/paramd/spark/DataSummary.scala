package paramd.spark

import org.apache.spark.mllib.linalg.{DenseVector => MllibDense, Vectors => MllibVectors}
import org.apache.spark.mllib.stat.MultivariateOnlineSummarizer
import org.apache.spark.rdd.RDD

import scala.collection.mutable

/**
 * What a fit needs to know of its rows before it begins, from one pass over them. Rows for validation count only where
 * it says so. Not thread-safe.
 */
private[spark] final class DataSummary private (classify: Boolean) extends Serializable {
  private val featureStatistics = new MultivariateOnlineSummarizer
  private val labelStatistics = new MultivariateOnlineSummarizer
  private val rowsOfClass = mutable.Map.empty[Int, Long]
  private var nonzeros = 0L
  private var weights = 0.0
  private var largest = 0L
  private var validated = 0L
  private var size = -1

  /** Of each row; of rows for validation, too. −1: there is no row. */
  def features: Int = size

  /** Rows that are trained. */
  def rows: Long = featureStatistics.count

  /** Of the partition that has most of them. */
  def rowsOfWorker: Long = largest

  def validationRows: Long = validated

  /** As many as metadata tell; else 1 + the largest label, at least 2. */
  def classesOf(told: Option[Int], column: String): Int = {
    val largest = rowsOfClass.keys.max
    for (classes <- told if largest >= classes) {
      throw new IllegalArgumentException(
        s"column $column has label $largest, but its metadata tell of $classes classes: index the labels again"
      )
    }
    told.getOrElse(math.max(2, largest + 1))
  }

  /** What to say of a fit whose accuracy is no better than that of always telling the most frequent class. */
  def warning(accuracy: Double): Option[String] = {
    val most = rowsOfClass.values.maxOption.fold(0.0)(_.toDouble / rows)
    Option.when(accuracy <= most && most < 1)(
      f"the network ends no better (accuracy $accuracy%.3f) than always telling the most frequent class ($most%.3f). The " +
        "features may say nothing about the label; if they do, train more epochs (maxIter), with standardization, or a lower stepSize"
    )
  }

  def meanWeightOf(column: String): Double = {
    if (weights == 0) throw new IllegalArgumentException(s"all weights of column $column are 0: nothing would be trained")
    weights / rows
  }

  /**
   * To mean 0 and deviation 1, or less where a value would be too far out. Sparse data are not shifted, and stay sparse:
   * what is 0 stays 0.
   */
  def standardization: Scaling = scaling(featureStatistics, shift = sparseRow.isEmpty)

  /** Of sparse data, the mean number of a row's features that are not 0. Few features are trained as dense ones anyway. */
  def sparseRow: Option[Double] =
    Option.when(size >= SpooledPartition.SparseFeatures && nonzeros < DataSummary.Sparse * rows * size)(nonzeros.toDouble / rows)

  /** The same of a regression's labels. */
  def labelStandardization: Scaling = scaling(labelStatistics, shift = true)

  private def scaling(statistics: MultivariateOnlineSummarizer, shift: Boolean) = {
    val (variance, least, most) = (statistics.variance.toArray, statistics.min.toArray, statistics.max.toArray)
    val shifts = if (shift) statistics.mean.toArray else Array.empty[Double]
    val scales = Array.tabulate(variance.length) { i =>
      val center = if (shift) shifts(i) else 0
      val farthest = math.max(most(i) - center, center - least(i))
      if (variance(i) > 0) 1 / math.max(math.sqrt(variance(i)), farthest / DataSummary.Farthest) else 0
    }
    Scaling(shifts, scales)
  }

  private def add(row: TrainingRow): Unit = {
    if (size < 0) size = row.features.size
    if (row.features.size != size) throw DataSummary.differ(row.features.size, size)
    if (classify) checkClass(row.labels(0))
    if (row.validation) {
      validated += 1
      if (classify) rowsOfClass.getOrElseUpdate(row.labels(0).toInt, 0)
    } else {
      featureStatistics.add(MllibVectors.fromML(row.features))
      nonzeros += row.features.numNonzeros
      weights += row.weight
      if (classify) rowsOfClass.updateWith(row.labels(0).toInt)(rows => Some(rows.getOrElse(0L) + 1))
      else labelStatistics.add(new MllibDense(row.labels))
    }
  }

  private def checkClass(label: Double): Unit =
    if (!(label >= 0 && label < DataSummary.MaxClasses && label == label.toInt)) {
      throw new BadRowException(
        s"label $label is no class: labels are integers from 0 to ${DataSummary.MaxClasses - 1}; StringIndexer makes such"
      )
    }

  private def merge(other: DataSummary): DataSummary =
    if (other.size < 0) this
    else if (size < 0) other
    else {
      if (size != other.size) throw DataSummary.differ(other.size, size)
      featureStatistics.merge(other.featureStatistics)
      labelStatistics.merge(other.labelStatistics)
      for ((label, rows) <- other.rowsOfClass) rowsOfClass.updateWith(label)(own => Some(own.getOrElse(0L) + rows))
      nonzeros += other.nonzeros
      weights += other.weights
      largest = math.max(largest, other.largest)
      validated += other.validated
      this
    }
}

private[spark] object DataSummary {
  private val MaxClasses = 100000
  // Of the values, that are not 0 at most in data which are worth being kept sparse.
  private val Sparse = 0.1
  // From 0, that a scaled value is. A feature that a few rows alone have would else be large in them: in images it makes
  // the network worse, and a deep one unstable.
  private val Farthest = 3.0

  /** @param classify whether labels are classes */
  def apply(rows: RDD[TrainingRow], classify: Boolean): DataSummary =
    rows
      .mapPartitions { rows =>
        val summary = new DataSummary(classify)
        rows.foreach(summary.add)
        summary.largest = summary.rows
        Iterator.single(summary)
      }
      .treeReduce(_.merge(_))

  private def differ(one: Int, other: Int) = new BadRowException(
    s"a row has $one features, others $other: give all rows of the features column the same size"
  )
}
