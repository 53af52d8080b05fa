package paramd;

import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;

/** A test with a daemon of its own for all of its cases. */
abstract class ServerTest {
  static ParamdServer server;

  @BeforeAll
  static void start() {
    server = ParamdServer.start(new ServerOptions());
  }

  @AfterAll
  static void stop() {
    server.close();
  }
}
