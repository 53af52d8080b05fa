package paramd;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.FloatBuffer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(180)
class MlpTest {
  private static double accuracy(float[] probabilities, float[] labels) {
    int right = 0;
    for (int i = 0; i < labels.length; i++) {
      int best = 0;
      for (int c = 1; c < Mnist.CLASSES; c++) {
        if (probabilities[i * Mnist.CLASSES + c] > probabilities[i * Mnist.CLASSES + best]) {
          best = c;
        }
      }
      right += best == labels[i] ? 1 : 0;
    }
    return (double) right / labels.length;
  }

  @Test
  void itTrainsMnist() throws IOException {
    try (ParamdServer server = ParamdServer.start(new ServerOptions());
        Admin admin = Admin.connect(server.address(), Await.TIMEOUT);
        Mlp trained = new Mlp(new long[] {Mnist.PIXELS, 64, Mnist.CLASSES}, "adam", 0.001, 1);
        Mlp pulled = new Mlp(new long[] {Mnist.PIXELS, 64, Mnist.CLASSES}, "sgd", 0.1, 2)) {
      final ModelSpec spec = new ModelSpec("mnist").algorithm("downpour");
      trained.describe(spec);
      final TrainSummary summary =
          Training.run(
              new WorkerOptions(server.address(), "mnist", "a").create(spec),
              new TrainOptions().epochs(3).learningRate(0.002),
              trained,
              new Mnist("train", 12_000, 50));
      assertEquals(720, summary.steps());
      final Mnist test = new Mnist("t10k", 2_000, 2_000);
      final float[] probabilities = new float[2_000 * Mnist.CLASSES];
      final float[] center = new float[pulled.parameters().remaining()];
      admin.pull("mnist", center);
      pulled.parameters().put(center);
      pulled.predict(FloatBuffer.wrap(test.features()), 2_000, FloatBuffer.wrap(probabilities));
      final double accuracy = accuracy(probabilities, test.labels());
      assertTrue(accuracy > 0.9, "accuracy " + accuracy);
      assertArrayEquals(
          new String[] {"accuracy"}, admin.history("mnist", true).series().get(0).metricNames());
    }
  }

  @Test
  void itTrainsByHand() {
    final Mlp mlp = new Mlp(new long[] {2, 8, 2}, "momentum", 0.1, 1);
    final Batch batch = new Batch();
    batch.set(4, new float[] {0, 0, 0, 1, 1, 0, 1, 1}, new float[] {0, 1, 1, 0});
    double[] results = {};
    for (int i = 0; i < 300; i++) {
      results = mlp.trainOnBatch(batch);
    }
    assertEquals(1, results[1]);
    mlp.setLearningRate(0.25);
    assertEquals(0.25, mlp.learningRate());
    final FloatBuffer parameters = mlp.parameters();
    mlp.close();
    mlp.close();
    assertEquals(2 * 8 + 8 + 8 * 2 + 2, parameters.remaining());
    parameters.put(0, 1);
    assertThrows(IllegalStateException.class, () -> mlp.trainOnBatch(batch));
  }

  @Test
  void itTrainsNumbersOfWeightedRows() {
    try (Mlp mlp = new Mlp(new MlpOptions(1, 2).loss("squared").learningRate(0.5).seed(3))) {
      assertArrayEquals(new String[0], mlp.metricNames());
      final Batch batch = new Batch();
      // Rows of weight 1 say (2x, -x), the last one says otherwise and has weight 0.
      batch.set(3, new float[] {-1, 1, 1}, new float[] {-2, 1, 2, -1, 9, 9, 1, 1, 0});
      for (int i = 0; i < 200; i++) {
        mlp.trainOnBatch(batch);
      }
      final float[] outputs = new float[2];
      mlp.predict(FloatBuffer.wrap(new float[] {3}), 1, FloatBuffer.wrap(outputs));
      assertArrayEquals(new float[] {6, -3}, outputs, 1e-3f);
    }
  }

  @Test
  void aPenaltyShrinksWeightsAndAShortGradientStepsLittle() {
    final Batch batch = new Batch();
    batch.set(1, new float[] {1}, new float[] {4});
    try (Mlp penalized = new Mlp(new MlpOptions(1, 1).loss("squared").l2(1));
        Mlp clipped = new Mlp(new MlpOptions(1, 1).loss("squared").learningRate(1).maxGradientNorm(1e-3))) {
      for (int i = 0; i < 500; i++) {
        penalized.trainOnBatch(batch);
      }
      // The bias is free of it, and does all.
      assertEquals(0, penalized.parameters().get(0), 1e-3);
      assertEquals(4, penalized.parameters().get(1), 1e-3);
      final float before = clipped.parameters().get(1);
      clipped.trainOnBatch(batch);
      assertEquals(0, clipped.parameters().get(1) - before, 1e-3);
    }
  }

  @Test
  void mistakesAreTold() {
    assertEquals(
        ParamdException.Code.INVALID_ARGUMENT,
        assertThrows(ParamdException.class, () -> new Mlp(new long[] {2}, "sgd", 0.1, 1)).code());
    assertEquals(
        ParamdException.Code.INVALID_ARGUMENT,
        assertThrows(ParamdException.class, () -> new Mlp(new long[] {2, 2}, "luck", 0.1, 1)).code());
    assertThrows(ParamdException.class, () -> new Mlp(new MlpOptions(2, 2).loss("hinge")));
    try (Mlp mlp = new Mlp(new long[] {2, 2}, "sgd", 0.1, 1)) {
      final Batch batch = new Batch();
      batch.set(1, new float[] {0, 0}, new float[] {2});
      assertEquals(
          ParamdException.Code.INVALID_ARGUMENT,
          assertThrows(ParamdException.class, () -> mlp.trainOnBatch(batch)).code());
      assertThrows(
          ParamdException.class,
          () -> mlp.predict(FloatBuffer.allocate(3), 1, FloatBuffer.allocate(2)));
    }
  }
}
