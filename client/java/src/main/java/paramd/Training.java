package paramd;

import java.lang.ref.Reference;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;

/** The training of one worker. */
public final class Training {
  private Training() {}

  /**
   * Does all that a worker does: joins, initializes the center with the model's parameters if it is the first, trains
   * with the algorithm that the server names, reports history, and leaves, with the error if there was one. What model
   * or source throw ends it, and is the cause of its exception. {@link Thread#interrupt} ends it with CANCELLED, and
   * the thread's interrupt status set; a source that is in a call is interrupted then, too.
   *
   * @param model an {@link Mlp} trains in native code alone
   */
  public static TrainSummary run(
      WorkerOptions options, TrainOptions trainOptions, Trainable model, BatchSource source) {
    try (NativeObject canceller = new NativeObject("canceller", Native.cancellerNew(), Native::cancellerFree)) {
      final InterruptWatch interrupts = new InterruptWatch(() -> cancel(canceller));
      final long native_ = options.toNative(canceller.address());
      try {
        return model instanceof Mlp mlp
            ? train(native_, trainOptions, mlp, source, interrupts)
            : train(native_, trainOptions, model, source, interrupts);
      } finally {
        Native.optionsFree(native_);
      }
    }
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
    final FloatBuffer parameters = model.parameters();
    if (!parameters.isDirect() || parameters.order() != ByteOrder.nativeOrder() || parameters.isReadOnly()) {
      throw new IllegalArgumentException(
          "parameters() must give a direct buffer in native byte order that can be written, as"
              + " ByteBuffer.allocateDirect(n).order(ByteOrder.nativeOrder()).asFloatBuffer()");
    }
    final String[] names = model.metricNames();
    final byte[][] metricNames = new byte[names.length][];
    for (int i = 0; i < names.length; i++) {
      metricNames[i] = Arguments.utf8(names[i]);
    }
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
      throw calls.failure() == null ? e : new ParamdException(e.code(), e.getMessage(), calls.failure());
    } finally {
      interrupts.leave();
    }
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
