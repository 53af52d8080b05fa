package paramd;

import java.io.Serializable;
import java.util.Arrays;

/**
 * What an {@link Mlp} is made of. Not thread-safe.
 *
 * @serial exclude
 */
public final class MlpOptions implements Serializable {
  private static final long serialVersionUID = 1;

  final long[] layers;
  String optimizer = "sgd";
  double learningRate = 0.1;
  long seed = 1;
  String loss = "softmax";
  double l2;
  double maxGradientNorm;

  /**
   * A network for classes, trained with sgd, unless something else is set.
   *
   * @param layers units: inputs, hidden..., classes or outputs; at least two
   */
  public MlpOptions(long... layers) {
    this.layers = Arguments.given(layers, "layers").clone();
  }

  /**
   * Sets the optimizer.
   *
   * @param optimizer sgd, momentum (Nesterov's, 0.9) or adam; sgd if not given
   * @return this
   */
  public MlpOptions optimizer(String optimizer) {
    this.optimizer = Arguments.given(optimizer, "optimizer");
    return this;
  }

  /**
   * Sets the learning rate, in whose place training sets the model's.
   *
   * @param learningRate positive, at most 1e6; 0.1 if not given
   * @return this
   */
  public MlpOptions learningRate(double learningRate) {
    this.learningRate = learningRate;
    return this;
  }

  /**
   * Sets the seed of the first parameters.
   *
   * @param seed equal ones give equal parameters; 1 if not given
   * @return this
   */
  public MlpOptions seed(long seed) {
    this.seed = seed;
    return this;
  }

  /**
   * Sets the loss.
   *
   * @param loss softmax, if not given: cross-entropy of classes, whose label is the class's number; or squared: half the
   *     sum of the outputs' squared errors, with a label for each output
   * @return this
   */
  public MlpOptions loss(String loss) {
    this.loss = Arguments.given(loss, "loss");
    return this;
  }

  /**
   * Sets the penalty of large parameters: the gradient is that of the loss plus l2/2 times the kernels' sum of squares.
   *
   * @param l2 0 if not given
   * @return this
   */
  public MlpOptions l2(double l2) {
    this.l2 = l2;
    return this;
  }

  /**
   * Sets the longest gradient: a step's is scaled down to this Euclidean norm at most.
   *
   * @param maxGradientNorm 0, if not given: never
   * @return this
   */
  public MlpOptions maxGradientNorm(double maxGradientNorm) {
    this.maxGradientNorm = maxGradientNorm;
    return this;
  }

  @Override
  public String toString() {
    return "MlpOptions" + Arrays.toString(layers) + "[optimizer=" + optimizer + ", learningRate=" + learningRate
        + ", seed=" + seed + ", loss=" + loss + ", l2=" + l2 + ", maxGradientNorm=" + maxGradientNorm + "]";
  }
}
