package paramd.spark;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.stream.LongStream;
import org.apache.spark.ml.Pipeline;
import org.apache.spark.ml.PipelineModel;
import org.apache.spark.ml.PipelineStage;
import org.apache.spark.ml.evaluation.MulticlassClassificationEvaluator;
import org.apache.spark.ml.feature.MinMaxScaler;
import org.apache.spark.ml.linalg.Vector;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import paramd.Admin;
import paramd.Mlp;
import paramd.ParamdServer;
import paramd.ServerOptions;

/** The estimator and its model, with the workers in two executor JVMs. */
@Tag("spark")
@Timeout(300)
final class ClassifierTest {
  private static final int ROWS = 60000;
  private static final int HIDDEN = 64;
  private static final int EPOCHS = 5;
  private static final int BATCH = 32;

  private static Cluster cluster;
  private static Dataset<Row> train;
  private static Dataset<Row> test;
  private static List<Long> executors;

  @BeforeAll
  static void start() throws IOException {
    cluster = new Cluster(Cluster.LOCAL, Map.of());
    train = Mnist.train(cluster, ROWS).cache();
    test = Mnist.test(cluster, 10000).cache();
    executors = cluster.executorPids();
  }

  @AfterAll
  static void stop() throws IOException {
    cluster.close();
  }

  /** Spark replaces an executor that crashed, and the job still ends well. */
  @AfterEach
  void noExecutorHasCrashed() {
    assertEquals(executors, cluster.executorPids());
  }

  @ParameterizedTest
  @ValueSource(strings = {"adag", "dynsgd", "aeasgd"})
  void trainsMnist(String algorithm) {
    final ParamdClassificationModel model = classifier().setAlgorithm(algorithm).setMaxIter(EPOCHS).fit(train);

    final double accuracy = accuracy(model.transform(test));
    assertTrue(accuracy >= 0.95, algorithm + " reached " + accuracy);
    final ParamdTrainingSummary summary = model.summary();
    assertEquals(2, summary.numWorkers());
    assertEquals(ROWS, summary.rows());
    assertTrue(summary.updates() > 0);
    assertEquals(summary.updates(), LongStream.of(summary.stalenessHistogram()).sum());
    assertTrue(summary.trainingTimeSeconds() > 0);
    assertEquals(2 * EPOCHS * ((ROWS / 2 + BATCH - 1) / BATCH), summary.history().count());
    final double first = summary.averagedHistory().selectExpr("min_by(loss, step)").head().getDouble(0);
    final double last = summary.averagedHistory().selectExpr("max_by(loss, step)").head().getDouble(0);
    assertTrue(last < first / 2, "loss went from " + first + " to " + last);
  }

  @Test
  void transformComputesWhatTheDaemonsCenterDoes() {
    try (ParamdServer server = ParamdServer.start(new ServerOptions());
        Admin admin = Admin.connect(server.address(), Duration.ofSeconds(30))) {
      final ParamdClassifier classifier = 
          classifier().setServer(server.address()).setModelName("mnist").setMaxIter(1).setStandardization(false);
      final ParamdClassificationModel model = classifier.fit(train);

      final float[] center = new float[(int) admin.model("mnist").parameters()];
      admin.pull("mnist", center);
      final double[] widened = new double[center.length];
      Arrays.setAll(widened, i -> center[i]);
      assertArrayEquals(widened, model.weights().toArray());
      final List<Row> rows = model.transform(test).select("features", "label", "probability").collectAsList();
      int right = 0;
      final double[][] expected = predict(center, rows);
      for (int i = 0; i < rows.size(); ++i) {
        assertArrayEquals(expected[i], rows.get(i).<Vector>getAs(2).toArray(), 1e-4);
        right += argmax(expected[i]) == rows.get(i).getDouble(1) ? 1 : 0;
      }
      assertEquals((double) right / rows.size(), accuracy(model.transform(test)), 1e-9);
      // What was trained there stays, and another fit does not go on from it by mistake.
      assertThrows(IllegalArgumentException.class, () -> classifier.fit(train));
    }
  }

  @Test
  void aPipelineSavesAndLoads(@TempDir Path folder) throws IOException {
    final Pipeline pipeline =
        new Pipeline()
            .setStages(
                new PipelineStage[] {
                  new MinMaxScaler().setInputCol("features").setOutputCol("scaled"),
                  classifier().setFeaturesCol("scaled").setMaxIter(1).setHyperparameters(new String[] {"eta=0.1"})
                      .setAlgorithm("adaptive_adag")
                });
    pipeline.save(folder.resolve("pipeline").toString());
    final PipelineModel fitted = Pipeline.load(folder.resolve("pipeline").toString()).fit(train);
    fitted.save(folder.resolve("model").toString());
    final PipelineModel loaded = PipelineModel.load(folder.resolve("model").toString());

    final ParamdClassificationModel model = (ParamdClassificationModel) loaded.stages()[1];
    assertArrayEquals(new int[] {Mnist.FEATURES, HIDDEN, Mnist.CLASSES}, model.layers());
    assertEquals("adaptive_adag", model.getAlgorithm());
    final ParamdTrainingSummary summary = ((ParamdClassificationModel) fitted.stages()[1]).summary();
    assertEquals(summary.toString(), model.summary().toString());
    assertArrayEquals(summary.objectiveHistory(), model.summary().objectiveHistory());
    assertThrows(IllegalStateException.class, () -> model.summary().history());
    assertEquals(((ParamdClassificationModel) fitted.stages()[1]).weights(), model.weights());
    assertEquals(
        fitted.transform(test).select("prediction").collectAsList(),
        loaded.transform(test).select("prediction").collectAsList());
  }

  @Test
  void morePartitionsThanSlotsRunInWavesInSyncToo() {
    final ParamdTrainingSummary summary =
        classifier().setConsistency("sync").setParallelismFactor(2).setMaxIter(1).fit(train).summary();
    assertEquals(4, summary.numWorkers());
    assertEquals(ROWS, summary.rows());
    assertEquals(0, summary.meanStaleness());
  }

  private static ParamdClassifier classifier() {
    return new ParamdClassifier().setNumWorkers(2).setBatchSize(BATCH).setHiddenLayers(new int[] {HIDDEN}).setSeed(1);
  }

  private static double accuracy(Dataset<Row> predictions) {
    return new MulticlassClassificationEvaluator().setMetricName("accuracy").evaluate(predictions);
  }

  /** Probabilities of each row by the network that the workers train. */
  private static double[][] predict(float[] center, List<Row> rows) {
    final FloatBuffer features = direct(rows.size() * Mnist.FEATURES);
    for (Row row : rows) {
      for (double feature : row.<Vector>getAs(0).toArray()) {
        features.put((float) feature);
      }
    }
    final FloatBuffer probabilities = direct(rows.size() * Mnist.CLASSES);
    try (Mlp mlp = new Mlp(new long[] {Mnist.FEATURES, HIDDEN, Mnist.CLASSES}, "sgd", 0.1, 1)) {
      mlp.parameters().put(center);
      mlp.predict(features.flip(), rows.size(), probabilities.duplicate());
    }
    final double[][] result = new double[rows.size()][Mnist.CLASSES];
    for (double[] row : result) {
      Arrays.setAll(row, i -> probabilities.get());
    }
    return result;
  }

  private static int argmax(double[] values) {
    int best = 0;
    for (int i = 1; i < values.length; ++i) {
      best = values[i] > values[best] ? i : best;
    }
    return best;
  }

  private static FloatBuffer direct(int floats) {
    return ByteBuffer.allocateDirect(floats * Float.BYTES).order(ByteOrder.nativeOrder()).asFloatBuffer();
  }
}
