package paramd.spark

import paramd.{BatchSource, Mlp, Security, TrainOptions, Trainable}

import scala.util.Using

/**
 * What a worker trains with beside its rows.
 *
 * @param weightFactor of all rows' weights, if there are any: rates are for weights of mean 1
 * @param patience epochs without a loss of the rows for validation that is better by more than `tolerance` of it
 */
private[spark] final case class TrainingPlan(
    spec: FitSpec,
    input: Scaling,
    output: Scaling,
    weightFactor: Option[Double],
    patience: Int,
    tolerance: Double
)

/** @param validationLosses at the end of each epoch, summed over `validationRows` */
private[spark] final case class TrainedPartition(rows: Long, validationRows: Long, validationLosses: Array[Double])

private[spark] object TrainedPartition {

  /** By the epoch, the mean over all rows. Of a worker that has stopped, its last loss counts on. */
  def validationHistory(partitions: Array[TrainedPartition]): Array[Double] = {
    val validated = partitions.filter(_.validationLosses.nonEmpty)
    Array.tabulate(validated.map(_.validationLosses.length).maxOption.getOrElse(0)) { epoch =>
      validated.map(part => part.validationLosses(math.min(epoch, part.validationLosses.length - 1))).sum /
        validated.map(_.validationRows).sum
    }
  }
}

/** Trains a worker on a partition; one without rows trains nothing. */
private[spark] final class TrainingTask(server: String, security: Security, model: String, plan: TrainingPlan)
    extends ((Int, Iterator[TrainingRow]) => Iterator[TrainedPartition])
    with Serializable {
  import plan._

  override def apply(partition: Int, rows: Iterator[TrainingRow]): Iterator[TrainedPartition] = {
    TaskWorker.awaitTurn()
    val labels = if (spec.classifies) 1 else spec.layers.last
    val source =
      new SpooledPartition(rows.map(scaled), spec.layers.head, labels, weightFactor.isDefined, spec.batchSize, spec.seed + partition)
    Using.resource(source) { source =>
      if (source.size == 0) Iterator.single(TrainedPartition(0, 0, Array.empty))
      // Equal seeds: whoever comes first initializes the center as all others would.
      else Using.resource(spec.network())(network => Iterator.single(trained(network, source)))
    }
  }

  private def trained(network: Mlp, source: SpooledPartition): TrainedPartition = {
    val options = new TrainOptions().epochs(spec.epochs).maxPrefetch(TrainingTask.Prefetch)
    def train(trainable: Trainable, source: BatchSource): Unit =
      TaskWorker.train(TaskWorker.options(server, model).security(security), options, trainable, source)
    if (source.validation.batchesPerEpoch == 0) {
      train(network, source)
      TrainedPartition(source.size, 0, Array.empty)
    } else {
      val validated = new ValidatedTraining(network, source, spec, patience, tolerance)
      train(validated, validated.source)
      validated.finish()
      TrainedPartition(source.size, validated.rows, validated.losses)
    }
  }

  private def scaled(row: TrainingRow): TrainingRow = row.copy(
    features = input(row.features),
    labels = if (spec.classifies) row.labels else Array.tabulate(row.labels.length)(i => output(row.labels(i), i)),
    weight = weightFactor.fold(row.weight)(factor => (row.weight * factor).toFloat)
  )
}

private[spark] object TrainingTask {
  // The file is in the page cache, or read ahead by the system.
  private val Prefetch = 4
}
