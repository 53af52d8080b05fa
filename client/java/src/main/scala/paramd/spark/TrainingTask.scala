package paramd.spark

import paramd.{Mlp, Security, TrainOptions}

import scala.util.Using

/** Trains a worker on a partition; gives the number of its rows, without which nothing is trained. */
private[spark] final class TrainingTask(
    server: String,
    security: Security,
    model: String,
    layers: Array[Int],
    solver: String,
    learningRate: Option[Double],
    seed: Long,
    batchSize: Int,
    epochs: Int
) extends ((Int, Iterator[TrainingRow]) => Iterator[Long])
    with Serializable {

  override def apply(partition: Int, rows: Iterator[TrainingRow]): Iterator[Long] = {
    TaskWorker.awaitTurn()
    val source = new SpooledPartition(rows, layers.head, 1, weighted = false, batchSize, seed + partition)
    Using.resource(source) { source =>
      if (source.size > 0) {
        // Equal seeds: whoever comes first initializes the center as all others would.
        Using.resource(TrainingTask.network(layers, solver, learningRate, seed)) { network =>
          val options = new TrainOptions().epochs(epochs).maxPrefetch(TrainingTask.Prefetch)
          TaskWorker.train(TaskWorker.options(server, model).security(security), options, network, source)
        }
      }
    }
    Iterator.single(source.size.toLong)
  }
}

private[spark] object TrainingTask {
  // The file is in the page cache, or read ahead by the system.
  private val Prefetch = 4
  // The training loop replaces it by the model's.
  private val AnyRate = 0.1

  def network(layers: Array[Int], solver: String, learningRate: Option[Double], seed: Long): Mlp =
    new Mlp(layers.map(_.toLong), solver, learningRate.getOrElse(AnyRate), seed)
}
