package paramd;

import java.time.Duration;
import java.util.Arrays;

/** How a {@link Window} exchanges. What is left out is the model's or the default. Not thread-safe. */
public final class WindowOptions {
  private long communicationWindow;
  private boolean overlap;
  private Duration exchangeTimeout;
  private String[] metricNames = new String[0];

  /** As the model says. */
  public WindowOptions() {}

  /**
   * Sets the minibatches between two exchanges.
   *
   * @param communicationWindow at least 1; the model's if not given
   * @return this
   */
  public WindowOptions communicationWindow(long communicationWindow) {
    this.communicationWindow = TrainOptions.checkedWindow(communicationWindow);
    return this;
  }

  /**
   * Exchanges on a second thread while the next window trains.
   *
   * @param overlap false, if not given
   * @return this
   */
  public WindowOptions overlap(boolean overlap) {
    this.overlap = overlap;
    return this;
  }

  /**
   * Sets the longest that one exchange may take, waiting for slower workers included.
   *
   * @param timeout null, if not given: as long as it likes
   * @return this
   */
  public WindowOptions exchangeTimeout(Duration timeout) {
    this.exchangeTimeout = timeout;
    return this;
  }

  /**
   * Names what {@link Window#afterStep} gets beside the loss, for the worker's history.
   *
   * @param names none, if not given
   * @return this
   */
  public WindowOptions metricNames(String... names) {
    for (String name : Arguments.given(names, "names")) {
      Arguments.given(name, "a metric's name");
    }
    this.metricNames = names.clone();
    return this;
  }

  @Override
  public String toString() {
    return "WindowOptions[communicationWindow=" + (communicationWindow == 0 ? "the model's" : communicationWindow)
        + ", overlap=" + overlap + ", exchangeTimeout=" + exchangeTimeout + ", metricNames="
        + Arrays.toString(metricNames) + "]";
  }

  int metrics() {
    return metricNames.length;
  }

  long newWindow(long worker, long[] addresses, long[] lengths) {
    return Native.windowNew(
        worker,
        addresses,
        lengths,
        communicationWindow,
        overlap,
        Arguments.secondsOrNone(exchangeTimeout),
        Arguments.utf8(metricNames));
  }
}
