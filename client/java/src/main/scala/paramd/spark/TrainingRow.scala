package paramd.spark

import org.apache.spark.ml.linalg.Vector

/**
 * A row as a worker trains it.
 *
 * @param labels its class, or a regression's outputs
 * @param validation it is not trained, but tells how well training goes
 */
private[spark] final case class TrainingRow(features: Vector, labels: Array[Double], weight: Float, validation: Boolean)

/** @param labels one, or a regression's several */
private[spark] final case class TrainingColumns(
    features: String,
    labels: Seq[String],
    weight: Option[String] = None,
    validation: Option[String] = None
)

/** A row that can't be trained. Spark retries its task in vain; [[Fit]] gives it back as what it is. */
private[spark] final class BadRowException(message: String) extends IllegalArgumentException(message)
