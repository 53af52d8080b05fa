package paramd;

import java.nio.FloatBuffer;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
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
  private static final double LAST_CALL_SECONDS = 1;
  private static final Duration LEAVE = Duration.ofSeconds(10);

  private final NativeObject worker;
  private final MemoryPool pool;
  private final LentMemory lent;
  private final InterruptWatch interrupts = new InterruptWatch(this::interrupted);
  private final int parameters;
  private final long incarnation;
  private final String model;

  /** Guards what follows. */
  private final Object calls = new Object();

  private int underWay;
  private boolean cancelled; // for good
  private boolean interrupted; // until no call is under way
  private boolean windowed; // a window was made, which may live on
  private boolean closed;

  /**
   * Joins a model. Waits for the server within the options' join timeout.
   *
   * @param options which model, as whom, and how; may be used again
   * @return the worker, which is to be closed
   * @throws ParamdException NOT_FOUND if there is no such model, and no spec to create it with; ALREADY_EXISTS if it is
   *     another one than the spec's; ABORTED if a newer incarnation of the worker has joined; DEADLINE_EXCEEDED if the
   *     server did not come up; INVALID_ARGUMENT for options that can't be; RESOURCE_EXHAUSTED if the server has as
   *     many models or workers as it may; OUT_OF_RANGE if the model is larger than a buffer can be; UNAVAILABLE if
   *     there is no shared memory and the transport is shm, or native code can't be loaded; CANCELLED if the thread is
   *     interrupted
   */
  public static Worker join(WorkerOptions options) {
    Arguments.given(options, "options");
    NativeLibrary.load();
    return Lingering.withRoom(() -> joinOnce(options));
  }

  /**
   * Joins a model on a thread of its own.
   *
   * @param options as {@link #join}'s
   * @return completed as {@link #join} ends; cancelling it ends the join. A worker that joined all the same is closed
   */
  public static CompletableFuture<Worker> joinAsync(WorkerOptions options) {
    Arguments.given(options, "options");
    return AsyncCall.start(() -> join(options), Worker::close);
  }

  private static Worker joinOnce(WorkerOptions options) {
    final long canceller = Native.cancellerNew();
    final InterruptWatch watch = new InterruptWatch(() -> Native.cancellerCancel(canceller));
    long listener = 0;
    try {
      listener = Native.listenerNew(options.events());
      final long native_ = options.toNative(canceller, listener);
      final long joined;
      watch.enter();
      try {
        joined = Native.workerJoin(native_);
      } finally {
        watch.leave();
        Native.optionsFree(native_);
      }
      final long told = listener;
      listener = 0; // the worker's now
      return new Worker(joined, told);
    } finally {
      Native.listenerFree(listener);
      Native.cancellerFree(canceller);
    }
  }

  private Worker(long joined, long listener) {
    final long floats = Native.workerParameters(joined);
    final LentMemory buffers = new LentMemory(2 * Float.BYTES * floats);
    lent = buffers;
    worker =
        new NativeObject(
            "worker",
            joined,
            address -> {
              buffers.takeFrom(address);
              Native.workerFree(address);
              Native.listenerFree(listener);
            });
    try {
      model = Arguments.text(Native.workerModel(joined));
      if (floats > Integer.MAX_VALUE) {
        throw new ParamdException(
            ParamdException.Code.OUT_OF_RANGE,
            "model '" + model + "' has " + floats + " parameters, and an array or a buffer of Java holds at most "
                + Integer.MAX_VALUE + "; train it from C++");
      }
      parameters = (int) floats;
      incarnation = Native.workerIncarnation(joined);
    } catch (RuntimeException e) {
      worker.close();
      throw e;
    }
    pool = new MemoryPool(parameters);
  }

  /**
   * Counts the floats in the center.
   *
   * @return the length of all vectors
   */
  public int parameters() {
    return parameters;
  }

  /**
   * Tells this worker's incarnation.
   *
   * @return at least 1
   */
  public long incarnation() {
    return incarnation;
  }

  /**
   * Names the model.
   *
   * @return an ensemble gives each worker its own
   */
  public String model() {
    return model;
  }

  /**
   * Tells how exchanges travel at the moment.
   *
   * @return {@code grpc} or {@code shm}
   */
  public String transport() {
    final long address = worker.acquire();
    try {
      return Arguments.text(Native.workerTransport(address));
    } finally {
      worker.release();
    }
  }

  /**
   * Tells what a float of an exchange travels as at the moment.
   *
   * @return {@code f32}, {@code f16} or {@code bf16}
   */
  public String wire() {
    final long address = worker.acquire();
    try {
      return Arguments.text(Native.workerWire(address));
    } finally {
      worker.release();
    }
  }

  /**
   * The model as it was at the join: all that a program needs to follow its algorithm.
   *
   * @return a copy, with every hyperparameter
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
   * @param options how to exchange
   * @param parameters all of the model's, in its tensor order, in as many buffers as the program has: direct and in
   *     native order, from position to limit. They are read and written in the window's calls only
   * @return the window, which is to be closed before the worker
   * @throws ParamdException INVALID_ARGUMENT if the parameters are not as many as the model's; NOT_FOUND if this library
   *     does not know the algorithm; what setting a first center can end with
   */
  public Window window(WindowOptions options, FloatBuffer... parameters) {
    Arguments.given(options, "options");
    Arguments.given(parameters, "parameters");
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
      windowed = true;
    }
    final long[] window = new long[1];
    call(address -> window[0] = options.newWindow(address, addresses, lengths));
    worker.acquire();
    return new Window(this, window[0], worker, memory, options.metrics());
  }

  /**
   * Makes a vector the first center.
   *
   * @param center {@link #parameters} floats, from position to limit
   * @param timeout of the whole call
   * @throws ParamdException ALREADY_EXISTS if there is another one; INVALID_ARGUMENT for another length, NaN or
   *     infinity; else as {@link #exchange}
   */
  public void initialize(FloatBuffer center, Duration timeout) {
    try (Floats from = Floats.input(Arguments.given(center, "center"), pool)) {
      call(address -> Native.workerInitialize(address, from.address(), from.length(), Arguments.seconds(timeout)));
    }
  }

  /**
   * Makes a vector the first center.
   *
   * @param center {@link #parameters} floats
   * @param timeout of the whole call
   * @throws ParamdException as {@link #initialize(FloatBuffer, Duration)}
   */
  public void initialize(float[] center, Duration timeout) {
    initialize(FloatBuffer.wrap(Arguments.given(center, "center")), timeout);
  }

  /**
   * Reads the center. Waits for a first one.
   *
   * @param center {@link #parameters} floats, from position to limit: is written, and holds nothing useful after an
   *     error
   * @param timeout of the whole call
   * @return the center's version
   * @throws ParamdException as {@link #exchange(FloatBuffer, FloatBuffer, Duration)}
   */
  public Exchanged pull(FloatBuffer center, Duration timeout) {
    try (Floats to = Floats.output(Arguments.given(center, "center"), pool)) {
      final long[] exchanged = new long[2];
      call(address -> Native.workerPull(address, to.address(), to.length(), Arguments.seconds(timeout), exchanged));
      to.deliver();
      return new Exchanged(exchanged[0], exchanged[1]);
    }
  }

  /**
   * Reads the center. Waits for a first one.
   *
   * @param center {@link #parameters} floats: is written
   * @param timeout of the whole call
   * @return the center's version
   * @throws ParamdException as {@link #exchange(FloatBuffer, FloatBuffer, Duration)}
   */
  public Exchanged pull(float[] center, Duration timeout) {
    return pull(FloatBuffer.wrap(Arguments.given(center, "center")), timeout);
  }

  /**
   * Reads the center on a thread of its own.
   *
   * @param center as {@link #pull}'s; nobody else may use it meanwhile
   * @param timeout of the whole call
   * @return completed as {@link #pull} ends; cancelling it interrupts the call
   */
  public CompletableFuture<Exchanged> pullAsync(FloatBuffer center, Duration timeout) {
    return AsyncCall.start(() -> pull(center, timeout));
  }

  /**
   * Commits an update; returns once it is applied, and the model's consistency lets this worker go on.
   *
   * @param update {@link #parameters} floats, from position to limit, as the algorithm wants them
   * @param timeout of the whole call
   * @return the center's version after it, and how stale it was
   * @throws ParamdException as {@link #exchange(FloatBuffer, FloatBuffer, Duration)}
   */
  public Exchanged commit(FloatBuffer update, Duration timeout) {
    try (Floats from = Floats.input(Arguments.given(update, "update"), pool)) {
      final long[] exchanged = new long[2];
      call(
          address ->
              Native.workerCommit(address, from.address(), from.length(), Arguments.seconds(timeout), exchanged));
      return new Exchanged(exchanged[0], exchanged[1]);
    }
  }

  /**
   * Commits an update; returns once it is applied, and the model's consistency lets this worker go on.
   *
   * @param update {@link #parameters} floats, as the algorithm wants them
   * @param timeout of the whole call
   * @return the center's version after it, and how stale it was
   * @throws ParamdException as {@link #exchange(FloatBuffer, FloatBuffer, Duration)}
   */
  public Exchanged commit(float[] update, Duration timeout) {
    return commit(FloatBuffer.wrap(Arguments.given(update, "update")), timeout);
  }

  /**
   * Commits an update on a thread of its own.
   *
   * @param update as {@link #commit}'s; nobody else may write it meanwhile
   * @param timeout of the whole call
   * @return completed as {@link #commit} ends; cancelling it interrupts the call
   */
  public CompletableFuture<Exchanged> commitAsync(FloatBuffer update, Duration timeout) {
    return AsyncCall.start(() -> commit(update, timeout));
  }

  /**
   * Commits and pulls in one round trip. The two must not overlap.
   *
   * @param update {@link #parameters} floats, from position to limit, as the algorithm wants them
   * @param center as many: is written, and holds nothing useful after an error
   * @param timeout of the whole call
   * @return the pulled center's version, and how stale the commit was
   * @throws ParamdException INVALID_ARGUMENT for another length, NaN, infinity or what is too large for the wire;
   *     DEADLINE_EXCEEDED, UNAVAILABLE, RESOURCE_EXHAUSTED or CANCELLED: {@link #commitState} says what became of the
   *     commit; ABORTED or NOT_FOUND: worker, model or daemon are not any more what this joined; FAILED_PRECONDITION
   *     after a leave, while a window is open, or if the model has a problem
   */
  public Exchanged exchange(FloatBuffer update, FloatBuffer center, Duration timeout) {
    Arguments.given(update, "update");
    Arguments.given(center, "center");
    Arguments.check(
        update.remaining() == center.remaining(),
        "the commit has " + update.remaining() + " floats and the center " + center.remaining()
            + ", but both must have the model's " + parameters);
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

  /**
   * Commits and pulls in one round trip.
   *
   * @param update {@link #parameters} floats, as the algorithm wants them
   * @param center as many, of another array: is written, and holds nothing useful after an error
   * @param timeout of the whole call
   * @return the pulled center's version, and how stale the commit was
   * @throws ParamdException as {@link #exchange(FloatBuffer, FloatBuffer, Duration)}
   */
  public Exchanged exchange(float[] update, float[] center, Duration timeout) {
    return exchange(
        FloatBuffer.wrap(Arguments.given(update, "update")),
        FloatBuffer.wrap(Arguments.given(center, "center")),
        timeout);
  }

  /**
   * Exchanges on a thread of its own.
   *
   * @param update as {@link #exchange}'s; nobody else may write it meanwhile
   * @param center as {@link #exchange}'s; nobody else may use it meanwhile
   * @param timeout of the whole call
   * @return completed as {@link #exchange} ends; cancelling it interrupts the call
   */
  public CompletableFuture<Exchanged> exchangeAsync(FloatBuffer update, FloatBuffer center, Duration timeout) {
    return AsyncCall.start(() -> exchange(update, center, timeout));
  }

  /**
   * Memory of the worker for updates that spares a copy where floats go through shared memory. What is written there
   * stays: a call reads it only if it is given it. Its memory lives on while such a buffer is referred to, also after
   * {@link #close}; {@link #closeWithBuffers} ends it.
   *
   * @return {@link #parameters} floats; null if the worker has none, or more than a buffer of 2 GiB can hold
   */
  public FloatBuffer commitBuffer() {
    return buffer(Native::workerCommitBuffer);
  }

  /**
   * As {@link #commitBuffer}, for centers: holds one after a call that was given it, and until the next call of any
   * kind; after a call that failed it may still change.
   *
   * @return {@link #parameters} floats; null if the worker has none, or more than a buffer of 2 GiB can hold
   */
  public FloatBuffer centerBuffer() {
    return buffer(Native::workerCenterBuffer);
  }

  /**
   * Tells what became of the last commit that this worker was given.
   *
   * @return NONE before the first one
   */
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

  /**
   * Tells the server that this worker is done, so that nobody waits for it: within ten seconds, or the options' RPC
   * timeout if that is shorter. Idempotent.
   *
   * @throws ParamdException DEADLINE_EXCEEDED or UNAVAILABLE if the server can't be told: it finds out by the lease
   */
  public void leave() {
    leave(null, LEAVE);
  }

  /**
   * Leaves within some time.
   *
   * @param timeout of the whole call
   * @throws ParamdException as {@link #leave()}
   */
  public void leave(Duration timeout) {
    leave(null, timeout);
  }

  /**
   * Leaves, within as long as {@link #leave()}, and tells why the worker failed.
   *
   * @param error null if it did not fail
   * @throws ParamdException as {@link #leave()}
   */
  public void leave(String error) {
    leave(error, LEAVE);
  }

  /**
   * Leaves within some time, and tells why the worker failed.
   *
   * @param error null if it did not fail
   * @param timeout of the whole call
   * @throws ParamdException as {@link #leave()}
   */
  public void leave(String error, Duration timeout) {
    final byte[] text = error == null ? null : Arguments.freeText(error);
    call(address -> Native.workerLeave(address, text, Arguments.seconds(timeout)));
  }

  /**
   * Cancels and awaits calls under way, leaves if nobody did, and frees what the worker has: connection and threads at
   * once, and memory unless {@link #commitBuffer} or {@link #centerBuffer} are still referred to. Leaving takes a
   * second at most. Idempotent.
   */
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
      livesOn = windowed;
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

  /**
   * As {@link #close}, and gives the memory of {@link #commitBuffer} and {@link #centerBuffer} back at once: such a
   * buffer is zero from then on. Also after {@link #close}.
   */
  public void closeWithBuffers() {
    close();
    lent.clear();
  }

  @Override
  public String toString() {
    final boolean ended;
    synchronized (calls) {
      ended = closed;
    }
    return "Worker[of model '" + model + "', incarnation=" + incarnation + ", " + parameters + " parameters"
        + (ended ? ", closed" : "") + "]";
  }

  private FloatBuffer buffer(LongUnaryOperator find) {
    if (parameters > Integer.MAX_VALUE / Float.BYTES) {
      return null;
    }
    synchronized (calls) {
      checkOpen();
    }
    final long address = worker.acquire();
    try {
      final long memory = find.applyAsLong(address);
      return memory == 0 ? null : lent.lend(memory, parameters);
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
