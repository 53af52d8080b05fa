package paramd.spark;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.spark.BarrierTaskContext;
import org.apache.spark.SparkException;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.JavaFutureAction;
import org.apache.spark.api.java.function.Function2;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import paramd.Admin;
import paramd.Batch;
import paramd.KnownSteps;
import paramd.ModelSpec;
import paramd.ParamdException;
import paramd.ParamdServer;
import paramd.ServerOptions;
import paramd.TrainOptions;
import paramd.TrainSummary;
import paramd.Worker;
import paramd.WorkerOptions;
import scala.Function1;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag$;

/** Workers in tasks of one's own, without the estimator. */
@Tag("spark")
@Timeout(120)
final class PlainTrainingTest {
  private static final int COMMITS = 20;
  private static final Map<String, String> SPECULATION =
      Map.of(
          "spark.speculation", "true",
          "spark.speculation.interval", "100ms",
          "spark.speculation.quantile", "0.5",
          "spark.speculation.minTaskRuntime", "100ms");

  @TempDir Path folder;
  private ParamdServer server;
  private Admin admin;

  @BeforeEach
  void start() {
    server = ParamdServer.start(new ServerOptions());
    admin = Admin.connect(server.address(), Duration.ofSeconds(30));
    admin.createModel(new ModelSpec("sum").tensor("sum", 1).algorithm("downpour"));
  }

  @AfterEach
  void stop() {
    admin.close();
    server.close();
  }

  @Test
  void eachAcknowledgedCommitCountsOnceThoughATaskFailsMidway() throws IOException {
    admin.initialize("sum", new float[1]);
    final Signals acknowledged = new Signals(folder.toString());
    final String address = server.address();
    try (Cluster cluster = new Cluster(Cluster.LOCAL, Map.of())) {
      final List<Long> executors = cluster.executorPids();
      run(
          cluster,
          (partition, ignored) -> {
            final Worker worker = TaskWorker.join(TaskWorker.options(address, "sum"));
            for (int i = 0; i < COMMITS; ++i) {
              if (partition == 1 && TaskContext.get().attemptNumber() == 0 && i == 7) {
                throw new IllegalStateException("this attempt was made to fail");
              }
              commitOne(worker);
              acknowledged.give("commit-" + partition + "-" + TaskContext.get().attemptNumber() + "-" + i);
            }
            return List.of(partition).iterator();
          });
      assertEquals(executors, cluster.executorPids());
    }
    try (var files = Files.list(folder)) {
      assertEquals(2 * COMMITS + 7, files.count());
    }
    assertEquals(2 * COMMITS + 7, sum());
    assertEquals(2 * COMMITS + 7, admin.model("sum").commits());
  }

  @Test
  void aSpeculativeAttemptFencesTheSlowOne() throws IOException {
    admin.initialize("sum", new float[1]);
    final Signals signals = new Signals(folder.toString());
    final String address = server.address();
    try (TwoHosts hosts = new TwoHosts();
        Cluster cluster = new Cluster(hosts.master(), SPECULATION)) {
      run(
          cluster,
          (partition, ignored) -> {
            final Worker worker = TaskWorker.join(TaskWorker.options(address, "sum"));
            if (partition == 0 && TaskContext.get().attemptNumber() == 0) {
              commitOne(worker);
              signals.await("newer attempt has joined");
              try {
                commitOne(worker);
              } catch (ParamdException e) {
                signals.give("got " + e.code());
                throw e;
              } finally {
                signals.give("slow attempt has tried again");
              }
            } else if (partition == 0) {
              signals.give("newer attempt has joined");
              signals.await("slow attempt has tried again");
            }
            commitOne(worker);
            return List.of(partition).iterator();
          });
    }
    assertTrue(signals.given("got ABORTED"));
    // The slow attempt's first commit, the newer attempt's, and the other partition's.
    assertEquals(3, sum());
  }

  @Test
  void aFencedTrainingIsNoFailureOfItsTask() throws IOException {
    admin.createModel(new ModelSpec("regression").tensor("weights", Regression.WEIGHTS).algorithm("downpour"));
    final Signals signals = new Signals(folder.toString());
    final String address = server.address();
    final Map<String, String> settings = new HashMap<>(SPECULATION);
    settings.put("spark.task.maxFailures", "1");
    try (TwoHosts hosts = new TwoHosts();
        Cluster cluster = new Cluster(hosts.master(), settings)) {
      cluster
          .session()
          .sparkContext()
          .addSparkListener(
              new SparkListener() {
                @Override
                public void onTaskEnd(SparkListenerTaskEnd end) {
                  if (end.taskInfo().index() == 0 && end.taskInfo().attemptNumber() == 0) {
                    signals.give("ended by " + end.reason().getClass().getSimpleName());
                    signals.give("slow attempt has ended");
                  }
                }
              });
      run(
          cluster,
          (partition, ignored) -> {
            final boolean newer = TaskContext.get().attemptNumber() > 0;
            TaskWorker.train(
                TaskWorker.options(address, "regression"),
                new TrainOptions(),
                new Regression(),
                partition == 0 ? new RivalSamples(signals, newer) : new Regression.Samples(1));
            return List.of(partition).iterator();
          });
    }
    assertTrue(signals.given("ended by TaskKilled"));
  }

  @Test
  void attemptsThatANewerOneAlwaysRefusesEnd() throws IOException {
    admin.createModel(new ModelSpec("regression").tensor("weights", Regression.WEIGHTS).algorithm("downpour"));
    final String address = server.address();
    try (Cluster cluster = new Cluster(Cluster.LOCAL, Map.of("spark.task.maxFailures", "1"))) {
      final String name = cluster.session().sparkContext().applicationId() + "-0";
      try (Worker newer = Worker.join(new WorkerOptions(address, "regression", name).incarnation(1_000_000))) {
        final SparkException e =
            assertThrows(
                SparkException.class,
                () ->
                    run(
                        cluster,
                        (partition, ignored) -> {
                          TaskWorker.train(
                              TaskWorker.options(address, "regression"),
                              new TrainOptions(),
                              new Regression(),
                              new Regression.Samples(1));
                          return List.of(partition).iterator();
                        }));
        assertTrue(e.getMessage().contains("can't join because incarnation " + newer.incarnation()), e.getMessage());
      }
    }
  }

  /** As a fit's tasks do first. */
  @Test
  void aFitsSpeculativeAttemptWaitsForTheFirstOneUntilThatFails() throws IOException {
    final Signals signals = new Signals(folder.toString());
    try (TwoHosts hosts = new TwoHosts();
        Cluster cluster = new Cluster(hosts.master(), SPECULATION)) {
      run(
          cluster,
          (partition, ignored) -> {
            final int attempt = TaskContext.get().attemptNumber();
            signals.give("begins " + partition + attempt);
            TaskWorker$.MODULE$.awaitTurn();
            signals.give("trains " + partition + attempt);
            if (partition == 0 && attempt == 0) {
              signals.await("begins 01");
              assertFalse(signals.given("trains 01"));
              throw new IllegalStateException("this attempt was made to fail");
            }
            return List.of(partition).iterator();
          });
      assertTrue(signals.given("trains 01"));
    }
  }

  /** One that fails takes the others of its stage with it, and all begin again. */
  @Test
  void aBarrierStageTrainsAgainAfterAFailure() throws IOException {
    admin.createModel(new ModelSpec("regression").tensor("weights", Regression.WEIGHTS).algorithm("downpour"));
    final String address = server.address();
    try (Cluster cluster = new Cluster(Cluster.LOCAL, Map.of())) {
      final Function1<scala.collection.Iterator<Integer>, scala.collection.Iterator<Long>> task =
          (Function1<scala.collection.Iterator<Integer>, scala.collection.Iterator<Long>> & Serializable)
              ignored -> {
                final BarrierTaskContext context = BarrierTaskContext.get();
                context.barrier();
                final TrainSummary summary =
                    TaskWorker.train(
                        TaskWorker.options(address, "regression"),
                        new TrainOptions().epochs(5).learningRate(0.02),
                        new Regression(),
                        new Regression.Samples(context.partitionId()));
                if (context.stageAttemptNumber() == 0 && context.partitionId() == 1) {
                  throw new IllegalStateException("this attempt was made to fail");
                }
                return CollectionConverters.asScala(List.of(summary.steps()).iterator());
              };
      final List<Long> steps =
          cluster
              .context()
              .parallelize(List.of(0, 1), 2)
              .rdd()
              .barrier()
              .mapPartitions(task, false, ClassTag$.MODULE$.<Long>apply(Long.class))
              .toJavaRDD()
              // Spark runs no barrier stage again whose tasks give the job's result.
              .repartition(1)
              .collect();
      assertEquals(List.of(1000L, 1000L), steps);
    }
    final float[] center = new float[Regression.WEIGHTS];
    admin.pull("regression", center);
    assertArrayEquals(new float[] {1, 2, 3, 4}, center, 0.01f);
  }

  @Test
  void aModelOfOnesOwnTrains() throws IOException {
    admin.createModel(new ModelSpec("regression").tensor("weights", Regression.WEIGHTS).algorithm("downpour"));
    final String address = server.address();
    try (Cluster cluster = new Cluster(Cluster.LOCAL, Map.of())) {
      run(
          cluster,
          (partition, ignored) -> {
            TaskWorker.train(
                TaskWorker.options(address, "regression"),
                new TrainOptions().epochs(5).learningRate(0.02),
                new Regression(),
                new Regression.Samples(partition));
            return List.of(partition).iterator();
          });
    }
    final float[] center = new float[Regression.WEIGHTS];
    admin.pull("regression", center);
    assertArrayEquals(new float[] {1, 2, 3, 4}, center, 0.01f);
    assertTrue(admin.model("regression").commits() > 0);
  }

  @Test
  void trainingsOfKnownStepsEndWhereTheyMust() throws IOException {
    final List<Known> all = new ArrayList<>();
    for (String algorithm : List.of("downpour", "adag")) {
      for (String consistency : List.of("async", "bounded:1", "sync")) {
        for (String transport : List.of("grpc", "shm")) {
          for (boolean overlap : new boolean[] {false, true}) {
            all.add(new Known(algorithm, consistency, transport, overlap));
          }
        }
      }
    }
    all.forEach(known -> admin.createModel(KnownSteps.spec(known.model(), known.algorithm, known.consistency)));
    final String address = server.address();
    try (Cluster cluster = new Cluster(Cluster.LOCAL, Map.of())) {
      run(
          cluster,
          (partition, ignored) -> {
            for (Known known : all) {
              TaskWorker.train(
                  TaskWorker.options(address, known.model()).transport(known.transport),
                  KnownSteps.options(known.overlap),
                  new KnownSteps(partition, null),
                  new KnownSteps.Batches());
            }
            return List.of(partition).iterator();
          });
    }
    for (Known known : all) {
      final float[] center = new float[KnownSteps.FLOATS];
      admin.pull(known.model(), center);
      final int steps = known.algorithm.equals("adag") ? KnownSteps.COMMITS : KnownSteps.STEPS;
      for (int i = 0; i < center.length; i++) {
        assertEquals(KnownSteps.start(i) + steps * KnownSteps.steps(2, i), center[i], 1e-3, known::toString);
      }
    }
  }

  @Test
  void killingATaskEndsItsWaitingPull() throws Exception {
    final Signals signals = new Signals(folder.toString());
    final String address = server.address();
    try (Cluster cluster = new Cluster(Cluster.LOCAL, Map.of())) {
      final List<Long> executors = cluster.executorPids();
      final JavaFutureAction<List<Integer>> job =
          cluster
              .context()
              .parallelize(List.of(0, 1), 2)
              .mapPartitionsWithIndex(
                  (partition, ignored) -> {
                    final Worker worker = TaskWorker.join(TaskWorker.options(address, "sum"));
                    signals.give("joined " + partition);
                    // Nobody initializes the center.
                    worker.pull(new float[1], null);
                    return List.of(partition).iterator();
                  },
                  false)
              .collectAsync();
      signals.await("joined 0");
      signals.await("joined 1");
      job.cancel(false);
      // Needs the slots of both tasks.
      assertEquals(executors, cluster.executorPids());
    }
    assertEquals(0, admin.model("sum").liveWorkers());
  }

  private void run(Cluster cluster, Function2<Integer, Iterator<Integer>, Iterator<Integer>> task) {
    assertEquals(
        List.of(0, 1),
        cluster.context().parallelize(List.of(0, 1), 2).mapPartitionsWithIndex(task, false).collect());
  }

  private static void commitOne(Worker worker) {
    worker.commit(new float[] {1}, Duration.ofMinutes(1));
  }

  private float sum() {
    final float[] center = new float[1];
    admin.pull("sum", center);
    return center[0];
  }

  private record Known(String algorithm, String consistency, String transport, boolean overlap)
      implements Serializable {
    private static final long serialVersionUID = 1;

    String model() {
      return String.join("-", algorithm, consistency.replace(':', '-'), transport, String.valueOf(overlap));
    }
  }

  /** The slow attempt gets no further than to its first minibatch before the newer one has joined. */
  private static final class RivalSamples extends Regression.Samples {
    private final Signals signals;
    private final boolean newer;

    RivalSamples(Signals signals, boolean newer) {
      super(0);
      this.signals = signals;
      this.newer = newer;
    }

    @Override
    public boolean next(Batch batch) throws Exception {
      if (newer) {
        signals.give("newer attempt has joined");
        signals.await("slow attempt has ended");
      } else {
        signals.await("newer attempt has joined");
      }
      return super.next(batch);
    }
  }

  /** Between tasks and the driver, as files of a folder. */
  private record Signals(String folder) implements Serializable {
    private static final long serialVersionUID = 1;

    void give(String name) {
      try {
        Files.write(Path.of(folder, name), new byte[0]);
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }

    boolean given(String name) {
      return Files.exists(Path.of(folder, name));
    }

    void await(String name) throws InterruptedException {
      while (!given(name)) {
        Thread.sleep(5);
      }
    }
  }
}
