package paramd;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

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
      final ModelInfo created = admin.model("size");
      assertEquals(5, created.parameters());
      assertFalse(created.initialized());
      assertEquals(0, created.version() + created.workers() + created.liveWorkers() + created.commits());
      assertEquals("", created.problem());
      assertEquals(spec.tensors(), created.spec().tensors());
      assertEquals("downpour", created.spec().algorithm());
      assertEquals("bounded:3", created.spec().consistency());
      assertEquals(0.5, created.spec().hyperparameters().get("learning_rate"));
      admin.createModel(new ModelSpec("other").tensor("w", 1).algorithm("adag"));
      assertEquals(
          List.of("other", "size"), admin.listModels().stream().map(info -> info.spec().name()).sorted().toList());
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

  private static FloatBuffer direct(float... floats) {
    return ByteBuffer.allocateDirect(floats.length * Float.BYTES)
        .order(ByteOrder.nativeOrder())
        .asFloatBuffer()
        .put(0, floats);
  }

  /** A safetensors file of another program: a scalar b = 5, then a = [1, 2]. */
  private static void writeForeign(Path path) throws IOException {
    final byte[] header =
        ("{\"b\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
                + "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}")
            .getBytes(StandardCharsets.UTF_8);
    final ByteBuffer file = ByteBuffer.allocate(8 + header.length + 12).order(ByteOrder.LITTLE_ENDIAN);
    file.putLong(header.length).put(header).putFloat(5).putFloat(1).putFloat(2);
    Files.write(path, file.array());
  }

  @Test
  void modelsAreSavedAndLoaded(@TempDir Path folder) throws IOException {
    final Path file = folder.resolve("m ☃.safetensors");
    try (ParamdServer server = ParamdServer.start(new ServerOptions());
        Admin admin = Admin.connect(server.address(), TIMEOUT)) {
      final ModelSpec spec =
          new ModelSpec("m").tensor("a", 2).tensor("b").algorithm("aeasgd").hyperparameter("rho", 0.25);
      admin.createModel(spec);
      admin.initialize("m", direct(1, 2, 3));
      assertEquals(0, admin.save("m", file));
      final ModelFile read = ModelFile.open(file);
      assertEquals("m", read.spec().name());
      assertEquals("aeasgd", read.spec().algorithm());
      assertEquals(spec.tensors(), read.spec().tensors());
      assertEquals(3, read.parameters());
      final FloatBuffer center = direct(0, 0, 0);
      read.read(center);
      assertEquals(direct(1, 2, 3), center);
      admin.load("n", file);
      assertEquals(0.25, admin.model("n").spec().hyperparameters().get("rho"));
      assertEquals(0, admin.pull("n", center.put(0, new float[3])));
      assertEquals(direct(1, 2, 3), center);

      ModelFile.write(file, new ModelSpec("own").tensor("w", 2).algorithm("adag"), 7, FloatBuffer.wrap(new float[2]));
      assertEquals(7, ModelFile.open(file).version());
      final Path foreign = folder.resolve("foreign.safetensors");
      writeForeign(foreign);
      assertEquals("", ModelFile.open(foreign).spec().name());
      assertEquals(
          ParamdException.Code.INVALID_ARGUMENT,
          assertThrows(ParamdException.class, () -> admin.load("f", foreign)).code());
      admin.load(new ModelSpec("f").tensor("a", 2).tensor("b").algorithm("adag"), foreign);
      admin.pull("f", center);
      assertEquals(direct(1, 2, 5), center);
      admin.load(new ModelSpec("g").algorithm("adag"), foreign);
      admin.pull("g", center);
      assertEquals(direct(5, 1, 2), center);
      assertEquals(
          ParamdException.Code.INVALID_ARGUMENT,
          assertThrows(
                  ParamdException.class,
                  () -> admin.load(new ModelSpec("h").tensor("a", 3).algorithm("adag"), foreign))
              .code());
      assertThrows(ParamdException.class, () -> ModelFile.open(folder.resolve("none")));
      assertThrows(ParamdException.class, () -> read.read(direct(0)));
    }
  }
}
