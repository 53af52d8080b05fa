package paramd;

import java.lang.ref.Reference;
import java.nio.FloatBuffer;
import java.util.Arrays;

/**
 * A ready-made model in native code: a perceptron with ReLU between its layers. A batch has one label a row, its class's
 * number, and accuracy is the metric; or, with loss squared, a label for each output, and no metric. Behind all labels
 * there may be a weight for each row, not negative: its loss counts that many times. Not thread-safe, but for close,
 * which a training under way outlives.
 */
public final class Mlp implements Trainable, AutoCloseable {
  private static final long VECTORS = 2; // parameters and gradient

  private final long[] layers;
  private final NativeObject mlp;
  private final String[] metrics;
  private FloatBuffer parameters; // null until asked for
  private final MemoryPool pool = new MemoryPool(-1);

  /**
   * Makes a network with random parameters.
   *
   * @param layers inputs, hidden..., classes; at least two
   * @param optimizer sgd, momentum (Nesterov's, 0.9) or adam
   * @param learningRate positive, at most 1e6
   * @param seed of the first parameters: equal ones give equal parameters
   * @throws ParamdException INVALID_ARGUMENT says what can't be; UNAVAILABLE if native code can't be loaded
   */
  public Mlp(long[] layers, String optimizer, double learningRate, long seed) {
    this(
        new MlpOptions(layers)
            .optimizer(optimizer)
            .learningRate(learningRate)
            .seed(seed));
  }

  /**
   * Makes a network with random parameters.
   *
   * @param options what it is made of; may be used again
   * @throws ParamdException INVALID_ARGUMENT says what can't be; UNAVAILABLE if native code can't be loaded
   */
  public Mlp(MlpOptions options) {
    Arguments.given(options, "options");
    layers = options.layers.clone();
    final byte[] optimizer = Arguments.utf8(options.optimizer);
    final byte[] loss = Arguments.utf8(options.loss);
    NativeLibrary.load();
    final long made =
        Lingering.withRoom(
            () ->
                Native.mlpNew(
                    layers, optimizer, options.learningRate, options.seed, loss, options.l2, options.maxGradientNorm));
    mlp = new NativeObject("mlp", made, VECTORS * Float.BYTES * Native.mlpFloats(made), Native::mlpFree);
    metrics = options.loss.equals("softmax") ? new String[] {"accuracy"} : new String[0];
  }

  /**
   * Adds its tensors to a spec.
   *
   * @param spec gets dense0/kernel [inputs, outputs], dense0/bias [outputs], dense1/kernel, ...
   */
  public void describe(ModelSpec spec) {
    Arguments.given(spec, "spec");
    for (int i = 0; i + 1 < layers.length; i++) {
      spec.tensor("dense" + i + "/kernel", layers[i], layers[i + 1]).tensor("dense" + i + "/bias", layers[i + 1]);
    }
  }

  @Override
  public FloatBuffer parameters() {
    if (parameters == null) {
      final long address = mlp.acquire();
      try {
        parameters = mlp.buffer(Native.mlpParameters(address), Native.mlpFloats(address));
      } finally {
        mlp.release();
      }
    }
    return parameters.duplicate();
  }

  @Override
  public double[] trainOnBatch(Batch batch) {
    Arguments.check(
        !Arguments.given(batch, "batch").isSparse(), "sparse rows are trained by Training.run; give this call dense ones");
    final double[] results = new double[1 + metrics.length];
    final long address = mlp.acquire();
    try {
      Native.mlpTrainOnBatch(
          address,
          batch.rows(),
          Native.address(batch.features()),
          batch.features().limit(),
          Native.address(batch.labels()),
          batch.labels().limit(),
          results);
    } finally {
      mlp.release();
      Reference.reachabilityFence(batch);
    }
    return results;
  }

  @Override
  public String[] metricNames() {
    return metrics.clone();
  }

  @Override
  public double learningRate() {
    final long address = mlp.acquire();
    try {
      return Native.mlpLearningRate(address);
    } finally {
      mlp.release();
    }
  }

  @Override
  public void setLearningRate(double learningRate) {
    final long address = mlp.acquire();
    try {
      Native.mlpSetLearningRate(address, learningRate);
    } finally {
      mlp.release();
    }
  }

  /**
   * Predicts each row's probabilities, or outputs.
   *
   * @param features [rows, inputs], row-major, from position to limit
   * @param rows may be 0
   * @param probabilities [rows, classes], row-major, from position to limit: is written
   * @throws ParamdException INVALID_ARGUMENT if a buffer has another length
   */
  public void predict(FloatBuffer features, int rows, FloatBuffer probabilities) {
    Arguments.given(features, "features");
    Arguments.given(probabilities, "probabilities");
    Arguments.check(
        rows >= 0
            && features.remaining() == rows * layers[0]
            && probabilities.remaining() == rows * layers[layers.length - 1],
        rows + " rows are " + rows * layers[0] + " features and " + rows * layers[layers.length - 1]
            + " probabilities, but the buffers have " + features.remaining() + " and " + probabilities.remaining());
    final long address = mlp.acquire();
    try (Floats from = Floats.input(features, pool);
        Floats to = Floats.output(probabilities, pool)) {
      Native.mlpPredict(address, from.address(), rows, to.address());
      to.deliver();
    } finally {
      mlp.release();
    }
  }

  /** What {@link #parameters} gave stays good as long as it is referred to. */
  @Override
  public void close() {
    parameters = null;
    mlp.close();
  }

  @Override
  public String toString() {
    return "Mlp" + Arrays.toString(layers) + (mlp.closed() ? " (closed)" : "");
  }

  NativeObject nativeObject() {
    return mlp;
  }
}
