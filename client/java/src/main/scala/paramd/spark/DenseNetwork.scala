package paramd.spark

import org.apache.spark.ml.linalg.{DenseVector, SparseVector, Vector}

/**
 * The forward pass of a network that [[paramd.Mlp]] trained, in the JVM alone. Thread-safe.
 *
 * @param layers units, from input to output
 * @param parameters each layer's kernel [inputs, outputs], row-major, then its bias [outputs]
 * @param input how the features were scaled that it was trained with
 * @param output how the numbers were that it was to put out
 */
private[spark] final class DenseNetwork(
    val layers: Array[Int],
    val parameters: Array[Float],
    val input: Scaling = Scaling.None,
    val output: Scaling = Scaling.None
) extends Serializable {
  require(
    DenseNetwork.parameters(layers) == parameters.length,
    s"layers ${layers.mkString("-")} have ${DenseNetwork.parameters(layers)} parameters, not ${parameters.length}"
  )

  def features: Int = layers.head
  def classes: Int = layers.last

  /** What the last layer puts out for a vector of as many features. Entries that are 0 cost nothing if it is sparse. */
  def outputs(vector: Vector): Array[Double] = {
    var result = vector match {
      case dense: DenseVector => firstLayer(dense)
      case sparse: SparseVector => firstLayer(sparse)
      case other => firstLayer(other.toDense)
    }
    var offset = (features + 1) * layers(1)
    for (layer <- 2 until layers.length) {
      val below = result
      result = biases(layer, offset)
      var i = 0
      while (i < below.length) {
        if (below(i) > 0) add(below(i), offset + i * layers(layer), result)
        i += 1
      }
      offset += (layers(layer - 1) + 1) * layers(layer)
    }
    Array.tabulate(result.length)(i => output.inverse(result(i), i))
  }

  private def firstLayer(vector: DenseVector): Array[Float] = {
    val result = biases(1, 0)
    var i = 0
    while (i < features) {
      val value = input(vector.values(i), i)
      if (value != 0) add(value.toFloat, i * layers(1), result)
      i += 1
    }
    result
  }

  private def firstLayer(vector: SparseVector): Array[Float] = {
    val result = ofZeros.clone()
    vector.foreachActive { (i, value) =>
      // What a zero there would have made is in already.
      val moved = input(value, i) - input(0, i)
      if (moved != 0) add(moved.toFloat, i * layers(1), result)
    }
    result
  }

  /** The first layer of a vector of zeros. */
  @transient private lazy val ofZeros: Array[Float] =
    if (input.shift.isEmpty) biases(1, 0) else firstLayer(new DenseVector(new Array(features)))

  /** Of `layer`, whose kernel begins at `offset`. */
  private def biases(layer: Int, offset: Int): Array[Float] = {
    val begin = offset + layers(layer - 1) * layers(layer)
    parameters.slice(begin, begin + layers(layer))
  }

  /** to += factor × the kernel's row at `offset` */
  private def add(factor: Float, offset: Int, to: Array[Float]): Unit = {
    var j = 0
    while (j < to.length) {
      to(j) += factor * parameters(offset + j)
      j += 1
    }
  }
}

private[spark] object DenseNetwork {
  def parameters(layers: Array[Int]): Long =
    layers.zip(layers.tail).map { case (inputs, outputs) => (inputs + 1L) * outputs }.sum
}
