package paramd;

import java.nio.FloatBuffer;
import java.time.Duration;
import java.util.function.LongUnaryOperator;

/**
 * One participant of a model. Vectors have exactly {@link #parameters} floats: buffers from position to limit, which
 * stay where they are. A direct buffer in native order goes to native code as it is; anything else is copied. A null
 * timeout is none. Errors are {@link ParamdException}s.
 *
 * <p>Thread-safe, but for one exchange at a time: initialize, pull, commit and exchange exclude each other, a second
 * caller waits for the first within its own timeout. {@link Thread#interrupt} ends a call that waits, and others of
 * this worker at that moment, with CANCELLED and the thread's interrupt status set; {@link #commitState}
 * then tells what is known of a commit, which never is applied twice. The worker can still be used.
 */
public final class Worker implements AutoCloseable {
  private static final double LEAVE_SECONDS = 10;
  private static final double LAST_CALL_SECONDS = 1;

  private final NativeObject worker;
  private final MemoryPool pool;
  private final InterruptWatch interrupts = new InterruptWatch(this::interrupted);
  private final int parameters;
  private final long incarnation;
  private final String model;

  /** Guards what follows. */
  private final Object calls = new Object();

  private int underWay;
  private boolean cancelled; // for good
  private boolean interrupted; // until no call is under way
  private boolean shared; // buffers were given out, or windows, for which it lives on
  private boolean closed;

  /** Waits for the server within the options' join timeout. */
  public static Worker join(WorkerOptions options) {
    NativeLibrary.load();
    final long canceller = Native.cancellerNew();
    final InterruptWatch watch = new InterruptWatch(() -> Native.cancellerCancel(canceller));
    try {
      final long native_ = options.toNative(canceller);
      watch.enter();
      try {
        return new Worker(new NativeObject("worker", Native.workerJoin(native_), Native::workerFree));
      } finally {
        watch.leave();
        Native.optionsFree(native_);
      }
    } finally {
      Native.cancellerFree(canceller);
    }
  }

  private Worker(NativeObject worker) {
    this.worker = worker;
    final long address = worker.acquire();
    try {
      parameters = Math.toIntExact(Native.workerParameters(address));
      incarnation = Native.workerIncarnation(address);
      model = Arguments.text(Native.workerModel(address));
    } catch (RuntimeException e) {
      worker.close();
      throw e;
    } finally {
      worker.release();
    }
    pool = new MemoryPool(parameters);
  }

  /** Floats in the center. */
  public int parameters() {
    return parameters;
  }

  public long incarnation() {
    return incarnation;
  }

  /** The model's name: an ensemble gives each worker its own. */
  public String model() {
    return model;
  }

  /** "grpc" or "shm", at the moment. */
  public String transport() {
    final long address = worker.acquire();
    try {
      return Arguments.text(Native.workerTransport(address));
    } finally {
      worker.release();
    }
  }

  /** What a float of an exchange travels as, at the moment: "f32", "f16" or "bf16". */
  public String wire() {
    final long address = worker.acquire();
    try {
      return Arguments.text(Native.workerWire(address));
    } finally {
      worker.release();
    }
  }

  /**
   * The model as it was at the join, every hyperparameter included: all that a program needs to follow its algorithm.
   */
  public ModelSpec spec() {
    final ModelSpec spec = new ModelSpec(model);
    final long address = worker.acquire();
    try {
      spec.algorithm(Arguments.text(Native.workerAlgorithm(address)));
      spec.consistency(Arguments.text(Native.workerConsistency(address)));
      for (long i = 0; i < Native.workerHyperparameters(address); i++) {
        spec.hyperparameter(
            Arguments.text(Native.workerHyperparameterName(address, i)), Native.workerHyperparameterValue(address, i));
      }
      for (long i = 0; i < Native.workerTensors(address); i++) {
        spec.tensor(Arguments.text(Native.workerTensorName(address, i)), Native.workerTensorShape(address, i));
      }
    } finally {
      worker.release();
    }
    return spec;
  }

  /**
   * The windows of a training loop of one's own. While it is open, {@link #pull}, {@link #commit} and {@link #exchange}
   * are FAILED_PRECONDITION. If the model has no center, the parameters are made that.
   *
   * @param parameters all of the model's, in its tensor order, in as many buffers as the program has: direct and in
   *     native order, from position to limit. They are read and written in the window's calls only
   */
  public Window window(WindowOptions options, FloatBuffer... parameters) {
    final FloatBuffer[] memory = new FloatBuffer[parameters.length];
    final long[] addresses = new long[parameters.length];
    final long[] lengths = new long[parameters.length];
    for (int i = 0; i < parameters.length; i++) {
      memory[i] = Arguments.direct(parameters[i], "a window's parameters");
      addresses[i] = Native.address(memory[i]) + (long) memory[i].position() * Float.BYTES;
      lengths[i] = memory[i].remaining();
    }
    synchronized (calls) {
      checkOpen();
      shared = true;
    }
    final long[] window = new long[1];
    call(address -> window[0] = options.newWindow(address, addresses, lengths));
    worker.acquire();
    return new Window(this, window[0], worker, memory, options.metrics());
  }

  /** Makes {@code center} the first center; ALREADY_EXISTS if there is another one. */
  public void initialize(FloatBuffer center, Duration timeout) {
    try (Floats from = Floats.input(center, pool)) {
      call(address -> Native.workerInitialize(address, from.address(), from.length(), Arguments.seconds(timeout)));
    }
  }

  public void initialize(float[] center, Duration timeout) {
    initialize(FloatBuffer.wrap(center), timeout);
  }

  public Exchanged pull(FloatBuffer center, Duration timeout) {
    try (Floats to = Floats.output(center, pool)) {
      final long[] exchanged = new long[2];
      call(address -> Native.workerPull(address, to.address(), to.length(), Arguments.seconds(timeout), exchanged));
      to.deliver();
      return new Exchanged(exchanged[0], exchanged[1]);
    }
  }

  public Exchanged pull(float[] center, Duration timeout) {
    return pull(FloatBuffer.wrap(center), timeout);
  }

  public Exchanged commit(FloatBuffer update, Duration timeout) {
    try (Floats from = Floats.input(update, pool)) {
      final long[] exchanged = new long[2];
      call(
          address ->
              Native.workerCommit(address, from.address(), from.length(), Arguments.seconds(timeout), exchanged));
      return new Exchanged(exchanged[0], exchanged[1]);
    }
  }

  public Exchanged commit(float[] update, Duration timeout) {
    return commit(FloatBuffer.wrap(update), timeout);
  }

  /** Commits and pulls in one round trip. The two must not overlap. */
  public Exchanged exchange(FloatBuffer update, FloatBuffer center, Duration timeout) {
    if (update.remaining() != center.remaining()) {
      throw new ParamdException(
          ParamdException.Code.INVALID_ARGUMENT,
          "the commit has " + update.remaining() + " floats and the center " + center.remaining()
              + ", but both must have the model's " + parameters);
    }
    try (Floats from = Floats.input(update, pool);
        Floats to = Floats.output(center, pool)) {
      final long[] exchanged = new long[2];
      call(
          address ->
              Native.workerExchange(
                  address, from.address(), to.address(), to.length(), Arguments.seconds(timeout), exchanged));
      to.deliver();
      return new Exchanged(exchanged[0], exchanged[1]);
    }
  }

  public Exchanged exchange(float[] update, float[] center, Duration timeout) {
    return exchange(FloatBuffer.wrap(update), FloatBuffer.wrap(center), timeout);
  }

  /**
   * Memory of the worker for updates, of the center's length, that spares a copy where floats go through shared memory;
   * null if it has none, or more than a buffer of 2 GiB can hold. What is written there stays: a call reads it only if
   * it is given it. The worker's memory lives on while such a buffer does, also after {@link #close}.
   */
  public FloatBuffer commitBuffer() {
    return buffer(Native::workerCommitBuffer);
  }

  /**
   * As {@link #commitBuffer}, for centers: holds one after a call that was given it, and until the next call of any
   * kind; after a call that failed it may still change.
   */
  public FloatBuffer centerBuffer() {
    return buffer(Native::workerCenterBuffer);
  }

  /** What became of the last commit that this worker was given. */
  public CommitState commitState() {
    final long address = worker.acquire();
    try {
      return CommitState.of(Native.workerCommitState(address));
    } finally {
      worker.release();
    }
  }

  /** Ends calls under way, and all later ones, with CANCELLED. */
  public void cancel() {
    synchronized (calls) {
      checkOpen();
      cancelled = true;
      Native.workerCancel(worker.address());
    }
  }

  /** Tells the server that this worker is done, so that nobody waits for it. Idempotent. */
  public void leave() {
    leave(null);
  }

  /** {@code error}: why the worker failed. */
  public void leave(String error) {
    final byte[] text = error == null ? null : Arguments.freeText(error);
    call(address -> Native.workerLeave(address, text, LEAVE_SECONDS));
  }

  /** Cancels and awaits calls under way, leaves if nobody did, and frees what the worker has. Idempotent. */
  @Override
  public void close() {
    final long address;
    final boolean livesOn;
    synchronized (calls) {
      if (closed) {
        return;
      }
      closed = true;
      address = worker.acquire();
      livesOn = shared;
      if (underWay > 0) {
        cancelled = true;
        Native.workerCancel(address);
      }
      boolean threadInterrupted = false;
      while (underWay > 0) {
        try {
          calls.wait();
        } catch (InterruptedException e) {
          threadInterrupted = true;
        }
      }
      if (threadInterrupted) {
        Thread.currentThread().interrupt();
      }
    }
    if (livesOn) {
      try {
        Native.workerLeave(address, null, LAST_CALL_SECONDS);
      } catch (ParamdException e) {
        // The server finds out by the lease.
      }
    }
    worker.close();
    worker.release();
    pool.close();
  }

  private FloatBuffer buffer(LongUnaryOperator find) {
    if (parameters > Integer.MAX_VALUE / Float.BYTES) {
      return null;
    }
    synchronized (calls) {
      checkOpen();
      shared = true;
    }
    final long address = worker.acquire();
    try {
      final long memory = find.applyAsLong(address);
      return memory == 0 ? null : worker.buffer(memory, parameters);
    } finally {
      worker.release();
    }
  }

  interface Call {
    void run(long address);
  }

  /** Calls native code with the worker's address: an interrupt ends it, and close waits for it. */
  void call(Call call) {
    final long address;
    synchronized (calls) {
      checkOpen();
      address = worker.acquire();
      underWay++;
    }
    try {
      interrupts.enter();
      call.run(address);
    } finally {
      interrupts.leave();
      synchronized (calls) {
        if (--underWay == 0) {
          if (interrupted && !cancelled) {
            Native.workerResume(address);
          }
          interrupted = false;
          calls.notifyAll();
        }
      }
      worker.release();
    }
  }

  private void checkOpen() {
    if (closed) {
      throw new IllegalStateException("this worker is closed; join again");
    }
  }

  /** Called while a call is under way. */
  private void interrupted() {
    synchronized (calls) {
      interrupted = true;
      Native.workerCancel(worker.address());
    }
  }
}
