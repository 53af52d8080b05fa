package paramd.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.apache.spark.SparkException;
import org.apache.spark.SparkStageInfo;
import org.apache.spark.api.java.JavaSparkStatusTracker;
import org.apache.spark.ml.attribute.AttributeGroup;
import org.apache.spark.ml.attribute.NominalAttribute;
import org.apache.spark.ml.linalg.SQLDataTypes;
import org.apache.spark.ml.linalg.Vector;
import org.apache.spark.ml.linalg.Vectors;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.LongAccumulator;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import paramd.Admin;
import paramd.ModelSpec;
import paramd.ParamdServer;
import paramd.ServerOptions;
import paramd.Worker;
import paramd.WorkerOptions;

/** What the estimator's documentation promises beside accuracy, on a few rows. */
@Tag("spark")
@Timeout(300)
final class FitTest {
  private static final int ROWS = 400;
  private static final int FEATURES = 20;
  private static final int FOREVER = 1_000_000;

  private static Cluster cluster;
  private static Dataset<Row> rows;
  private static LongAccumulator computed;
  // Takes a minute to fail, in one of the two slots and while the tests run.
  private static CompletableFuture<ParamdClassificationModel> lost;

  @BeforeAll
  static void start() throws Exception {
    cluster = new Cluster(Cluster.LOCAL, Map.of("spark.task.maxFailures", "1"));
    computed = cluster.session().sparkContext().longAccumulator();
    rows = rows(computed, false);
    lost = startFit("lost", daemon -> assertTrue(daemon.destroyForcibly()));
  }

  @AfterAll
  static void stop() throws IOException {
    cluster.close();
  }

  @Test
  void aFitWhoseDaemonIsLostFails() {
    final ExecutionException e = assertThrows(ExecutionException.class, lost::get);
    assertInstanceOf(SparkException.class, e.getCause());
    assertTrue(e.getCause().getMessage().contains("can't reach paramd"), e.getCause().getMessage());
  }

  @Test
  void aCancelledFitEndsSoonAndItsDaemonToo() throws Exception {
    final List<ProcessHandle> daemons = new ArrayList<>();
    final CompletableFuture<ParamdClassificationModel> fit =
        startFit(
            "cancelled",
            daemon -> {
              daemons.add(daemon);
              cluster.context().cancelJobGroup("cancelled");
            });
    final ExecutionException e = assertThrows(ExecutionException.class, fit::get);
    assertTrue(e.getCause().getMessage().contains("cancelled"), e.getCause().getMessage());
    assertFalse(daemons.get(0).isAlive());
    // The slot is free again; the other one is not.
    assertEquals(ROWS, classifier().fit(rows).summary().rows());
  }

  @Test
  void theDataAreComputedOnceHoweverManyEpochsThereAre() {
    final LongAccumulator counted = cluster.session().sparkContext().longAccumulator();
    classifier().setMaxIter(3).fit(rows(counted, false));
    assertEquals(ROWS, counted.value());
  }

  @Test
  void zerosOfSparseVectorsAreWrittenToo() {
    final LongAccumulator ignored = cluster.session().sparkContext().longAccumulator();
    final Vector dense = classifier().fit(rows).weights();
    assertEquals(dense, classifier().fit(rows(ignored, true)).weights());
  }

  @Test
  void withoutANumberOfWorkersThereAreAsManyAsSparkHasSlots() {
    final ParamdTrainingSummary summary = new ParamdClassifier().setMaxIter(1).setSeed(1).fit(rows).summary();
    assertEquals(cluster.context().defaultParallelism(), summary.numWorkers());
    assertEquals(2, summary.numWorkers());
  }

  @Test
  void eachSolverHasTheRateThatTheDocumentationNames() {
    try (ParamdServer server = ParamdServer.start(new ServerOptions());
        Admin admin = Admin.connect(server.address(), Duration.ofSeconds(30))) {
      admin.createModel(new ModelSpec("plain").tensor("w", 1).algorithm("adag"));
      final double usual = rate(server, "plain");
      final Map<String, Double> rates = Map.of("sgd", usual, "momentum", 0.01, "adam", 0.001);
      rates.forEach(
          (solver, rate) -> {
            classifier().setServer(server.address()).setModelName(solver).setSolver(solver).fit(rows);
            assertEquals(rate, rate(server, solver), solver);
          });
      classifier().setServer(server.address()).setModelName("given").setSolver("adam").setStepSize(0.25).fit(rows);
      assertEquals(0.25, rate(server, "given"));
    }
  }

  @Test
  void thresholdsMovePredictions() {
    final ParamdClassificationModel model = classifier().fit(rows);
    for (int favored = 0; favored < 2; ++favored) {
      final double[] thresholds = {1, 1};
      thresholds[favored] = 1e-12;
      model.setThresholds(thresholds);
      assertEquals(ROWS, model.transform(rows).filter("prediction = " + favored).count());
    }
  }

  @Test
  void aModelOfSeveralPiecesSavesAndLoads(@TempDir Path folder) throws IOException {
    // 2^22 parameters fit in a piece.
    final ParamdClassificationModel model =
        classifier().setHiddenLayers(new int[] {2048, 2048}).setBatchSize(ROWS).fit(rows);
    assertTrue(model.weights().size() > 1 << 22);
    final String path = folder.resolve("model").toString();
    model.save(path);
    assertEquals(2, cluster.session().read().parquet(path + "/data").count());
    assertEquals(model.weights(), ParamdClassificationModel.load(path).weights());
  }

  private interface Event {
    void happened(ProcessHandle daemon);
  }

  /** Starts a fit that trains until something ends it, and tells its daemon once its worker runs. */
  private static CompletableFuture<ParamdClassificationModel> startFit(String group, Event trains) throws Exception {
    final List<ProcessHandle> before = daemons();
    final CompletableFuture<ParamdClassificationModel> fit =
        CompletableFuture.supplyAsync(
            () -> {
              cluster.context().setJobGroup(group, group, true);
              return classifier().setMaxIter(FOREVER).fit(rows);
            });
    while (cluster.context().statusTracker().getJobIdsForGroup(group).length == 0
        || stages(group).allMatch(stage -> stage.numActiveTasks() == 0)) {
      assertFalse(fit.isDone());
      Thread.sleep(5);
    }
    final List<ProcessHandle> started = daemons();
    started.removeAll(before);
    assertEquals(1, started.size());
    trains.happened(started.get(0));
    return fit;
  }

  private static Stream<SparkStageInfo> stages(String group) {
    final JavaSparkStatusTracker tracker = cluster.context().statusTracker();
    return IntStream.of(tracker.getJobIdsForGroup(group))
        .flatMap(job -> IntStream.of(tracker.getJobInfo(job).stageIds()))
        .mapToObj(tracker::getStageInfo)
        .filter(Objects::nonNull);
  }

  /** This process's own. */
  private static List<ProcessHandle> daemons() {
    return new ArrayList<>(
        ProcessHandle.current()
            .children()
            .filter(child -> child.info().command().orElse("").contains("/paramd"))
            .toList());
  }

  private static double rate(ParamdServer server, String model) {
    try (Worker worker = Worker.join(new WorkerOptions(server.address(), model, "reader"))) {
      return worker.spec().hyperparameters().get("learning_rate");
    }
  }

  /** One worker, whose training is the same each time. */
  private static ParamdClassifier classifier() {
    return new ParamdClassifier().setNumWorkers(1).setHiddenLayers(new int[0]).setMaxIter(1).setSeed(1);
  }

  /** In two partitions, counted by `counter` each time they are computed; with metadata, which spare passes over them. */
  private static Dataset<Row> rows(LongAccumulator counter, boolean sparse) {
    final StructType schema =
        new StructType().add("label", DataTypes.DoubleType).add("features", SQLDataTypes.VectorType());
    return cluster
        .session()
        .createDataFrame(
            cluster
                .context()
                .parallelize(IntStream.range(0, ROWS).boxed().toList(), 2)
                .map(
                    index -> {
                      counter.add(1);
                      return row(index, sparse);
                    }),
            schema)
        .withMetadata("features", new AttributeGroup("features", FEATURES).toMetadata())
        .withMetadata("label", NominalAttribute.defaultAttr().withNumValues(2).toMetadata());
  }

  /** A feature that differs from row to row, and one that tells the class. */
  private static Row row(int index, boolean sparse) {
    final double label = index % 2;
    final Vector features =
        Vectors.sparse(FEATURES, new int[] {index % (FEATURES - 1), FEATURES - 1}, new double[] {1, label - 0.5});
    return RowFactory.create(label, sparse ? features : features.toDense());
  }
}
