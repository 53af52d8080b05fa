package paramd;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

@Timeout(120)
class ParamdServerTest {
  /** Starts a daemon, whose models it can still list when it is to end. */
  static final class Saver {
    public static void main(String[] arguments) throws InterruptedException {
      final ParamdServer server = ParamdServer.start(new ServerOptions());
      Runtime.getRuntime()
          .addShutdownHook(
              new Thread(
                  () -> {
                    try (Admin admin = Admin.connect(server.address(), Duration.ofSeconds(10))) {
                      System.out.println("models: " + admin.listModels().size());
                    }
                    server.close();
                  }));
      System.out.println(server.pid());
      Thread.sleep(Long.MAX_VALUE);
    }
  }

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

  private static void kill(String signal, String process) throws Exception {
    assertEquals(0, new ProcessBuilder("kill", "-" + signal, "--", process).inheritIO().start().waitFor());
  }

  /** As a terminal's Ctrl-C, and a service manager's stop. */
  @Test
  void whatStopsTheWholeGroupLeavesTheDaemonToShutdownHooks() throws Exception {
    try (ChildJvm child = new ChildJvm(List.of("setsid"), List.of(), Saver.class)) {
      final long pid = Long.parseLong(child.readLine());
      kill("INT", "-" + child.pid());
      kill("TERM", "-" + child.pid());
      assertEquals("models: 0", child.readLine());
      child.exitCode();
      Await.until("the daemon ends", () -> gone(pid));
    }
  }

  private static long startAndForget() {
    return ParamdServer.start(new ServerOptions()).pid();
  }

  @Test
  void aForgottenDaemonEnds() throws Exception {
    final long pid = startAndForget();
    Await.until(
        "the daemon ends",
        () -> {
          System.gc();
          return gone(pid);
        });
  }

  @Test
  void anErrorOfWhoTakesTheLogHoldsUpNobody() {
    final ServerOptions options =
        new ServerOptions()
            .log(
                (String line) -> {
                  throw new StackOverflowError();
                });
    final long begin = System.nanoTime();
    try (ParamdServer server = ParamdServer.start(options)) {
      assertTrue(server.isAlive());
    }
    assertTrue(System.nanoTime() - begin < 30e9);
  }

  @Test
  void aDaemonThatIsStoppedIsClosedSoon() throws Exception {
    final ParamdServer server = ParamdServer.start(new ServerOptions());
    kill("STOP", String.valueOf(server.pid()));
    final long begin = System.nanoTime();
    server.close();
    assertTrue(System.nanoTime() - begin < 10e9);
    assertEquals(137, server.onExit().get());
  }

  @Test
  void itsLogGoesToALoggerAtTheLevelOfEachLine() throws Exception {
    final CollectedLog log = new CollectedLog();
    try (ParamdServer server = ParamdServer.start(new ServerOptions().log(log))) {
      assertTrue(server.isAlive());
    }
    Await.until("the log's end", () -> log.lines().stream().anyMatch(line -> line.contains("event=stop")));
    assertTrue(log.lines().stream().allMatch(line -> line.startsWith("INFO ")), () -> log.lines().toString());
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
