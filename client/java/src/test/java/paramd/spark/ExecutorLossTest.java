package paramd.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.apache.spark.ml.evaluation.MulticlassClassificationEvaluator;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import paramd.Admin;
import paramd.ModelInfo;
import paramd.ParamdException;
import paramd.ParamdServer;
import paramd.ServerOptions;

@Tag("spark")
@Timeout(300)
final class ExecutorLossTest {
  private static final int EPOCHS = 100;

  @Test
  void aFitSurvivesThatAnExecutorIsKilled() throws Exception {
    try (Cluster cluster = new Cluster(Cluster.LOCAL, Map.of());
        ParamdServer server = ParamdServer.start(new ServerOptions());
        Admin admin = Admin.connect(server.address(), Duration.ofSeconds(30))) {
      final List<Long> before = cluster.executorPids();
      final Dataset<Row> train = Mnist.train(cluster, 10000);
      final CompletableFuture<ParamdClassificationModel> fit =
          CompletableFuture.supplyAsync(
              () ->
                  new ParamdClassifier()
                      .setServer(server.address())
                      .setModelName("mnist")
                      .setNumWorkers(2)
                      .setHiddenLayers(new int[] {64})
                      .setCommunicationWindow(5)
                      .setMaxIter(EPOCHS)
                      .fit(train));
      while (!bothTrain(admin)) {
        assertFalse(fit.isDone());
      }
      assertTrue(ProcessHandle.of(before.get(0)).orElseThrow().destroyForcibly());

      // 157 minibatches an epoch and worker, in windows of 5; and what the killed worker had committed before.
      final long updates = fit.get().summary().updates();
      assertTrue(updates > 2 * EPOCHS * 157 / 5, updates + " updates");
      final Dataset<Row> predictions = fit.get().transform(Mnist.test(cluster, 1000));
      final double accuracy =
          new MulticlassClassificationEvaluator().setMetricName("accuracy").evaluate(predictions);
      assertTrue(accuracy > 0.9, "reached " + accuracy);
      // The survivor, and one that took the killed one's place.
      final List<Long> after = new ArrayList<>(cluster.executorPids());
      after.retainAll(before);
      assertEquals(List.of(before.get(1)), after);
    }
  }

  /** None of them at the begin; two once there are tasks for them. */
  @Test
  void aFitTrainsOnExecutorsThatComeWithItsTasks() throws Exception {
    final Map<String, String> dynamic =
        Map.of(
            "spark.dynamicAllocation.enabled", "true",
            "spark.dynamicAllocation.shuffleTracking.enabled", "true",
            "spark.dynamicAllocation.initialExecutors", "0",
            "spark.dynamicAllocation.executorIdleTimeout", "1s",
            "spark.scheduler.minRegisteredResourcesRatio", "0");
    try (Cluster cluster = new Cluster(Cluster.LOCAL, dynamic)) {
      final ParamdTrainingSummary summary =
          new ParamdClassifier().setNumWorkers(2).setParallelismFactor(2).setMaxIter(5).fit(Mnist.train(cluster, 2000)).summary();
      assertEquals(4, summary.numWorkers());
      assertEquals(2000, summary.rows());
    }
  }

  private static boolean bothTrain(Admin admin) {
    try {
      final ModelInfo model = admin.model("mnist");
      // A commit is stale if another worker's came between.
      return model.liveWorkers() == 2 && model.meanStaleness() > 0;
    } catch (ParamdException e) {
      assertEquals(ParamdException.Code.NOT_FOUND, e.code());
      return false;
    }
  }
}
