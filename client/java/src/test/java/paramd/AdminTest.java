package paramd;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(120)
class AdminTest {
  private static final Duration TIMEOUT = Duration.ofSeconds(30);

  @Test
  void aModelIsCreatedTrainedDescribedAndDeleted() {
    try (ParamdServer server = ParamdServer.start(new ServerOptions());
        Admin admin = Admin.connect(server.address(), TIMEOUT)) {
      final ModelSpec spec =
          new ModelSpec("size")
              .tensor("größe", 2, 2)
              .tensor("b")
              .algorithm("downpour")
              .consistency("bounded:3")
              .hyperparameter("learning_rate", 0.5);
      admin.createModel(spec);
      admin.createModel(spec);
      assertEquals(new ModelInfo(0, 5, false, 0, 0, 0, 0, 0, 0), admin.model("size"));
      final ModelSpec other = new ModelSpec("size").tensor("w", 1).algorithm("adag");
      assertEquals(
          ParamdException.Code.ALREADY_EXISTS,
          assertThrows(ParamdException.class, () -> admin.createModel(other)).code());
      admin.initialize("size", new float[] {1, 2, 3, 4, 5});
      try (Worker a = Worker.join(new WorkerOptions(server.address(), "size", "a"));
          Worker b = Worker.join(new WorkerOptions(server.address(), "size", "b"))) {
        a.pull(new float[5], TIMEOUT);
        b.pull(new float[5], TIMEOUT);
        a.commit(new float[] {1, 0, 0, 0, 0}, TIMEOUT);
        b.commit(new float[] {1, 0, 0, 0, 0}, TIMEOUT);
        final ModelInfo info = admin.model("size");
        assertEquals(2, info.version());
        assertEquals(2, info.commits());
        assertEquals(2, info.liveWorkers());
        assertEquals(0.5, info.meanStaleness());
        assertTrue(info.initialized());
      }
      final long[] staleness = admin.stalenessHistogram("size");
      assertEquals(1, staleness[0]);
      assertEquals(1, staleness[1]);
      final float[] center = new float[5];
      assertEquals(2, admin.pull("size", center));
      assertArrayEquals(new float[] {3, 2, 3, 4, 5}, center);
      admin.deleteModel("size");
      assertEquals(
          ParamdException.Code.NOT_FOUND,
          assertThrows(ParamdException.class, () -> admin.model("size")).code());
    }
  }

  @Test
  void aClosedAdminThrows() {
    try (ParamdServer server = ParamdServer.start(new ServerOptions())) {
      final Admin admin = Admin.connect(server.address(), TIMEOUT);
      admin.close();
      admin.close();
      assertThrows(IllegalStateException.class, () -> admin.model("m"));
    }
  }

  @Test
  void connectingToNobodyFailsWithinItsTimeout() {
    assertThrows(ParamdException.class, () -> Admin.connect("127.0.0.1:1", Duration.ofMillis(100)));
  }

  @Test
  void aCenterOfAnotherLengthIsAnInvalidArgument() {
    try (ParamdServer server = ParamdServer.start(new ServerOptions());
        Admin admin = Admin.connect(server.address(), TIMEOUT)) {
      admin.createModel(new ModelSpec("m").tensor("w", 3).algorithm("downpour"));
      admin.initialize("m", new float[3]);
      for (int floats : new int[] {2, 4}) {
        assertEquals(
            ParamdException.Code.INVALID_ARGUMENT,
            assertThrows(ParamdException.class, () -> admin.pull("m", new float[floats])).code());
      }
    }
  }
}
