package paramd.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.Map;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Tag("spark")
@Timeout(120)
final class BeyondLoopbackTest {
  @Test
  void onlyAUserOpensTheDaemonToTheNetwork() throws IOException {
    try (Cluster cluster = new Cluster(Cluster.LOCAL, Map.of("spark.driver.bindAddress", "0.0.0.0"))) {
      final Dataset<Row> train = Mnist.train(cluster, 200);
      final ParamdClassifier classifier = new ParamdClassifier().setNumWorkers(2).setMaxIter(1);
      final IllegalStateException refused =
          assertThrows(IllegalStateException.class, () -> classifier.fit(train));
      assertTrue(refused.getMessage().contains("setInsecure"), refused.getMessage());
      assertEquals(2, classifier.setInsecure(true).fit(train).summary().numWorkers());
    }
  }
}
