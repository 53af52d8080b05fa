package paramd;

import java.io.Serializable;

/** What an {@link Mlp} is made of. Not thread-safe. */
public final class MlpOptions implements Serializable {
  private static final long serialVersionUID = 1;

  final long[] layers;
  String optimizer = "sgd";
  double learningRate = 0.1;
  long seed = 1;
  String loss = "softmax";
  double l2;
  double maxGradientNorm;

  /** @param layers units: inputs, hidden..., classes or outputs; at least two */
  public MlpOptions(long... layers) {
    this.layers = layers.clone();
  }

  /** sgd, momentum (Nesterov's) or adam; sgd if not given. */
  public MlpOptions optimizer(String optimizer) {
    this.optimizer = optimizer;
    return this;
  }

  /** Positive; 0.1 if not given. Training sets the model's. */
  public MlpOptions learningRate(double learningRate) {
    this.learningRate = learningRate;
    return this;
  }

  /** Of the first parameters: equal ones give equal parameters; 1 if not given. */
  public MlpOptions seed(long seed) {
    this.seed = seed;
    return this;
  }

  /**
   * softmax, if not given: cross-entropy of classes, whose label is the class's number; or squared: half the sum of the
   * outputs' squared errors, with a label for each output.
   */
  public MlpOptions loss(String loss) {
    this.loss = loss;
    return this;
  }

  /** The gradient is that of the loss plus l2/2 times the kernels' sum of squares; 0 if not given. */
  public MlpOptions l2(double l2) {
    this.l2 = l2;
    return this;
  }

  /** A step's gradient is scaled down to this Euclidean norm at most; 0, if not given: never. */
  public MlpOptions maxGradientNorm(double maxGradientNorm) {
    this.maxGradientNorm = maxGradientNorm;
    return this;
  }
}
