package paramd;

import java.lang.ref.Reference;
import java.nio.FloatBuffer;

/**
 * Windows of minibatches and the exchanges between them, as the model's algorithm wants them, for a training loop of
 * one's own:
 *
 * <pre>{@code
 * try (Window window = worker.window(new WindowOptions(), kernel, bias)) {
 *   window.begin(); // the center is in kernel and bias now
 *   for (int i = 0; i < minibatches; i++) {
 *     window.beforeStep();
 *     double loss = train(i); // one optimizer step, in place
 *     if (window.afterStep((i + 1.0) / minibatches, loss)) {
 *       window.end();
 *     }
 *   }
 *   window.finish();
 * }
 * }</pre>
 *
 * <p>An error ends it: later calls give the same error again, and all but {@link #abandon} change nothing more.
 * {@link Thread#interrupt} ends a call that waits with CANCELLED. Not thread-safe.
 */
public final class Window implements AutoCloseable {
  /**
   * How far a window came.
   *
   * @param steps taken
   * @param exchanges that were answered
   * @param exchanged steps that these were of
   * @param meanStaleness of the commits
   * @param exchangingSeconds that training stood still for exchanges
   */
  public record Statistics(
      long steps, long exchanges, long exchanged, double meanStaleness, double exchangingSeconds) {}

  private final Worker worker;
  private final NativeObject window;
  private final FloatBuffer[] parameters; // kept alive
  private final int results;

  /** Releases {@code used}, which the window needs, when the window is freed. */
  Window(Worker worker, long address, NativeObject used, FloatBuffer[] parameters, int metrics) {
    this.worker = worker;
    results = 1 + metrics;
    this.parameters = parameters;
    window =
        new NativeObject(
            "window",
            address,
            freed -> {
              Native.windowFree(freed);
              used.release();
            });
  }

  /**
   * Pulls the center into the parameters. Once, first.
   *
   * @throws ParamdException what a pull can end with
   */
  public void begin() {
    call(Native::windowBegin);
  }

  /**
   * Before each optimizer step.
   *
   * @throws ParamdException if the worker has ended: its model was deleted, its name taken, the daemon restarted
   */
  public void beforeStep() {
    call(Native::windowBeforeStep);
  }

  /**
   * After a step that went well.
   *
   * @param epoch the position in the data, for the worker's history: 1.5 is the second epoch's middle
   * @param results the loss, then the metrics that the options name
   * @return whether it is time for {@link #end}; it never is, where {@link #byEpoch}
   * @throws ParamdException INVALID_ARGUMENT if there are more or fewer results, or they are not finite
   */
  public boolean afterStep(double epoch, double... results) {
    Arguments.given(results, "results");
    if (results.length != this.results) {
      throw new ParamdException(
          ParamdException.Code.INVALID_ARGUMENT,
          "afterStep got " + results.length + " results instead of " + this.results
              + ": the loss, then one for each of metricNames");
    }
    final boolean[] full = new boolean[1];
    call(address -> full[0] = Native.windowAfterStep(address, epoch, results));
    return full[0];
  }

  /**
   * Tells whether the algorithm exchanges by the epoch.
   *
   * @return true: call {@link #end} at each epoch's end
   */
  public boolean byEpoch() {
    final boolean[] byEpoch = new boolean[1];
    call(address -> byEpoch[0] = Native.windowByEpoch(address));
    return byEpoch[0];
  }

  /**
   * Exchanges the window, full or not, or with overlap begins to.
   *
   * @throws ParamdException what an exchange can end with; with overlap, the one before
   */
  public void end() {
    call(Native::windowEnd);
  }

  /**
   * Exchanges what is left; nothing is under way any more.
   *
   * @throws ParamdException what an exchange can end with
   */
  public void finish() {
    call(Native::windowFinish);
  }

  /**
   * After a step that failed, in place of finish: what is under way is waited for and goes to the history; nothing more
   * is committed.
   *
   * @throws ParamdException what became of the last exchange, also if another call has thrown that before
   */
  public void abandon() {
    call(Native::windowAbandon);
  }

  /**
   * Tells how far it came.
   *
   * @return at the moment
   */
  public Statistics statistics() {
    final double[][] fields = new double[1][];
    call(address -> fields[0] = Native.windowStatistics(address));
    return new Statistics(
        (long) fields[0][0], (long) fields[0][1], (long) fields[0][2], fields[0][3], fields[0][4]);
  }

  /** Waits for an exchange under way; {@link Worker#cancel} ends that. */
  @Override
  public void close() {
    window.close();
  }

  @Override
  public String toString() {
    return "Window[of " + worker + (window.closed() ? ", closed" : "") + "]";
  }

  private void call(Worker.Call call) {
    final long address = window.acquire();
    try {
      worker.call(ofWorker -> call.run(address));
    } finally {
      window.release();
      Reference.reachabilityFence(parameters);
    }
  }
}
