package paramd.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import paramd.JobSecrets;
import paramd.ParamdException;
import paramd.ParamdServer;
import paramd.ServerOptions;

@Tag("spark")
@Timeout(120)
final class BeyondLoopbackTest {
  @Test
  void aFitIsForItselfAloneAndBringsWhatOpensADaemonOfOnesOwn(@TempDir Path folder) throws IOException {
    final JobSecrets secrets = JobSecrets.make(List.of("127.0.0.1"));
    final Path ca = Files.writeString(folder.resolve("ca"), secrets.ca());
    final Path token = Files.writeString(folder.resolve("token"), secrets.token());
    try (Cluster cluster = new Cluster(Cluster.LOCAL, Map.of("spark.driver.bindAddress", "0.0.0.0"));
        ParamdServer server = ParamdServer.start(new ServerOptions().secrets(secrets, true))) {
      final Dataset<Row> train = Mnist.train(cluster, 200);
      final ParamdClassifier classifier = new ParamdClassifier().setNumWorkers(2).setMaxIter(1);
      assertEquals(2, classifier.fit(train).summary().numWorkers());
      classifier.setServer(server.address()).setModelName("kept").setTlsCa(ca.toString());
      assertThrows(ParamdException.class, () -> classifier.fit(train));
      assertEquals(2, classifier.setTokenFile(token.toString()).fit(train).summary().numWorkers());
    }
  }
}
