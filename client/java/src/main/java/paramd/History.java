package paramd;

import java.util.Arrays;
import java.util.List;

/**
 * What workers reported, step by step.
 *
 * @param series one a worker, or one averaged over all
 */
public record History(List<Series> series) {
  /**
   * Of one worker, or averaged over all.
   *
   * @param worker its name; empty if averaged
   * @param metricNames names the entries of each record's metrics
   * @param records in the order of their steps
   * @param dropped older records that the server dropped to bound its memory
   */
  public record Series(String worker, String[] metricNames, List<Record> records, long dropped) {
    @Override
    public String toString() {
      return "Series[worker=" + worker + ", metricNames=" + Arrays.toString(metricNames) + ", " + records.size()
          + " records, dropped=" + dropped + "]";
    }
  }

  /**
   * One minibatch, or the average of all workers' minibatches of that number.
   *
   * @param step counted from 1
   * @param epoch position in the data: 1.5 is the second epoch's middle
   * @param timeSeconds since training began
   * @param loss before the step, averaged over the rows
   * @param metrics in the order of their names
   */
  public record Record(long step, double epoch, double timeSeconds, double loss, double[] metrics) {
    @Override
    public String toString() {
      return "Record[step=" + step + ", epoch=" + epoch + ", timeSeconds=" + timeSeconds + ", loss=" + loss
          + ", metrics=" + Arrays.toString(metrics) + "]";
    }
  }
}
