package paramd;

import java.io.Serializable;
import java.time.Duration;

/**
 * How to train. What is left out is the model's or the default. Not thread-safe.
 *
 * @serial exclude
 */
public final class TrainOptions implements Serializable {
  private static final long serialVersionUID = 1;
  private static final double MAX_LEARNING_RATE = 1e6;

  private long epochs = 1;
  private long communicationWindow;
  private double learningRate;
  private int maxPrefetch;
  private boolean overlap;
  private Double targetLoss;
  private Duration exchangeTimeout;

  /** One epoch, with what the model names. */
  public TrainOptions() {}

  /**
   * Sets how often to go through the data.
   *
   * @param epochs at least 1, which it is if not given
   * @return this
   */
  public TrainOptions epochs(long epochs) {
    Arguments.check(epochs >= 1, "epochs is " + epochs + ", but must be at least 1");
    this.epochs = epochs;
    return this;
  }

  /**
   * Sets the minibatches between two exchanges.
   *
   * @param communicationWindow at least 1; the model's if not given
   * @return this
   */
  public TrainOptions communicationWindow(long communicationWindow) {
    this.communicationWindow = checkedWindow(communicationWindow);
    return this;
  }

  /**
   * Sets the optimizer's learning rate.
   *
   * @param learningRate positive, at most 1e6; the model's if not given
   * @return this
   */
  public TrainOptions learningRate(double learningRate) {
    Arguments.check(
        learningRate > 0 && learningRate <= MAX_LEARNING_RATE,
        "learningRate is " + learningRate + ", but must be positive and at most " + MAX_LEARNING_RATE);
    this.learningRate = learningRate;
    return this;
  }

  /**
   * Sets how many minibatches are read ahead.
   *
   * @param maxPrefetch at least 1; 100 if not given
   * @return this
   */
  public TrainOptions maxPrefetch(int maxPrefetch) {
    Arguments.check(maxPrefetch >= 1, "maxPrefetch is " + maxPrefetch + ", but must be at least 1");
    this.maxPrefetch = maxPrefetch;
    return this;
  }

  /**
   * Exchanges while the next window trains.
   *
   * @param overlap false, if not given
   * @return this
   */
  public TrainOptions overlap(boolean overlap) {
    this.overlap = overlap;
    return this;
  }

  /**
   * Stops when the mean loss of a window is at or below this.
   *
   * @param targetLoss finite; none if not given
   * @return this
   */
  public TrainOptions targetLoss(double targetLoss) {
    Arguments.check(Double.isFinite(targetLoss), "targetLoss is " + targetLoss + ", but must be finite");
    this.targetLoss = targetLoss;
    return this;
  }

  /**
   * Sets the longest that one exchange may take, waiting for slower workers included.
   *
   * @param timeout null, if not given: as long as it likes
   * @return this
   */
  public TrainOptions exchangeTimeout(Duration timeout) {
    this.exchangeTimeout = timeout;
    return this;
  }

  @Override
  public String toString() {
    return "TrainOptions[epochs=" + epochs + ", communicationWindow="
        + (communicationWindow == 0 ? "the model's" : communicationWindow) + ", learningRate="
        + (learningRate == 0 ? "the model's" : learningRate) + ", maxPrefetch=" + (maxPrefetch == 0 ? 100 : maxPrefetch)
        + ", overlap=" + overlap + ", targetLoss=" + targetLoss + ", exchangeTimeout=" + exchangeTimeout + "]";
  }

  static long checkedWindow(long communicationWindow) {
    Arguments.check(
        communicationWindow >= 1,
        "communicationWindow is " + communicationWindow + ", but must be at least 1; leave it out for the model's");
    return communicationWindow;
  }

  /** In the order of native code's paramd_train_options, flags as 0 or 1. */
  double[] toNative() {
    return new double[] {
      epochs,
      communicationWindow,
      learningRate,
      maxPrefetch,
      overlap ? 1 : 0,
      targetLoss == null ? 0 : targetLoss,
      targetLoss == null ? 0 : 1,
      Arguments.secondsOrNone(exchangeTimeout)
    };
  }
}
