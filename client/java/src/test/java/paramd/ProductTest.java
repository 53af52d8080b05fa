package paramd;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Trains to known answers, with and without overlap, over gRPC and shared memory, with one worker and two. */
@Timeout(180)
class ProductTest extends ServerTest {
  private record Case(
      String algorithm, String consistency, String transport, String wire, int workers, boolean overlap) {

    boolean elastic() {
      return algorithm.endsWith("easgd");
    }

    /** What the center, or for elastic algorithms its sum with all workers' parameters, is at the end. */
    double expected(int i) {
      final double steps = KnownSteps.steps(workers, i);
      return switch (algorithm) {
        case "downpour", "dynsgd" -> KnownSteps.start(i) + KnownSteps.STEPS * steps;
        case "adag", "adaptive_adag" -> KnownSteps.start(i) + KnownSteps.COMMITS * steps;
        case "averaging" -> KnownSteps.start(i) + KnownSteps.STEPS * steps / workers;
        case "aeasgd", "easgd" -> (workers + 1) * KnownSteps.start(i) + KnownSteps.STEPS * steps;
        default -> throw new IllegalArgumentException(algorithm);
      };
    }
  }

  private static void train(Admin admin, Case c) throws Exception {
    final ModelSpec spec = KnownSteps.spec("m", c.algorithm, c.consistency);
    admin.createModel(c.elastic() ? spec.hyperparameter("rho", 0.25) : spec);
    // All begin at the first center, and rounds are of all.
    final CyclicBarrier begun = new CyclicBarrier(c.workers);
    final List<KnownSteps> models = new ArrayList<>();
    final List<Future<TrainSummary>> trainings = new ArrayList<>();
    final ExecutorService threads = Executors.newFixedThreadPool(c.workers);
    try {
      for (int worker = 0; worker < c.workers; worker++) {
        final KnownSteps model = new KnownSteps(worker, begun);
        final WorkerOptions options =
            new WorkerOptions(server.address(), "m", String.valueOf(worker)).transport(c.transport).wire(c.wire);
        models.add(model);
        trainings.add(
            threads.submit(
                () -> Training.run(options, KnownSteps.options(c.overlap), model, new KnownSteps.Batches())));
      }
      for (Future<TrainSummary> training : trainings) {
        assertEquals(KnownSteps.STEPS, training.get().steps(), c::toString);
      }
    } finally {
      threads.shutdownNow();
    }
    final float[] center = new float[KnownSteps.FLOATS];
    admin.pull("m", center);
    for (int i = 0; i < center.length; i++) {
      double found = center[i];
      for (KnownSteps model : models) {
        found += c.elastic() ? model.parameters().get(i) : 0;
      }
      assertEquals(c.expected(i), found, 1e-3, c::toString);
    }
    admin.deleteModel("m");
  }

  @Test
  void everyTrainingEndsWhereItMust() throws Exception {
    final String[][] rules = {
      {"downpour", "async"}, {"downpour", "sync"}, {"adag", "bounded:1"}, {"dynsgd", "sync"},
      {"adaptive_adag", "sync"}, {"aeasgd", "async"}, {"aeasgd", "bounded:1"}, {"easgd", "sync"}, {"averaging", "sync"},
    };
    try (Admin admin = Admin.connect(server.address(), Await.TIMEOUT)) {
      for (String[] rule : rules) {
        for (int workers = 1; workers <= 2; workers++) {
          for (boolean overlap : new boolean[] {false, true}) {
            train(admin, new Case(rule[0], rule[1], "grpc", "f32", workers, overlap));
            train(admin, new Case(rule[0], rule[1], "shm", "f32", workers, overlap));
          }
        }
      }
      train(admin, new Case("downpour", "async", "grpc", "f16", 2, true));
      train(admin, new Case("adag", "sync", "grpc", "bf16", 2, true));
    }
  }
}
