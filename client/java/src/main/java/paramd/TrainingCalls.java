package paramd;

import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;

/**
 * What native code calls while it trains. Nothing here throws: the first exception is kept, and the call returns the
 * number of its code, which ends the training. Model and source see ordinary interrupts.
 */
final class TrainingCalls {
  private static final int OK = 0;

  private final Trainable model; // null for an mlp
  private final double[] results;
  private final BatchSource source;
  private final InterruptWatch interrupts;
  private final Thread trainer = Thread.currentThread();
  private final ClassLoader contextClassLoader = trainer.getContextClassLoader();
  private final Batch trained = new Batch();
  private final Batch read = new Batch();
  private final Queue<List<Object>> inputs = new ConcurrentLinkedQueue<>(); // of what was read and is not trained yet

  /** Guards what follows. */
  private final Object lock = new Object();

  private Throwable failure;
  private Thread reader; // while it is in the source

  /** {@code interrupts}: entered by the thread that trains, whenever it is in native code. */
  TrainingCalls(Trainable model, int metrics, BatchSource source, InterruptWatch interrupts) {
    this.model = model;
    results = new double[1 + metrics];
    this.source = source;
    this.interrupts = interrupts;
  }

  /** What a call of model or source threw, or null. */
  Throwable failure() {
    synchronized (lock) {
      return failure;
    }
  }

  /** Of the first failure. */
  byte[] failureMessage() {
    final Throwable thrown = failure();
    return Arguments.utf8(String.valueOf(thrown).replace('\0', ' '));
  }

  /** Copies the batch, and leaves loss and metrics in {@link #results}. */
  int trainOnBatch(long rows, long features, long featureFloats, long labels, long labelFloats) {
    return inModel(
        () -> {
          trained.resize(Math.toIntExact(rows), Math.toIntExact(featureFloats), Math.toIntExact(labelFloats));
          Native.copy(features, Native.address(trained.features()), featureFloats * Float.BYTES);
          Native.copy(labels, Native.address(trained.labels()), labelFloats * Float.BYTES);
          trained.setInputs(inputs.remove().toArray());
          final double[] step = model.trainOnBatch(trained);
          Arguments.check(
              step != null && step.length == results.length,
              "trainOnBatch returned " + (step == null ? "null" : step.length + " results") + " instead of "
                  + results.length + " results: the loss, then one for each of metricNames()");
          System.arraycopy(step, 0, results, 0, step.length);
        });
  }

  double[] results() {
    return results;
  }

  /** Of no use after a failure, which the next step then reports. */
  double learningRate() {
    final double[] rate = {Double.NaN};
    inModel(() -> rate[0] = model.learningRate());
    return rate[0];
  }

  void setLearningRate(double learningRate) {
    inModel(() -> model.setLearningRate(learningRate));
  }

  /**
   * Sets rows, address of features, their number, address of labels, their number; rows −1 at the epoch's end. Of sparse
   * rows then the number of values, else −1, and the addresses of starts, columns and values.
   */
  int next(long[] batch) {
    return inSource(
        () -> {
          read.setInputs();
          if (!source.next(read)) {
            batch[0] = -1;
            return;
          }
          if (model != null) {
            if (read.isSparse()) {
              throw new ParamdException(
                  ParamdException.Code.INVALID_ARGUMENT, "the source gives sparse rows, which only an Mlp takes");
            }
            inputs.add(read.inputs());
          }
          batch[0] = read.rows();
          batch[1] = Native.address(read.features());
          batch[2] = read.features().limit();
          batch[3] = Native.address(read.labels());
          batch[4] = read.labels().limit();
          batch[5] = read.isSparse() ? read.values().limit() : -1;
          batch[6] = Native.address(read.rowStarts());
          batch[7] = Native.address(read.columns());
          batch[8] = Native.address(read.values());
        });
  }

  int rewind(long epoch) {
    return inSource(() -> source.rewind(epoch));
  }

  long batchesPerEpoch() {
    final long[] batches = new long[1];
    inModel(
        () -> {
          final long given = source.batchesPerEpoch();
          Arguments.check(given >= 0, "batchesPerEpoch() is " + given + "; 0 is unknown, and it can't be negative");
          batches[0] = given;
        });
    return batches[0];
  }

  /** Also interrupts a source that is in a call: it may wait for something that does not know of cancel. */
  void cancel() {
    try {
      source.cancel();
    } catch (Throwable e) {
      fail(e);
    }
    synchronized (lock) {
      if (reader != null) {
        reader.interrupt();
      }
    }
  }

  private interface Code {
    void run() throws Exception;
  }

  private int inModel(Code code) {
    final boolean watched = Thread.currentThread() == trainer;
    if (watched) {
      interrupts.leave();
    }
    try {
      final Throwable earlier = failure();
      if (earlier != null) {
        return number(earlier);
      }
      code.run();
      return OK;
    } catch (Throwable e) {
      return fail(e);
    } finally {
      if (watched) {
        interrupts.enter();
      }
    }
  }

  private int inSource(Code code) {
    final Thread thread = Thread.currentThread();
    thread.setContextClassLoader(contextClassLoader);
    synchronized (lock) {
      reader = thread;
    }
    try {
      code.run();
      return OK;
    } catch (Throwable e) {
      // No failure: the source has no more.
      return e instanceof ParamdException known && known.code() == ParamdException.Code.OUT_OF_RANGE
          ? number(e)
          : fail(e);
    } finally {
      synchronized (lock) {
        reader = null;
        Thread.interrupted();
      }
    }
  }

  private int fail(Throwable e) {
    synchronized (lock) {
      if (failure == null) {
        failure = e;
      }
    }
    if (e instanceof InterruptedException && Thread.currentThread() == trainer) {
      trainer.interrupt();
    }
    return number(e);
  }

  private static int number(Throwable e) {
    final ParamdException.Code code =
        e instanceof ParamdException known && known.code() != ParamdException.Code.OK
            ? known.code()
            : e instanceof InterruptedException ? ParamdException.Code.CANCELLED : ParamdException.Code.INTERNAL;
    return code.ordinal();
  }
}
