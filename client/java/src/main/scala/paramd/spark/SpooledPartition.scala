package paramd.spark

import java.io.EOFException
import java.lang.Float.{BYTES => FloatBytes}
import java.nio.{ByteBuffer, ByteOrder, FloatBuffer}
import java.nio.channels.FileChannel
import java.nio.file.{Files, Path, StandardOpenOption}
import java.util.{Arrays, SplittableRandom}

import org.apache.spark.SparkEnv

import paramd.{Batch, BatchSource}

import scala.collection.mutable.ArrayBuilder
import scala.util.hashing.MurmurHash3

/**
 * A partition's rows, as floats in a file: it may be larger than memory, is computed once however many epochs there are,
 * and on the task's own thread as Spark wants it. The file has no name any more when the constructor returns, so it goes
 * with the process at the latest.
 *
 * Each epoch has the rows in an order of its own, in minibatches whose sizes differ by one at most. The order depends on
 * the seed and on which rows there are, not on how they came.
 *
 * A minibatch has features [rows, features], as sparse rows if few of the partition's are not 0, and labels [rows,
 * labels], after which come, if rows are weighted, the weights [rows].
 */
private[spark] final class SpooledPartition(
    rows: Iterator[TrainingRow],
    features: Int,
    labels: Int,
    weighted: Boolean,
    batchSize: Int,
    seed: Long
) extends BatchSource
    with AutoCloseable {
  import SpooledPartition._

  // A row's record: how many of its features are not 0, if they alone follow, else −1; labels; weight; features; and
  // if these are not all, their indices.
  private val headerBytes = Integer.BYTES + (labels + 1) * FloatBytes
  private val channel = open()
  private val offsets = new ArrayBuilder.ofLong // of each row's record, and of the file's end
  private var nonzeros = 0L // in all rows

  private val trained = new Minibatches(mayBeSparse = true)
  private val validated = new Minibatches(mayBeSparse = false)

  /** The rows that are trained. */
  val size: Int =
    try {
      new Writer().writeAll()
      trained.size
    } catch {
      case e: Throwable =>
        channel.close()
        throw e
    }

  private val records = offsets.result()
  private val sparse = features >= SparseFeatures && nonzeros <= (records.length - 1L) * features / SparseFactor
  trained.arrange()
  validated.arrange()

  /** Those that are not trained, in an order that is always the same; never as sparse rows. */
  def validation: BatchSource = validated

  override def batchesPerEpoch: Long = trained.batchesPerEpoch

  override def rewind(epoch: Long): Unit = {
    trained.rewind(epoch)
    trained.shuffle(new SplittableRandom(MurmurHash3.orderedHash(Seq(seed, epoch))))
  }

  override def next(batch: Batch): Boolean = trained.next(batch)

  override def close(): Unit = channel.close()

  private def labelFloats: Int = if (weighted) labels + 1 else labels

  private def recordBytes(row: Int): Int = (records(row + 1) - records(row)).toInt

  private final class Writer {
    private var buffer = allocate(BufferBytes)
    private var flushed = 0L

    def writeAll(): Unit = {
      rows.foreach(write)
      flush()
      offsets += flushed
    }

    private def write(row: TrainingRow): Unit = {
      val vector = row.features
      if (vector.size != features) {
        throw new BadRowException(
          s"a row has ${vector.size} features, others $features: give all rows of the features column the same size"
        )
      }
      val own = vector.numNonzeros
      nonzeros += own
      val all = own > features / 2
      val bytes = headerBytes + (if (all) features.toLong else 2L * own) * FloatBytes
      if (buffer.remaining < bytes) flush()
      if (buffer.capacity < bytes) buffer = allocate(Math.toIntExact(bytes))
      val begin = buffer.position()
      buffer.putInt(if (all) -1 else own)
      row.labels.foreach(label => buffer.putFloat(label.toFloat))
      buffer.putFloat(row.weight)
      if (all) {
        vector.toArray.foreach(value => buffer.putFloat(value.toFloat))
      } else {
        vector.foreachActive((_, value) => if (value != 0) buffer.putFloat(value.toFloat))
        vector.foreachActive((index, value) => if (value != 0) buffer.putInt(index))
      }
      (if (row.validation) validated else trained).add(offsets.length, hash(begin))
      offsets += flushed + begin
    }

    /** Of the record that begins there and ends where the buffer stands. */
    private def hash(begin: Int): Long = {
      var result = 0L
      for (i <- begin until buffer.position() by Integer.BYTES) {
        result = (result ^ buffer.getInt(i)) * 0x9e3779b97f4a7c15L
        result ^= result >>> 32
      }
      result
    }

    private def flush(): Unit = {
      buffer.flip()
      flushed += buffer.remaining
      while (buffer.hasRemaining) channel.write(buffer)
      buffer.clear()
    }
  }

  /** Some of the rows, by their numbers. */
  private final class Minibatches(mayBeSparse: Boolean) extends BatchSource {
    private val added = new ArrayBuilder.ofInt
    private val hashes = new ArrayBuilder.ofLong
    private var arranged = Array.empty[Int]
    private var order = arranged
    private var batch = 0
    private var record = allocate(0)
    private lazy val zeros = new Array[Float](features)

    def add(row: Int, hash: Long): Unit = {
      added += row
      hashes += hash
    }

    def size: Int = added.length

    /** By what is in them. Once all are added. */
    def arrange(): Unit = {
      val rows = added.result()
      // A key has as much of the hash as the place leaves room for.
      val bits = Integer.SIZE - Integer.numberOfLeadingZeros(rows.length)
      val keys = hashes.result()
      for (i <- keys.indices) keys(i) = keys(i) << bits | i
      Arrays.sort(keys)
      arranged = keys.map(key => rows((key & ((1L << bits) - 1)).toInt))
      hashes.clear()
      rewind(0)
    }

    override def batchesPerEpoch: Long = (size + batchSize - 1L) / batchSize

    override def rewind(epoch: Long): Unit = {
      order = arranged
      batch = 0
    }

    def shuffle(random: SplittableRandom): Unit = {
      order = arranged.clone()
      for (i <- order.length - 1 to 1 by -1) {
        val other = random.nextInt(i + 1)
        val row = order(i)
        order(i) = order(other)
        order(other) = row
      }
    }

    override def next(to: Batch): Boolean = {
      if (batch == batchesPerEpoch) return false
      val begin = beginOf(batch)
      val count = beginOf(batch + 1) - begin
      if (sparse && mayBeSparse) fillSparse(begin, count, to) else fill(begin, count, to)
      batch += 1
      true
    }

    private def fill(begin: Int, count: Int, to: Batch): Unit = {
      if (count.toLong * features > MaxFloats) throw tooLarge(count, features)
      to.resize(count, count * features, count * labelFloats)
      for (i <- 0 until count) {
        load(order(begin + i))
        copyLabels(i, count, to)
        val values = loadedValues
        if (loadedNonzeros < 0) {
          to.features.put(i * features, values, 0, features)
        } else {
          to.features.put(i * features, zeros, 0, features)
          for (j <- 0 until loadedNonzeros) to.features.put(i * features + loadedIndex(j), values.get(j))
        }
      }
    }

    private def fillSparse(begin: Int, count: Int, to: Batch): Unit = {
      // A row's record is at least as long as its values.
      val most = (begin until begin + count).map(i => recordBytes(order(i)) / FloatBytes.toLong).sum
      if (most > MaxFloats) throw tooLarge(count, (most / count).toInt)
      to.resizeSparse(count, most.toInt, count * labelFloats)
      var next = 0
      for (i <- 0 until count) {
        to.rowStarts.put(i, next)
        load(order(begin + i))
        copyLabels(i, count, to)
        val values = loadedValues
        for (j <- 0 until (if (loadedNonzeros < 0) features else loadedNonzeros)) {
          to.columns.put(next, if (loadedNonzeros < 0) j else loadedIndex(j))
          to.values.put(next, values.get(j))
          next += 1
        }
      }
      to.rowStarts.put(count, next)
      to.columns.limit(next)
      to.values.limit(next)
    }

    private def tooLarge(rows: Int, floats: Int) = new IllegalArgumentException(
      s"a minibatch of $rows rows with $floats features is larger than 2 GB: set batchSize to at most ${MaxFloats / floats}"
    )

    private def copyLabels(row: Int, rows: Int, to: Batch): Unit = {
      for (i <- 0 until labels) to.labels.put(row * labels + i, record.getFloat(Integer.BYTES + i * FloatBytes))
      if (weighted) to.labels.put(rows * labels + row, record.getFloat(headerBytes - FloatBytes))
    }

    /** Of the record that was loaded last: −1 if all features are there. */
    private def loadedNonzeros: Int = record.getInt(0)
    private def loadedValues: FloatBuffer = record.position(headerBytes).slice().order(record.order).asFloatBuffer()
    private def loadedIndex(i: Int): Int = record.getInt(headerBytes + (loadedNonzeros + i) * FloatBytes)

    private def beginOf(batch: Int): Int = (batch.toLong * size / batchesPerEpoch).toInt

    private def load(row: Int): Unit = {
      val bytes = recordBytes(row)
      if (record.capacity < bytes) record = allocate(bytes)
      record.clear().limit(bytes)
      while (record.hasRemaining) {
        if (channel.read(record, records(row) + record.position()) < 0) throw new EOFException("the partition's file has shrunk")
      }
    }
  }
}

private[spark] object SpooledPartition {
  private val BufferBytes = 1 << 20
  // Where products of sparse rows begin to be faster than those of dense ones.
  val SparseFeatures = 256
  private val SparseFactor = 8
  // Of a buffer's bytes there are 2^31 − 1 at most.
  private val MaxFloats = Int.MaxValue / FloatBytes

  private def allocate(bytes: Int): ByteBuffer = ByteBuffer.allocateDirect(bytes).order(ByteOrder.nativeOrder())

  private def open(): FileChannel = {
    val file = Files.createTempFile(folder, "paramd-", ".spool")
    try FileChannel.open(file, StandardOpenOption.READ, StandardOpenOption.WRITE)
    finally Files.delete(file)
  }

  /** Where Spark keeps an executor's temporary files: told by cluster managers in the environment, else configured. */
  private def folder: Path = {
    val told = Seq("SPARK_EXECUTOR_DIRS", "LOCAL_DIRS", "SPARK_LOCAL_DIRS").flatMap(sys.env.get)
    val configured = Option(SparkEnv.get).flatMap(_.conf.getOption("spark.local.dir"))
    (told ++ configured)
      .flatMap(_.split("[,:]"))
      .map(Path.of(_))
      .find(folder => Files.isDirectory(folder) && Files.isWritable(folder))
      .getOrElse(Path.of(System.getProperty("java.io.tmpdir")))
  }
}
