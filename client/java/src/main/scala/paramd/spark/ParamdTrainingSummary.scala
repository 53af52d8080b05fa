package paramd.spark

import org.apache.spark.sql.{DataFrame, SparkSession}

import paramd.History

import scala.jdk.CollectionConverters._

/**
 * How a fit went. It is saved with the model, but for what each minibatch reported.
 *
 * @param numWorkers tasks that trained, one a partition that had rows
 * @param rows in them
 * @param updates commits applied to the center
 * @param trainingTimeSeconds from the first worker's join to the last commit
 * @param meanStaleness of the commits
 * @param stalenessHistogram commits with staleness i; the last entry holds all larger ones too
 * @param objectiveHistory each epoch's mean loss, as its minibatches were trained
 * @param accuracyHistory likewise the part of rows whose class was right; empty for a regression
 * @param validationHistory likewise the mean loss of the rows for validation at the end of the epoch; empty without
 *   such rows
 */
final class ParamdTrainingSummary private[spark] (
    val numWorkers: Int,
    val rows: Long,
    val updates: Long,
    val trainingTimeSeconds: Double,
    val meanStaleness: Double,
    val stalenessHistogram: Array[Long],
    val objectiveHistory: Array[Double],
    val accuracyHistory: Array[Double],
    val validationHistory: Array[Double],
    reported: Option[ParamdTrainingSummary.Reported]
) {

  /** Epochs that were trained. */
  def totalIterations: Int = objectiveHistory.length

  /** Of the last epoch's minibatches, as they were trained; NaN for a regression. */
  def accuracy: Double = accuracyHistory.lastOption.getOrElse(Double.NaN)

  /** Each worker's minibatches: worker, step, epoch, timeSeconds, loss, accuracy. Of a model that was not loaded. */
  def history: DataFrame = frame(kept.workers)

  /** The mean over workers, step by step: step, epoch, timeSeconds, loss, accuracy. Of a model that was not loaded. */
  def averagedHistory: DataFrame = frame(kept.averaged).drop("worker")

  private def kept = reported.getOrElse(
    throw new IllegalStateException("the minibatches' history is not saved with a model: take it from the model that fit returned")
  )

  private def frame(history: History): DataFrame = {
    val rows = for (series <- history.series.asScala.toSeq; record <- series.records.asScala) yield {
      val accuracy = record.metrics.headOption.getOrElse(Double.NaN)
      (series.worker, record.step, record.epoch, record.timeSeconds, record.loss, accuracy)
    }
    SparkSession.active.createDataFrame(rows).toDF("worker", "step", "epoch", "timeSeconds", "loss", "accuracy")
  }

  private[spark] def saved: ParamdTrainingSummary.Saved = ParamdTrainingSummary.Saved(
    numWorkers,
    rows,
    updates,
    trainingTimeSeconds,
    meanStaleness,
    stalenessHistogram,
    objectiveHistory,
    accuracyHistory,
    validationHistory
  )

  override def toString: String = {
    val right = if (accuracyHistory.isEmpty) "" else f", accuracy ${accuracy * 100}%.2f %%"
    val loss = objectiveHistory.lastOption.fold("")(last => f": loss $last%.4f$right")
    f"$totalIterations epochs of $rows%d rows in $trainingTimeSeconds%.1f s$loss; $updates%d updates of $numWorkers%d " +
      f"workers, mean staleness $meanStaleness%.2f"
  }
}

private[spark] object ParamdTrainingSummary {

  /** @param averaged over the workers, step by step */
  final case class Reported(workers: History, averaged: History) {

    /** Of each epoch, the mean of what is taken from a step's record: the loss, then metrics. */
    def byEpoch(take: History.Record => Option[Double]): Array[Double] =
      averaged.series.asScala
        .flatMap(_.records.asScala)
        .groupBy(record => math.ceil(record.epoch - 1e-9))
        .toArray
        .sortBy(_._1)
        .flatMap { case (_, records) =>
          val values = records.flatMap(take(_))
          Option.when(values.nonEmpty)(values.sum / values.size)
        }
  }

  /** What of it is saved. */
  final case class Saved(
      numWorkers: Int,
      rows: Long,
      updates: Long,
      trainingTimeSeconds: Double,
      meanStaleness: Double,
      stalenessHistogram: Array[Long],
      objectiveHistory: Array[Double],
      accuracyHistory: Array[Double],
      validationHistory: Array[Double]
  ) {
    def summary = new ParamdTrainingSummary(
      numWorkers,
      rows,
      updates,
      trainingTimeSeconds,
      meanStaleness,
      stalenessHistogram,
      objectiveHistory,
      accuracyHistory,
      validationHistory,
      None
    )
  }
}
