package paramd.spark

import org.apache.spark.ml.linalg.{DenseVector, SparseVector, Vector}
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.{Dataset, Row}
import org.apache.spark.sql.functions.col
import org.apache.spark.sql.types.{BooleanType, DoubleType}
import org.apache.spark.storage.StorageLevel

/**
 * The rows of a fit, in at most `partitions` partitions. Whoever goes over [[rdd]] a second time finds them computed:
 * in the files of the shuffle, or without one in Spark's storage until this is closed.
 *
 * @param shuffle whether rows change partition, which evens out what is grouped; without, there may be fewer partitions
 */
private[spark] final class TrainingRows(
    dataset: Dataset[_],
    columns: TrainingColumns,
    partitions: Int,
    shuffle: Boolean
) extends AutoCloseable {

  private val selected = dataset.select(
    (col(columns.features) +: columns.labels.map(col(_).cast(DoubleType))) ++
      columns.weight.map(col(_).cast(DoubleType)) ++ columns.validation.map(col(_).cast(BooleanType)): _*
  )
  private val stored = !shuffle && dataset.storageLevel == StorageLevel.NONE
  if (stored) selected.persist(StorageLevel.MEMORY_AND_DISK)

  val rdd: RDD[TrainingRow] = {
    // Each use of `rdd` of a Dataset plans anew, and with adaptive execution also computes all but the last stage.
    val rows = if (shuffle) selected.repartition(partitions).rdd else selected.rdd.coalesce(partitions)
    val parse = new TrainingRows.Parser(columns)
    rows.map(parse(_))
  }

  override def close(): Unit = if (stored) selected.unpersist()
}

private[spark] object TrainingRows {
  private val ShownCharacters = 200

  /** Of the selected columns. Names the column, and shows the row, of what can't be trained. */
  private final class Parser(columns: TrainingColumns) extends (Row => TrainingRow) with Serializable {
    private val labels = columns.labels.toArray

    override def apply(row: Row): TrainingRow = {
      val features = parseFeatures(row)
      val targets = Array.tabulate(labels.length)(i => number(row, 1 + i, labels(i)))
      var next = 1 + labels.length
      val weight = columns.weight.fold(1f) { name =>
        val value = number(row, next, name)
        if (value < 0) throw bad(row, name, s"has the weight $value, which is negative")
        next += 1
        value.toFloat
      }
      TrainingRow(features, targets, weight, columns.validation.exists(name => notNull(row, next, name).getBoolean(next)))
    }

    private def parseFeatures(row: Row): Vector = {
      val features = notNull(row, 0, columns.features).getAs[Vector](0)
      val values = features match {
        case dense: DenseVector => dense.values
        case sparse: SparseVector => sparse.values
        case other => other.toArray
      }
      var i = 0
      while (i < values.length) {
        // Also false for NaN. What is too large for a float is infinite there.
        if (!(math.abs(values(i)) <= Float.MaxValue)) {
          val index = features match {
            case sparse: SparseVector => sparse.indices(i)
            case _ => i
          }
          throw bad(
            row,
            columns.features,
            s"has feature $index = ${values(i)}: features must be finite numbers below 3.4e38"
          )
        }
        i += 1
      }
      features
    }

    private def number(row: Row, index: Int, name: String): Double = {
      val value = notNull(row, index, name).getDouble(index)
      if (!(math.abs(value) <= Float.MaxValue)) throw bad(row, name, s"is $value: it must be a finite number")
      value
    }

    private def notNull(row: Row, index: Int, name: String): Row = {
      if (row.isNullAt(index)) throw bad(row, name, "is null")
      row
    }

    private def bad(row: Row, column: String, what: String) = {
      val text = row.toString
      val shown = if (text.length > ShownCharacters) text.take(ShownCharacters) + "…" else text
      new BadRowException(s"column $column $what; drop such rows, or mend them (Imputer fills gaps in). The row: $shown")
    }
  }
}
