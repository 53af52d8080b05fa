package paramd.spark

import org.apache.spark.ml.linalg.{DenseVector, SparseVector, Vector}

/**
 * x → (x − shift) × scale, feature by feature. Thread-safe.
 *
 * @param shift empty: nothing is taken away, and what is sparse stays so
 * @param scale empty: everything stays as it is; 0 where a feature is constant
 */
private[spark] final case class Scaling(shift: Array[Double], scale: Array[Double]) {

  def apply(vector: Vector): Vector =
    if (scale.isEmpty) vector
    else
      vector match {
        case sparse: SparseVector if shift.isEmpty =>
          new SparseVector(sparse.size, sparse.indices, Array.tabulate(sparse.indices.length)(i => sparse.values(i) * scale(sparse.indices(i))))
        case other =>
          val values = other.toArray
          new DenseVector(Array.tabulate(values.length)(i => apply(values(i), i)))
      }

  def apply(value: Double, index: Int): Double =
    if (scale.isEmpty) value else if (shift.isEmpty) value * scale(index) else (value - shift(index)) * scale(index)

  /** The value that [[apply]] makes `scaled` of; the constant one of a constant feature. */
  def inverse(scaled: Double, index: Int): Double =
    if (scale.isEmpty) scaled else (if (scale(index) == 0) 0 else scaled / scale(index)) + (if (shift.isEmpty) 0 else shift(index))
}

private[spark] object Scaling {
  val None: Scaling = Scaling(Array.empty, Array.empty)
}
