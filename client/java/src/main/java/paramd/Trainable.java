package paramd;

import java.nio.FloatBuffer;

/** A model with parameters and a train-on-batch step. Called from one thread at a time. */
public interface Trainable {
  /**
   * All parameters in the model's tensor order: a direct buffer in native byte order, the same memory for the life of
   * the object. The training loop reads and writes it between steps.
   */
  FloatBuffer parameters();

  /**
   * One optimizer step on {@code batch}, in place. Returns the loss before it, averaged over the rows, then the values
   * of {@link #metricNames} in order. The batch, and the returned array, are used again.
   */
  double[] trainOnBatch(Batch batch) throws Exception;

  default String[] metricNames() {
    return new String[0];
  }

  double learningRate();

  void setLearningRate(double learningRate);
}
