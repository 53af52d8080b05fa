package paramd;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.function.Supplier;

/** A call on a thread of its own, which cancelling interrupts. Thread-safe. */
final class AsyncCall<T> extends CompletableFuture<T> implements Runnable {
  // As many threads as calls, and none that nobody needs.
  private static final Executor THREADS =
      new ThreadPoolExecutor(
          0,
          Integer.MAX_VALUE,
          1,
          TimeUnit.SECONDS,
          new SynchronousQueue<>(),
          call -> {
            final Thread thread = new Thread(call, "paramd-async");
            thread.setDaemon(true);
            return thread;
          });

  private final Supplier<T> call;
  private final Consumer<T> dispose;

  /** Guards the runner. */
  private final Object lock = new Object();

  private Thread runner; // while it is in the call

  private AsyncCall(Supplier<T> call, Consumer<T> dispose) {
    this.call = call;
    this.dispose = dispose;
  }

  static <T> CompletableFuture<T> start(Supplier<T> call) {
    return start(call, result -> {});
  }

  /** {@code dispose} gets a result that nobody will, as the future was cancelled. */
  static <T> CompletableFuture<T> start(Supplier<T> call, Consumer<T> dispose) {
    final AsyncCall<T> started = new AsyncCall<>(call, dispose);
    THREADS.execute(started);
    return started;
  }

  @Override
  public void run() {
    synchronized (lock) {
      if (isDone()) {
        return;
      }
      runner = Thread.currentThread();
    }
    T result = null;
    Throwable thrown = null;
    try {
      result = call.get();
    } catch (Throwable e) {
      thrown = e;
    }
    synchronized (lock) {
      runner = null;
      Thread.interrupted();
    }
    if (thrown == null) {
      if (!complete(result)) {
        dispose.accept(result);
      }
    } else {
      completeExceptionally(thrown);
    }
  }

  @Override
  public boolean cancel(boolean mayInterruptIfRunning) {
    final boolean cancelled = super.cancel(mayInterruptIfRunning);
    synchronized (lock) {
      if (cancelled && runner != null) {
        runner.interrupt();
      }
    }
    return cancelled;
  }
}
