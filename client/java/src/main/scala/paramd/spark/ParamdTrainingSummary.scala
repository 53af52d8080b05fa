package paramd.spark

import org.apache.spark.sql.{DataFrame, SparkSession}

import paramd.{History, ModelInfo}

import scala.jdk.CollectionConverters._

/**
 * How a fit went.
 *
 * @param numWorkers tasks that trained, one a partition that had rows
 * @param rows in them
 * @param updates commits applied to the center
 * @param trainingTimeSeconds from the first worker's join to the last commit
 * @param meanStaleness of the commits
 * @param stalenessHistogram commits with staleness i; the last entry holds all larger ones too
 */
final class ParamdTrainingSummary private[spark] (
    val numWorkers: Int,
    val rows: Long,
    val updates: Long,
    val trainingTimeSeconds: Double,
    val meanStaleness: Double,
    val stalenessHistogram: Array[Long],
    workers: History,
    averaged: History
) {

  private[spark] def this(
      numWorkers: Int,
      rows: Long,
      info: ModelInfo,
      stalenessHistogram: Array[Long],
      workers: History,
      averaged: History
  ) = this(
    numWorkers,
    rows,
    info.version,
    info.trainingTimeSeconds,
    info.meanStaleness,
    stalenessHistogram,
    workers,
    averaged
  )

  /** Each worker's minibatches: worker, step, epoch, timeSeconds, loss, accuracy. */
  def history: DataFrame = frame(workers)

  /** The mean over workers, step by step: step, epoch, timeSeconds, loss, accuracy. */
  def averagedHistory: DataFrame = frame(averaged).drop("worker")

  private def frame(history: History): DataFrame = {
    val rows = for (series <- history.series.asScala.toSeq; record <- series.records.asScala) yield {
      val accuracy = record.metrics.headOption.getOrElse(Double.NaN)
      (series.worker, record.step, record.epoch, record.timeSeconds, record.loss, accuracy)
    }
    SparkSession.active.createDataFrame(rows).toDF("worker", "step", "epoch", "timeSeconds", "loss", "accuracy")
  }

  override def toString: String =
    f"$updates%d updates of $numWorkers%d workers in $trainingTimeSeconds%.1f s, mean staleness $meanStaleness%.2f"
}
