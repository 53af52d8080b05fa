package paramd;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

@Timeout(120)
class ParamdServerTest {
  /** Starts a daemon, says its process id, and waits. */
  static final class Owner {
    public static void main(String[] arguments) throws InterruptedException {
      final ParamdServer server = ParamdServer.start(new ServerOptions());
      System.out.println(server.pid());
      if (arguments[0].equals("wait")) {
        Thread.sleep(Long.MAX_VALUE);
      }
    }
  }

  /** Also if it ended and nobody has asked for its exit code. */
  private static boolean gone(long pid) {
    try {
      final String stat = Files.readString(Path.of("/proc/" + pid + "/stat"));
      return stat.charAt(stat.lastIndexOf(')') + 2) == 'Z';
    } catch (IOException e) {
      return true;
    }
  }

  @Test
  void itListensAdvertisesLogsAndCloses() throws InterruptedException {
    final List<String> log = new CopyOnWriteArrayList<>();
    final ParamdServer server =
        ParamdServer.start(
            new ServerOptions()
                .host("0.0.0.0")
                .advertisedHost("localhost")
                .insecure(true)
                .flags(List.of("--lease=7s"))
                .log(log::add));
    try {
      assertEquals("localhost:" + server.port(), server.address());
      assertTrue(server.isAlive());
      final ModelSpec spec = new ModelSpec("m").tensor("w", 1).algorithm("downpour");
      Worker.join(new WorkerOptions(server.address(), "m", "a").create(spec)).close();
    } finally {
      server.close();
    }
    server.close();
    assertFalse(server.isAlive());
    Await.until("the log's end", () -> log.stream().anyMatch(line -> line.contains("event=stop")));
    assertTrue(log.stream().anyMatch(line -> line.contains("lease=7s")), log::toString);
  }

  @Test
  void whatTheDaemonRefusesIsTold() {
    final ParamdException flag =
        assertThrows(
            ParamdException.class,
            () -> ParamdServer.start(new ServerOptions().flags(List.of("--no_such_flag=1"))));
    assertEquals(ParamdException.Code.UNAVAILABLE, flag.code());
    assertTrue(flag.getMessage().contains("no_such_flag"), flag.getMessage());
    final ParamdException host =
        assertThrows(ParamdException.class, () -> ParamdServer.start(new ServerOptions().host("0.0.0.0")));
    assertTrue(host.getMessage().contains("--insecure"), host.getMessage());
  }

  @Test
  void itEndsWithAKilledJvmAndLeavesNoFiles(@TempDir Path folder) throws Exception {
    try (ChildJvm child = new ChildJvm(List.of("-Djava.io.tmpdir=" + folder), Owner.class, "wait")) {
      final long pid = Long.parseLong(child.readLine());
      assertFalse(gone(pid));
      child.kill();
      Await.until("the daemon ends", () -> gone(pid));
    }
    try (var left = Files.list(folder)) {
      assertEquals(List.of(), left.filter(path -> path.getFileName().toString().startsWith("paramd")).toList());
    }
  }

  @Test
  void itEndsWithAJvmThatForgotIt() throws Exception {
    try (ChildJvm child = new ChildJvm(List.of(), Owner.class, "end")) {
      final long pid = Long.parseLong(child.readLine());
      assertEquals(0, child.exitCode());
      Await.until("the daemon ends", () -> gone(pid));
    }
  }
}
