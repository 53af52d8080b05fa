package paramd;

import static org.junit.jupiter.api.Assertions.fail;

import java.time.Duration;
import java.util.function.BooleanSupplier;

final class Await {
  static final Duration TIMEOUT = Duration.ofSeconds(60);

  private Await() {}

  /** Fails the test if {@code condition} does not become true. */
  static void until(String what, BooleanSupplier condition) throws InterruptedException {
    final long begin = System.nanoTime();
    while (!condition.getAsBoolean()) {
      if (System.nanoTime() - begin > TIMEOUT.toNanos()) {
        fail("not within " + TIMEOUT + ": " + what);
      }
      Thread.sleep(5);
    }
  }
}
