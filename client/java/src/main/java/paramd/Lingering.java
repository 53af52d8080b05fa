package paramd;

import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Supplier;

/**
 * Counts memory of closed objects that buffers which they gave out still keep, and has it collected before more is asked
 * for, as the class library does for direct buffers. Thread-safe.
 */
final class Lingering {
  private static final long LIMIT_BYTES = 256L << 20;
  private static final int PATIENCE_MILLIS = 500;

  private static final AtomicLong BYTES = new AtomicLong();

  private Lingering() {}

  static void add(long bytes) {
    BYTES.addAndGet(bytes);
  }

  static void remove(long bytes) {
    BYTES.addAndGet(-bytes);
  }

  static long bytes() {
    return BYTES.get();
  }

  /** What {@code make} gives; it is called again if there was no memory, and some could be collected. */
  static <T> T withRoom(Supplier<T> make) {
    if (BYTES.get() > LIMIT_BYTES) {
      collect(LIMIT_BYTES);
    }
    try {
      return make.get();
    } catch (ParamdException e) {
      final long before = BYTES.get();
      if (e.code() != ParamdException.Code.RESOURCE_EXHAUSTED || before == 0) {
        throw e;
      }
      collect(0);
      if (BYTES.get() >= before) {
        throw e;
      }
      return make.get();
    }
  }

  /** Returns once no more than {@code wanted} is left, or the collector has had its time. */
  private static void collect(long wanted) {
    System.gc();
    try {
      for (int waited = 0, pause = 1; BYTES.get() > wanted && waited < PATIENCE_MILLIS; waited += pause, pause *= 2) {
        Thread.sleep(pause);
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }
}
