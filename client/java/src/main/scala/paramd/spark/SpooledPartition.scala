package paramd.spark

import java.io.EOFException
import java.nio.{ByteBuffer, ByteOrder}
import java.nio.channels.FileChannel
import java.nio.file.{Files, Path, StandardOpenOption}

import org.apache.spark.SparkEnv
import org.apache.spark.ml.linalg.Vector

import paramd.{Batch, BatchSource}

import scala.util.Random

/**
 * A partition's minibatches, as floats in a file: a partition may be larger than memory, is computed once however many
 * epochs there are, and on the task's own thread as Spark wants it. The file has no name any more when the constructor
 * returns, so it goes with the process at the latest. Each epoch has the minibatches in an order of its own.
 */
private[spark] final class SpooledPartition(rows: Iterator[(Vector, Double)], features: Int, classes: Int, batchSize: Int, seed: Long)
    extends BatchSource
    with AutoCloseable {

  // A batch's features [rows, features], then its labels [rows].
  private val batchBytes = Math.multiplyExact(Math.multiplyExact(batchSize, features + 1), java.lang.Float.BYTES)
  private val buffer = ByteBuffer.allocateDirect(batchBytes).order(ByteOrder.nativeOrder())
  private val channel = SpooledPartition.open()
  private var order = Array.empty[Int]
  private var next = 0

  /** In the partition. */
  val size: Long =
    try rows.grouped(batchSize).map(write).sum
    catch {
      case e: Throwable =>
        channel.close()
        throw e
    }

  override def batchesPerEpoch: Long = (size + batchSize - 1) / batchSize

  override def rewind(epoch: Long): Unit = {
    order = new Random(seed + epoch).shuffle((0 until Math.toIntExact(batchesPerEpoch)).toIndexedSeq).toArray
    next = 0
  }

  override def next(batch: Batch): Boolean = {
    if (next == order.length) return false
    val first = order(next).toLong * batchSize
    next += 1
    val count = math.min(batchSize.toLong, size - first).toInt
    read(first * (features + 1) * java.lang.Float.BYTES, count * (features + 1) * java.lang.Float.BYTES)
    batch.resize(count, count * features, count)
    val floats = buffer.asFloatBuffer()
    batch.features.put(0, floats, 0, count * features)
    batch.labels.put(0, floats, count * features, count)
    true
  }

  override def close(): Unit = channel.close()

  private def write(batch: Seq[(Vector, Double)]): Long = {
    buffer.clear()
    val floats = buffer.asFloatBuffer()
    for (((vector, _), row) <- batch.zipWithIndex) {
      if (vector.size != features) {
        throw new IllegalArgumentException(
          s"a row has ${vector.size} features, others $features: give all rows of the features column the same size"
        )
      }
      for (i <- 0 until features) floats.put(row * features + i, 0f)
      vector.foreachActive((i, value) => floats.put(row * features + i, value.toFloat))
    }
    for (((_, label), row) <- batch.zipWithIndex) {
      if (!(label >= 0 && label < classes && label == label.toInt)) {
        throw new IllegalArgumentException(
          s"label $label is no class: labels are integers from 0 to ${classes - 1}; StringIndexer makes such"
        )
      }
      floats.put(batch.length * features + row, label.toFloat)
    }
    buffer.limit(batch.length * (features + 1) * java.lang.Float.BYTES)
    while (buffer.hasRemaining) channel.write(buffer)
    batch.length
  }

  private def read(position: Long, bytes: Int): Unit = {
    buffer.clear().limit(bytes)
    while (buffer.hasRemaining) {
      if (channel.read(buffer, position + buffer.position()) < 0) throw new EOFException("the partition's file has shrunk")
    }
    buffer.flip()
  }
}

private[spark] object SpooledPartition {
  private def open(): FileChannel = {
    val file = Files.createTempFile(folder, "paramd-", ".spool")
    try FileChannel.open(file, StandardOpenOption.READ, StandardOpenOption.WRITE)
    finally Files.delete(file)
  }

  /** Where Spark keeps an executor's temporary files: told by cluster managers in the environment, else configured. */
  private def folder: Path = {
    val told = Seq("SPARK_EXECUTOR_DIRS", "LOCAL_DIRS", "SPARK_LOCAL_DIRS").flatMap(sys.env.get)
    val configured = SparkEnv.get.conf.getOption("spark.local.dir")
    (told ++ configured)
      .flatMap(_.split("[,:]"))
      .map(Path.of(_))
      .find(folder => Files.isDirectory(folder) && Files.isWritable(folder))
      .getOrElse(Path.of(System.getProperty("java.io.tmpdir")))
  }
}
