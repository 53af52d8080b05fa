package paramd;

import java.util.List;

/** What workers reported: one series a worker, or one averaged over all of them, step by step. */
public record History(List<Series> series) {
  /**
   * @param metricNames names the entries of each record's metrics
   * @param dropped older records that the server dropped to bound its memory
   */
  public record Series(String worker, String[] metricNames, List<Record> records, long dropped) {}

  /**
   * One minibatch, or the average of all workers' minibatches of that number.
   *
   * @param step counted from 1
   * @param epoch position in the data
   * @param timeSeconds since training began
   */
  public record Record(long step, double epoch, double timeSeconds, double loss, double[] metrics) {}
}
