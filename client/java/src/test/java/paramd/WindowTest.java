package paramd;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

@Timeout(120)
class WindowTest extends ServerTest {
  private static Worker join(String model, String algorithm, String transport) {
    return Worker.join(
        new WorkerOptions(server.address(), model, "a")
            .create(new ModelSpec(model).tensor("w", 4).tensor("b").algorithm(algorithm))
            .transport(transport)
            .joinTimeout(Await.TIMEOUT));
  }

  private static FloatBuffer direct(int floats) {
    return ByteBuffer.allocateDirect(floats * Float.BYTES).order(ByteOrder.nativeOrder()).asFloatBuffer();
  }

  private static void addOne(FloatBuffer floats) {
    for (int i = 0; i < floats.limit(); i++) {
      floats.put(i, floats.get(i) + 1);
    }
  }

  @ParameterizedTest
  @CsvSource({"false,grpc", "false,shm", "true,grpc", "true,shm"})
  void aLoopOfOnesOwnExchangesByWindows(boolean overlap, String transport) {
    final String model = "loop-" + overlap + transport;
    final FloatBuffer weights = direct(4);
    final FloatBuffer bias = direct(1);
    try (Worker worker = join(model, "downpour", transport)) {
      final WindowOptions options =
          new WindowOptions().communicationWindow(3).overlap(overlap).metricNames("half");
      try (Window window = worker.window(options, weights, bias)) {
        window.begin();
        assertFalse(window.byEpoch());
        for (double[] wrong : new double[][] {{}, {1}, {1, 2, 3}}) {
          assertEquals(
              ParamdException.Code.INVALID_ARGUMENT,
              assertThrows(ParamdException.class, () -> window.afterStep(0, wrong)).code());
        }
        for (int step = 1; step <= 10; step++) {
          window.beforeStep();
          addOne(weights);
          addOne(bias);
          final boolean full = window.afterStep(step / 10.0, step, step / 2.0);
          assertEquals(step % 3 == 0, full);
          if (full) {
            window.end();
          }
        }
        assertEquals(
            ParamdException.Code.FAILED_PRECONDITION,
            assertThrows(ParamdException.class, () -> worker.pull(new float[5], Await.TIMEOUT)).code());
        window.finish();
        final Window.Statistics statistics = window.statistics();
        assertEquals(10, statistics.steps());
        assertEquals(10, statistics.exchanged());
        assertEquals(4, statistics.exchanges());
      }
      assertEquals(10, bias.get(0));
      final float[] center = new float[5];
      assertEquals(4, worker.pull(center, Await.TIMEOUT).version());
      assertArrayEquals(new float[] {10, 10, 10, 10, 10}, center);
    }
    try (Admin admin = Admin.connect(server.address(), Await.TIMEOUT)) {
      final History.Series series = admin.history(model, false).series().get(0);
      assertArrayEquals(new String[] {"half"}, series.metricNames());
      assertEquals(10, series.records().size());
      assertEquals(5, series.records().get(9).metrics()[0]);
    }
  }

  @Test
  void anAlgorithmMayExchangeByTheEpoch() {
    final FloatBuffer all = direct(5);
    try (Worker worker = join("epochs", "averaging", "auto");
        Window window = worker.window(new WindowOptions(), all)) {
      window.begin();
      assertEquals(true, window.byEpoch());
      for (int step = 0; step < 30; step++) {
        window.beforeStep();
        addOne(all);
        assertFalse(window.afterStep(1, 0));
      }
      window.end();
      assertEquals(1, window.statistics().exchanges());
    }
  }

  @Test
  void anErrorEndsAWindowAndAbandoningItReportsWhatWasExchanged() {
    final FloatBuffer all = direct(5);
    try (Worker worker = join("ends", "downpour", "auto")) {
      assertThrows(ParamdException.class, () -> worker.window(new WindowOptions(), FloatBuffer.allocate(5)));
      assertEquals(
          ParamdException.Code.INVALID_ARGUMENT,
          assertThrows(ParamdException.class, () -> worker.window(new WindowOptions(), direct(4))).code());
      try (Window window = worker.window(new WindowOptions().communicationWindow(1).overlap(true), all)) {
        window.begin();
        window.beforeStep();
        addOne(all);
        window.afterStep(0, 1);
        window.end();
        window.abandon();
        assertEquals(1, window.statistics().exchanged());
        assertThrows(ParamdException.class, window::beforeStep);
      }
    }
  }

  @Test
  void aWindowLivesThroughTheEndOfItsWorker() {
    final FloatBuffer all = direct(5);
    final Worker worker = join("outlives", "downpour", "auto");
    final Window window = worker.window(new WindowOptions().communicationWindow(1).overlap(true), all);
    window.begin();
    window.beforeStep();
    window.afterStep(0, 1);
    window.end();
    worker.close();
    assertThrows(IllegalStateException.class, window::beforeStep);
    window.close();
    window.close();
    assertThrows(IllegalStateException.class, window::finish);
  }
}
