package paramd;

import java.util.List;

/** What workers reported: one series a worker, or one averaged over all of them, step by step. */
public record History(List<Series> series) {
  /** {@code metricNames} names the entries of each record's metrics. */
  public record Series(String worker, String[] metricNames, List<Record> records) {}

  /**
   * One minibatch, or the average of all workers' minibatches of that number.
   *
   * @param step counted from 1
   * @param epoch position in the data
   * @param timeSeconds since training began
   */
  public record Record(long step, double epoch, double timeSeconds, double loss, double[] metrics) {}
}
