package paramd.spark

import java.nio.{ByteBuffer, ByteOrder, FloatBuffer}

import paramd.{Batch, BatchSource, Mlp, ParamdException, Trainable}

import scala.collection.mutable.ArrayBuilder

/**
 * Trains `network` on a partition, computes the loss of its rows for validation at the end of each epoch, and ends
 * training when `patience` epochs have not made it better by more than `tolerance` of it. Called from the thread that
 * trains, but for [[source]].
 */
private[spark] final class ValidatedTraining(
    network: Mlp,
    partition: SpooledPartition,
    spec: FitSpec,
    patience: Int,
    tolerance: Double
) extends Trainable {
  private val batch = new Batch
  private val summed = new ArrayBuilder.ofDouble
  private var outputs = allocate(0)
  private var steps = 0L
  private var best = Double.PositiveInfinity
  private var epochsSinceBest = 0
  private var validationRows = 0L
  @volatile private var stopped = false

  /** The partition's minibatches, until training is to stop. */
  val source: BatchSource = new BatchSource {
    override def next(batch: Batch): Boolean = {
      if (stopped) throw new ParamdException(ParamdException.Code.OUT_OF_RANGE, "the validation loss gets no better")
      partition.next(batch)
    }
    override def rewind(epoch: Long): Unit = partition.rewind(epoch)
    override def batchesPerEpoch: Long = partition.batchesPerEpoch
  }

  /** For validation. */
  def rows: Long = validationRows

  /** At the end of each epoch, summed over [[rows]]. */
  def losses: Array[Double] = summed.result()

  /** When training has ended. */
  def finish(): Unit = if (!stopped) validate()

  override def parameters: FloatBuffer = network.parameters
  override def metricNames: Array[String] = network.metricNames
  override def learningRate: Double = network.learningRate
  override def setLearningRate(rate: Double): Unit = network.setLearningRate(rate)

  override def trainOnBatch(batch: Batch): Array[Double] = {
    // Here what the epoch's last window has brought is in.
    if (steps == partition.batchesPerEpoch) {
      steps = 0
      if (!stopped) validate()
    }
    steps += 1
    network.trainOnBatch(batch)
  }

  private def validate(): Unit = {
    val validation = partition.validation
    validation.rewind(0)
    var loss = 0.0
    validationRows = 0
    while (validation.next(batch)) {
      loss += lossOfBatch()
      validationRows += batch.rows
    }
    summed += loss
    if (loss < best * (1 - tolerance)) {
      best = loss
      epochsSinceBest = 0
    } else {
      epochsSinceBest += 1
      stopped = epochsSinceBest >= patience
    }
  }

  private def lossOfBatch(): Double = {
    val width = spec.layers.last
    val labels = if (spec.classifies) 1 else width
    if (outputs.capacity < batch.rows * width) outputs = allocate(batch.rows * width)
    outputs.clear().limit(batch.rows * width)
    network.predict(batch.features.duplicate(), batch.rows, outputs.duplicate())
    val weighted = batch.labels.limit() > batch.rows * labels
    var sum = 0.0
    for (i <- 0 until batch.rows) {
      val loss =
        if (spec.classifies) -math.log(math.max(outputs.get(i * width + batch.labels.get(i).toInt), java.lang.Float.MIN_NORMAL))
        else (0 until width).map(j => math.pow(outputs.get(i * width + j) - batch.labels.get(i * width + j), 2) / 2).sum
      sum += (if (weighted) loss * batch.labels.get(batch.rows * labels + i) else loss)
    }
    sum
  }

  private def allocate(floats: Int) = ByteBuffer.allocateDirect(floats * java.lang.Float.BYTES).order(ByteOrder.nativeOrder()).asFloatBuffer()
}
