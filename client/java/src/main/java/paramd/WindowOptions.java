package paramd;

import java.time.Duration;

/** How a {@link Window} exchanges. What is left out is the model's or the default. Not thread-safe. */
public final class WindowOptions {
  private long communicationWindow;
  private boolean overlap;
  private Duration exchangeTimeout;
  private String[] metricNames = new String[0];

  /** Minibatches between two exchanges. */
  public WindowOptions communicationWindow(long communicationWindow) {
    this.communicationWindow = communicationWindow;
    return this;
  }

  /** Exchange on a second thread while the next window trains. */
  public WindowOptions overlap(boolean overlap) {
    this.overlap = overlap;
    return this;
  }

  /** Longest that one exchange may take, waiting for slower workers included; null: as long as it likes. */
  public WindowOptions exchangeTimeout(Duration timeout) {
    this.exchangeTimeout = timeout;
    return this;
  }

  /** Of what {@link Window#afterStep} gets beside the loss, for the worker's history. */
  public WindowOptions metricNames(String... names) {
    this.metricNames = names.clone();
    return this;
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
