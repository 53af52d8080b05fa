package paramd.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import paramd.Admin;
import paramd.ParamdServer;
import paramd.ServerOptions;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/** What parameters become, without Spark. */
@Timeout(60)
final class FitSpecTest {
  private static ParamdClassifier classifier() {
    return new ParamdClassifier();
  }

  private static DataShape shape(long rowsOfWorker) {
    return new DataShape(4, 3, rowsOfWorker, Option.empty());
  }

  private static FitSpec spec(ParamdClassifier classifier) {
    return FitSpec.of(classifier, shape(1000), FitSpec.Softmax());
  }

  private static Map<String, Object> hyperparameters(ParamdClassifier classifier) {
    return CollectionConverters.asJava(spec(classifier).hyperparameters());
  }

  private static void refused(String part, ParamdClassifier classifier) {
    final IllegalArgumentException e = assertThrows(IllegalArgumentException.class, () -> spec(classifier), part);
    assertTrue(e.getMessage().contains(part), e.getMessage());
  }

  @Test
  void whatTheUserSetIsWhatTheDaemonIsTold() {
    final String[] rate = {"learning_rate=0.25"};
    for (String solver : new String[] {"sgd", "momentum", "adam"}) {
      final FitSpec told = spec(classifier().setSolver(solver).setHyperparameters(rate));
      assertEquals(0.25, told.learningRate());
      assertEquals(0.25, told.hyperparameters().apply("learning_rate"));
      assertEquals(0.25, hyperparameters(classifier().setSolver(solver).setStepSize(0.25)).get("learning_rate"));
    }
    assertEquals(7.0, hyperparameters(classifier().setCommunicationWindow(7)).get("communication_window"));
    assertFalse(hyperparameters(classifier()).containsKey("communication_window"));
  }

  @Test
  void ratesSuitSolverAndAlgorithm() {
    final Map<String, Double> downpour = Map.of("sgd", 0.1, "momentum", 0.01, "adam", 0.002);
    downpour.forEach(
        (solver, rate) -> {
          assertEquals(rate, spec(classifier().setSolver(solver).setAlgorithm("downpour")).learningRate());
          // A commit that is divided by the window's five minibatches is for as much again.
          assertEquals(5 * rate, spec(classifier().setSolver(solver).setAlgorithm("adag")).learningRate(), 1e-12);
        });
  }

  @Test
  void theElasticForceIsTheSameWhateverTheRate() {
    for (String algorithm : new String[] {"aeasgd", "eamsgd", "easgd"}) {
      for (ParamdClassifier classifier :
          new ParamdClassifier[] {classifier(), classifier().setSolver("adam"), classifier().setStepSize(0.003)}) {
        final Map<String, Object> told = hyperparameters(classifier.setAlgorithm(algorithm));
        assertEquals(0.2, (double) told.get("rho") * (double) told.get("learning_rate"), 1e-12);
      }
      final String[] rho = {"rho=0.5"};
      assertEquals(0.5, hyperparameters(classifier().setAlgorithm(algorithm).setHyperparameters(rho)).get("rho"));
    }
  }

  @Test
  void littleDataAreTrainedForMoreEpochs() {
    assertEquals(125, spec(classifier()).epochs());
    assertEquals(10, FitSpec.of(classifier(), shape(1_000_000), FitSpec.Softmax()).epochs());
    assertEquals(4000, FitSpec.of(classifier(), shape(1), FitSpec.Softmax()).epochs());
    assertEquals(3, spec(classifier().setMaxIter(3)).epochs());
  }

  @Test
  void windowsOfSparseDataAreAsLongAsTheirExchangesAreLarge() {
    final DataShape sparse = new DataShape(1 << 18, 20, 7000, Option.apply(100.0));
    final FitSpec spec = FitSpec.of(classifier(), sparse, FitSpec.Softmax());
    assertEquals(82.0, spec.hyperparameters().apply("communication_window"));
    final FitSpec set = FitSpec.of(classifier().setCommunicationWindow(9), sparse, FitSpec.Softmax());
    assertEquals(9.0, set.hyperparameters().apply("communication_window"));
    final FitSpec divided = FitSpec.of(classifier().setAlgorithm("adag"), sparse, FitSpec.Softmax());
    assertFalse(divided.hyperparameters().contains("communication_window"));
  }

  @Test
  void contradictionsAndWhatTheDaemonWouldRefuseAreErrors() {
    final String[] rate = {"learning_rate=0.25"};
    refused("learning_rate is given 2 times", classifier().setStepSize(0.1).setHyperparameters(rate));
    refused("communicationWindow",
        classifier().setCommunicationWindow(2).setHyperparameters(new String[] {"communication_window=3"}));
    refused("given 2 times", classifier().setHyperparameters(new String[] {"learning_rate=1", "learning_rate=2"}));
    refused("none of algorithm dynsgd", classifier().setHyperparameters(new String[] {"rho=0.4"}));
    refused("must be below 1",
        classifier().setAlgorithm("easgd").setHyperparameters(new String[] {"rho=4"}).setStepSize(0.5));
    refused("must be from", classifier().setHyperparameters(new String[] {"learning_rate=-1"}));
    refused("must be from", classifier().setHyperparameters(new String[] {"learning_rate=NaN"}));
    refused("whole number", classifier().setHyperparameters(new String[] {"communication_window=2.5"}));
    refused("adag, adaptive_adag", classifier().setAlgorithm("magic"));
    refused("bounded:3", classifier().setConsistency("bounded"));
    refused("LogisticRegression for L1", classifier().setElasticNetParam(0.5));
    refused("server is not set", classifier().setModelName("mine"));
    refused("2^31", classifier().setHiddenLayers(new int[] {1 << 20, 1 << 20}));
    // A plugin's, perhaps.
    spec(classifier().setServer("localhost:5000").setAlgorithm("magic"));
  }

  /** What stands in two places. */
  @Test
  void theAlgorithmsAreThoseOfTheDaemon() {
    try (ParamdServer server = ParamdServer.start(new ServerOptions());
        Admin admin = Admin.connect(server.address(), Duration.ofSeconds(30))) {
      CollectionConverters.asJava(FitSpec.Algorithms())
          .keySet()
          .forEach(
              algorithm -> {
                for (String solver : new String[] {"sgd", "momentum", "adam"}) {
                  admin.createModel(
                      spec(classifier().setAlgorithm(algorithm).setSolver(solver)).modelSpec(algorithm + "-" + solver));
                }
              });
    }
  }
}
