package paramd;

import java.lang.ref.Reference;
import java.nio.FloatBuffer;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;

/** The training of one worker. */
public final class Training {
  private Training() {}

  /**
   * Does all that a worker does: joins, initializes the center with the model's parameters if it is the first, trains
   * with the algorithm that the server names, reports history, and leaves, with the error if there was one. {@link
   * Thread#interrupt} ends it with CANCELLED, and the thread's interrupt status set; a source that is in a call is
   * interrupted then, too.
   *
   * @param options how to join
   * @param trainOptions how to train
   * @param model an {@link Mlp} trains in native code alone
   * @param source of minibatches
   * @return how it went
   * @throws ParamdException whose {@link ParamdException#summary} tells how far it came, and whose cause is what model
   *     or source threw, if they did: what a join or an exchange can end with; INVALID_ARGUMENT for options, batches
   *     and a loss that can't be; INTERNAL, or its own code, for what model or source threw
   */
  public static TrainSummary run(
      WorkerOptions options, TrainOptions trainOptions, Trainable model, BatchSource source) {
    NativeLibrary.load();
    Arguments.given(options, "options");
    Arguments.given(trainOptions, "trainOptions");
    Arguments.given(model, "model");
    Arguments.given(source, "source");
    final long listener = Native.listenerNew(options.events());
    try (NativeObject canceller = new NativeObject("canceller", Native.cancellerNew(), Native::cancellerFree)) {
      final InterruptWatch interrupts = new InterruptWatch(() -> cancel(canceller));
      final long native_ = options.toNative(canceller.address(), listener);
      try {
        return model instanceof Mlp mlp
            ? train(native_, trainOptions, mlp, source, interrupts)
            : train(native_, trainOptions, model, source, interrupts);
      } finally {
        Native.optionsFree(native_);
      }
    } finally {
      Native.listenerFree(listener);
    }
  }

  /**
   * Runs on a thread of its own.
   *
   * @param options as {@link #run}'s
   * @param trainOptions as {@link #run}'s
   * @param model as {@link #run}'s
   * @param source as {@link #run}'s
   * @return completed as {@link #run} ends; cancelling it interrupts the training
   */
  public static CompletableFuture<TrainSummary> runAsync(
      WorkerOptions options, TrainOptions trainOptions, Trainable model, BatchSource source) {
    return AsyncCall.start(() -> run(options, trainOptions, model, source));
  }

  /** On a thread of its own: it calls the source, and the thread that interrupts must not wait for that. */
  private static void cancel(NativeObject canceller) {
    final long address = canceller.acquire();
    final Thread thread =
        new Thread(
            () -> {
              Native.cancellerCancel(address);
              canceller.release();
            },
            "paramd-cancel");
    thread.setDaemon(true);
    thread.start();
  }

  private static TrainSummary train(
      long options, TrainOptions trainOptions, Mlp mlp, BatchSource source, InterruptWatch interrupts) {
    final NativeObject used = mlp.nativeObject();
    final long address = used.acquire();
    try {
      return train(
          options,
          trainOptions,
          address,
          new TrainingCalls(null, 0, source, interrupts),
          0,
          0,
          new byte[0][],
          interrupts);
    } finally {
      used.release();
    }
  }

  private static TrainSummary train(
      long options, TrainOptions trainOptions, Trainable model, BatchSource source, InterruptWatch interrupts) {
    final FloatBuffer parameters = Arguments.direct(guarded("parameters", model::parameters), "what parameters() gives");
    final String[] names = guarded("metricNames", model::metricNames);
    final byte[][] metricNames = Arguments.utf8(names);
    try {
      return train(
          options,
          trainOptions,
          0,
          new TrainingCalls(model, names.length, source, interrupts),
          Native.address(parameters) + (long) parameters.position() * Float.BYTES,
          parameters.remaining(),
          metricNames,
          interrupts);
    } finally {
      Reference.reachabilityFence(parameters);
    }
  }

  private static TrainSummary train(
      long options,
      TrainOptions trainOptions,
      long mlp,
      TrainingCalls calls,
      long parameters,
      long floats,
      byte[][] metricNames,
      InterruptWatch interrupts) {
    final double[] summary = new double[9];
    interrupts.enter();
    try {
      Native.train(options, trainOptions.toNative(), mlp, calls, parameters, floats, metricNames, summary);
    } catch (ParamdException e) {
      final Throwable cause = calls.failure() == null ? e.getCause() : calls.failure();
      throw new ParamdException(e.code(), e.getMessage(), cause, summaryOf(summary));
    } finally {
      interrupts.leave();
    }
    return summaryOf(summary);
  }

  /** What the model's method gives; what it throws instead is the cause, as of one that is called in training. */
  private static <T> T guarded(String method, Supplier<T> call) {
    try {
      return Arguments.given(call.get(), "what it gives");
    } catch (RuntimeException | Error e) {
      final ParamdException.Code code = e instanceof ParamdException known ? known.code() : ParamdException.Code.INTERNAL;
      throw new ParamdException(code, "the model's " + method + "(): " + e, e);
    }
  }

  private static TrainSummary summaryOf(double[] summary) {
    return new TrainSummary(
        (long) summary[0],
        (long) summary[1],
        (long) summary[2],
        (long) summary[3],
        summary[4],
        summary[5],
        summary[6],
        summary[7],
        summary[8] != 0);
  }
}
