package paramd.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
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
import org.apache.spark.SparkStageInfo;
import org.apache.spark.api.java.JavaSparkStatusTracker;
import org.apache.spark.ml.attribute.AttributeGroup;
import org.apache.spark.ml.attribute.NominalAttribute;
import org.apache.spark.ml.linalg.SQLDataTypes;
import org.apache.spark.ml.linalg.Vector;
import org.apache.spark.ml.linalg.Vectors;
import org.apache.spark.ml.param.ParamMap;
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
import paramd.ParamdException;
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
  private static final int JOBS = 3; // the shuffle's, that which looks at the rows, and that which trains
  private static final StructType SCHEMA =
      new StructType().add("label", DataTypes.DoubleType).add("features", SQLDataTypes.VectorType());

  private static Cluster cluster;
  private static Dataset<Row> rows;
  private static LongAccumulator computed;

  @BeforeAll
  static void start() throws Exception {
    cluster = new Cluster(Cluster.LOCAL, Map.of("spark.task.maxFailures", "1"));
    computed = cluster.session().sparkContext().longAccumulator();
    rows = rows(computed, false);
  }

  @AfterAll
  static void stop() throws IOException {
    cluster.close();
  }

  @Test
  @Timeout(30)
  void aFitWhoseDaemonIsKilledFailsAtOnceForThatReason() throws Exception {
    final CompletableFuture<ParamdClassificationModel> fit =
        startFit("lost", daemon -> assertTrue(daemon.destroyForcibly()));
    final ExecutionException e = assertThrows(ExecutionException.class, fit::get);
    assertInstanceOf(ParamdException.class, e.getCause());
    assertTrue(e.getCause().getMessage().contains("has ended while it trained"), e.getCause().getMessage());
  }

  @Test
  @Timeout(30)
  void aDaemonThatIsNotThereIsNamedWithinSeconds() throws IOException {
    final String address;
    try (ServerSocket closed = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      address = "127.0.0.1:" + closed.getLocalPort();
    }
    final ParamdException e =
        assertThrows(ParamdException.class, () -> classifier().setServer(address).setConnectTimeout(1).fit(rows));
    assertTrue(e.getMessage().contains(address), e.getMessage());
  }

  @Test
  void aNamedFitThatFailsLeavesNothingBehindAndOneThatMayOverwrites() throws Exception {
    try (ParamdServer server = ParamdServer.start(new ServerOptions());
        Admin admin = Admin.connect(server.address(), Duration.ofSeconds(30))) {
      final ParamdClassifier classifier = classifier().setServer(server.address()).setModelName("named");
      final CompletableFuture<ParamdClassificationModel> failing =
          startFit(classifier.copy(ParamMap.empty()), "named", () -> cluster.context().cancelJobGroup("named"));
      assertThrows(ExecutionException.class, failing::get);
      assertThrows(ParamdException.class, () -> admin.model("named"));
      classifier.fit(rows);
      assertThrows(IllegalArgumentException.class, () -> classifier.fit(rows));
      final long version = admin.model("named").version();
      classifier.setOverwrite(true).setMaxIter(2).fit(rows);
      assertEquals(2 * version, admin.model("named").version());
    }
    assertThrows(IllegalArgumentException.class, () -> classifier().setModelName("named").fit(rows));
  }

  @Test
  void aBadRowIsShownWithTheNameOfItsColumn() {
    final Vector good = Vectors.dense(1, 2);
    final Map<Row, String> bad =
        Map.of(
            RowFactory.create(1.0, null), "features is null",
            RowFactory.create(null, good), "label is null",
            RowFactory.create(1.0, Vectors.dense(1, Double.NaN)), "features has feature 1 = NaN",
            RowFactory.create(1.0, Vectors.sparse(2, new int[] {1}, new double[] {1e39})), "features has feature 1 = 1.0E39",
            RowFactory.create(Double.NaN, good), "label is NaN",
            RowFactory.create(0.5, good), "label 0.5",
            RowFactory.create(-1.0, good), "label -1.0",
            RowFactory.create(1.0, Vectors.dense(1, 2, 3)), "features, others ");
    bad.forEach(
        (row, message) -> {
          final Dataset<Row> data =
              cluster.session().createDataFrame(List.of(RowFactory.create(0.0, good), row), SCHEMA);
          final IllegalArgumentException e =
              assertThrows(IllegalArgumentException.class, () -> classifier().fit(data), message);
          assertTrue(e.getMessage().contains(message), e.getMessage());
        });
  }

  @Test
  void fewRowsOfOneClassInEmptyPartitionsTrain() {
    final Dataset<Row> few = rows.filter("label = 1").limit(3);
    assertEquals(3, classifier().setNumWorkers(7).fit(few).summary().rows());
    assertEquals(3, classifier().setNumWorkers(7).setConsistency("sync").setShuffle(false).fit(few).summary().rows());
    assertEquals(ROWS, classifier().setBatchSize(10_000_000).fit(rows).summary().rows());
    assertThrows(IllegalArgumentException.class, () -> classifier().fit(rows.limit(0)));
  }

  @Test
  void rowsInOrderOfTheirLabelsTrain() {
    final ParamdClassificationModel model =
        classifier().setNumWorkers(2).setMaxIter(100).fit(rows.repartitionByRange(2, rows.col("label")));
    // Workers of one class each get some 0.4.
    assertTrue(model.transform(rows).filter("prediction = label").count() > 0.95 * ROWS);
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
    assertEquals(ROWS, classifier().fit(rows).summary().rows());
  }

  /** With and without metadata, a shuffle of the fit's own, and one before it, which adaptive execution runs apart. */
  @Test
  void theDataAreComputedOnceHoweverManyEpochsThereAre() {
    for (int variant = 0; variant < 8; ++variant) {
      final LongAccumulator counted = cluster.session().sparkContext().longAccumulator();
      Dataset<Row> data = rows(counted, false);
      if ((variant & 1) == 0) {
        data = cluster.session().createDataFrame(data.toJavaRDD(), SCHEMA);
      }
      if ((variant & 2) == 0) {
        data = data.repartitionByRange(data.col("label"));
        counted.reset();
      }
      classifier().setNumWorkers(2).setMaxIter(3).setShuffle((variant & 4) == 0).fit(data);
      // To find its ranges, Spark takes a sample first.
      assertEquals((variant & 2) == 0 ? 2 * ROWS : ROWS, counted.value(), "variant " + variant);
    }
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
    try (ParamdServer server = ParamdServer.start(new ServerOptions())) {
      final Map<String, Double> rates = Map.of("sgd", 0.1, "momentum", 0.01, "adam", 0.002);
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
    return startFit(
        classifier(),
        group,
        () -> {
          final List<ProcessHandle> started = daemons();
          started.removeAll(before);
          assertEquals(1, started.size());
          trains.happened(started.get(0));
        });
  }

  private static CompletableFuture<ParamdClassificationModel> startFit(
      ParamdClassifier classifier, String group, Runnable trains) throws Exception {
    final CompletableFuture<ParamdClassificationModel> fit =
        CompletableFuture.supplyAsync(
            () -> {
              cluster.context().setJobGroup(group, group, true);
              return classifier.setMaxIter(FOREVER).fit(rows);
            });
    // The one before it looks at the rows.
    while (cluster.context().statusTracker().getJobIdsForGroup(group).length < JOBS
        || stages(group).allMatch(stage -> stage.numActiveTasks() == 0)) {
      assertFalse(fit.isDone());
      Thread.sleep(5);
    }
    trains.run();
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
            SCHEMA)
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
