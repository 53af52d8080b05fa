package paramd;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.FloatBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** TLS and tokens, within a JVM that has TLS of its own. */
@Timeout(120)
final class SecurityTest {
  private static final Duration TIMEOUT = Duration.ofSeconds(30);
  private static final Duration SHORT = Duration.ofSeconds(1);

  private static ParamdServer start(JobSecrets secrets, boolean tls) {
    return ParamdServer.start(new ServerOptions().secrets(secrets, tls));
  }

  private static ParamdException refused(String server, Security security) {
    return assertThrows(ParamdException.class, () -> Admin.connect(server, SHORT, security).close());
  }

  @Test
  void aJobsWorkersExchangeOverTlsAndOthersDoNot() {
    final JobSecrets secrets = JobSecrets.make(List.of("127.0.0.1"));
    try (ParamdServer server = start(secrets, true)) {
      final ModelSpec spec = new ModelSpec("m").algorithm("downpour").tensor("w", 3);
      final WorkerOptions options =
          new WorkerOptions(server.address(), "m", "w").create(spec).security(secrets.security(true));
      try (Worker worker = Worker.join(options)) {
        worker.initialize(new float[] {1, 2, 3}, TIMEOUT);
        final float[] center = new float[3];
        worker.exchange(FloatBuffer.wrap(new float[] {1, 1, 1}), FloatBuffer.wrap(center), TIMEOUT);
        assertArrayEquals(new float[] {2, 3, 4}, center);
      }
      assertTrue(refused(server.address(), new Security()).getMessage().contains("does it want TLS"));
      final Security stranger = JobSecrets.make(List.of("127.0.0.1")).security(true);
      assertEquals(ParamdException.Code.UNAUTHENTICATED, refused(server.address(), stranger).code());
    }
  }

  @Test
  void aTokenAloneKeepsOthersOutOnLoopback(@TempDir Path folder) throws IOException {
    final JobSecrets secrets = JobSecrets.make(List.of("127.0.0.1"));
    try (ParamdServer server = start(secrets, false)) {
      Admin.connect(server.address(), TIMEOUT, secrets.security(false)).close();
      final ParamdException none = refused(server.address(), new Security());
      assertEquals(ParamdException.Code.UNAUTHENTICATED, none.code());
      assertTrue(none.getMessage().contains("wants a token"), none.getMessage());
    }
    // As they go to another host: the files' content, and no paths.
    final Path token = Files.writeString(folder.resolve("token"), "secret\n");
    final Security inlined = new Security().tlsCa("none").tokenFile(token.toString()).inlined();
    assertEquals("secret", inlined.settings().get("token"));
    assertEquals(null, inlined.settings().get("token_file"));
    assertEquals(
        ParamdException.Code.INVALID_ARGUMENT,
        assertThrows(ParamdException.class, () -> new Security().tlsCa("/nowhere").inlined()).code());
  }
}
