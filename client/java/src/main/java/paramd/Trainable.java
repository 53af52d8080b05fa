package paramd;

import java.nio.FloatBuffer;

/** A model with parameters and a train-on-batch step. Called from one thread at a time. */
public interface Trainable {
  /**
   * Gives all parameters in the model's tensor order, which the training loop reads and writes between steps.
   *
   * @return a direct buffer in native byte order, from position to limit; the same memory for the life of the object
   */
  FloatBuffer parameters();

  /**
   * Takes one optimizer step, in place.
   *
   * @param batch used again for the next one
   * @return the loss before the step, averaged over the rows, then the values of {@link #metricNames} in order; the
   *     array is copied
   * @throws Exception whatever: it ends the training, and is the cause of its exception
   */
  double[] trainOnBatch(Batch batch) throws Exception;

  /**
   * Names what {@link #trainOnBatch} gives beside the loss, for the worker's history.
   *
   * @return the same names in each call
   */
  default String[] metricNames() {
    return new String[0];
  }

  /**
   * Tells the optimizer's learning rate.
   *
   * @return that of the next step
   */
  double learningRate();

  /**
   * Sets the optimizer's learning rate: the loop does, once, where its options or the model have one.
   *
   * @param learningRate for all steps from now on
   */
  void setLearningRate(double learningRate);
}
