package paramd.spark

import org.apache.spark.ml.linalg.Vector

/**
 * The forward pass of a network that [[paramd.Mlp]] trained, in the JVM alone. Thread-safe.
 *
 * @param layers units, from input to output
 * @param parameters each layer's kernel [inputs, outputs], row-major, then its bias [outputs]
 */
private[spark] final class DenseNetwork(val layers: Array[Int], val parameters: Array[Float]) extends Serializable {
  require(
    DenseNetwork.parameters(layers) == parameters.length,
    s"layers ${layers.mkString("-")} have ${DenseNetwork.parameters(layers)} parameters, not ${parameters.length}"
  )

  def features: Int = layers.head
  def classes: Int = layers.last

  /** What the last layer puts out, before softmax. Entries of `input` that are 0 cost nothing. */
  def logits(input: Vector): Array[Float] = {
    require(
      input.size == features,
      s"a row has ${input.size} features, but the network was trained with $features: check the features column"
    )
    var result = begin(1, 0)
    input.foreachActive((i, value) => if (value != 0) add(value.toFloat, i * layers(1), result))
    var offset = (features + 1) * layers(1)
    for (layer <- 2 until layers.length) {
      val below = result
      result = begin(layer, offset)
      var i = 0
      while (i < below.length) {
        if (below(i) > 0) add(below(i), offset + i * layers(layer), result)
        i += 1
      }
      offset += (layers(layer - 1) + 1) * layers(layer)
    }
    result
  }

  /** The bias of `layer`, whose kernel begins at `offset`. */
  private def begin(layer: Int, offset: Int): Array[Float] = {
    val bias = offset + layers(layer - 1) * layers(layer)
    parameters.slice(bias, bias + layers(layer))
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
