package paramd;

import java.io.Serializable;
import java.time.Duration;

/** How to train. What is left out is the model's or the default. Not thread-safe. */
public final class TrainOptions implements Serializable {
  private static final long serialVersionUID = 1;

  private long epochs = 1;
  private long communicationWindow;
  private double learningRate;
  private int maxPrefetch;
  private boolean overlap;
  private Double targetLoss;
  private Duration exchangeTimeout;

  public TrainOptions epochs(long epochs) {
    this.epochs = epochs;
    return this;
  }

  /** Minibatches between two exchanges. */
  public TrainOptions communicationWindow(long communicationWindow) {
    this.communicationWindow = communicationWindow;
    return this;
  }

  public TrainOptions learningRate(double learningRate) {
    this.learningRate = learningRate;
    return this;
  }

  /** Minibatches read ahead; 100 if not given. */
  public TrainOptions maxPrefetch(int maxPrefetch) {
    this.maxPrefetch = maxPrefetch;
    return this;
  }

  /** Exchange while the next window trains. */
  public TrainOptions overlap(boolean overlap) {
    this.overlap = overlap;
    return this;
  }

  /** Stop when the mean loss of a window is at or below this. */
  public TrainOptions targetLoss(double targetLoss) {
    this.targetLoss = targetLoss;
    return this;
  }

  /** Longest that one exchange may take, waiting for slower workers included; null: as long as it likes. */
  public TrainOptions exchangeTimeout(Duration timeout) {
    this.exchangeTimeout = timeout;
    return this;
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
