package paramd;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.PrintWriter;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.util.Arrays;
import java.util.List;

/**
 * What the boundary costs: exchanges through Java's direct buffers beside those of the C++ client, in turns, with the
 * same daemon. scripts/java_bench.sh runs it.
 */
final class BoundaryBench {
  private static final List<String> KINDS = List.of("grpc", "shm", "shm-inplace");
  private static final int[] MEGABYTES = {4, 40};
  private static final double ROUND_SECONDS = 0.3;

  private interface Side {
    /** Seconds that so many exchanges took. */
    double exchange(long exchanges) throws IOException;
  }

  private BoundaryBench() {}

  /** Arguments: the path of boundary_peer, and how many rounds. */
  public static void main(String[] arguments) throws IOException {
    final int rounds = Integer.parseInt(arguments[1]);
    System.out.println(
        "| transport | vector | C++ exchanges/s | Java exchanges/s | C++ GB/s | Java GB/s | Java over C++ |");
    System.out.println("|---|---|---|---|---|---|---|");
    for (String kind : KINDS) {
      for (int megabytes : MEGABYTES) {
        try (ParamdServer server = ParamdServer.start(new ServerOptions())) {
          compare(server.address(), arguments[0], kind, megabytes, rounds);
        }
      }
    }
  }

  private static void compare(String server, String program, String kind, int megabytes, int rounds)
      throws IOException {
    final int floats = megabytes * 1_000_000 / Float.BYTES;
    final Process peer =
        new ProcessBuilder(program, kind, server, Integer.toString(floats))
            .redirectError(ProcessBuilder.Redirect.INHERIT)
            .start();
    try (Worker worker = join(server, kind, floats);
        PrintWriter toPeer = new PrintWriter(peer.outputWriter(), true);
        BufferedReader fromPeer = peer.inputReader()) {
      final boolean inPlace = kind.equals("shm-inplace");
      final FloatBuffer update = inPlace ? worker.commitBuffer() : direct(floats);
      final FloatBuffer center = inPlace ? worker.centerBuffer() : direct(floats);
      final Side java =
          exchanges -> {
            final long begin = System.nanoTime();
            for (long i = 0; i < exchanges; i++) {
              worker.exchange(update, center, null);
            }
            return (System.nanoTime() - begin) * 1e-9;
          };
      final Side cpp =
          exchanges -> {
            toPeer.println(exchanges);
            return Double.parseDouble(fromPeer.readLine());
          };
      java.exchange(5);
      cpp.exchange(5);
      final long exchanges = Math.max(3, Math.round(5 * ROUND_SECONDS / cpp.exchange(5)));
      java.exchange(exchanges);
      final double[] javaSeconds = new double[rounds];
      final double[] cppSeconds = new double[rounds];
      final double[] ratios = new double[rounds];
      for (int i = 0; i < rounds; i++) {
        if (i % 2 == 0) {
          javaSeconds[i] = java.exchange(exchanges);
        }
        cppSeconds[i] = cpp.exchange(exchanges);
        if (i % 2 == 1) {
          javaSeconds[i] = java.exchange(exchanges);
        }
        ratios[i] = cppSeconds[i] / javaSeconds[i];
      }
      final double cppRate = exchanges / median(cppSeconds);
      final double javaRate = exchanges / median(javaSeconds);
      // Each exchange moves the vector both ways.
      final double gigabytes = 2 * megabytes * 1e-3;
      System.out.printf(
          "| %s | %d MB | %.1f | %.1f | %.2f | %.2f | %.2f |%n",
          kind, megabytes, cppRate, javaRate, cppRate * gigabytes, javaRate * gigabytes, median(ratios));
    } finally {
      peer.destroy();
    }
  }

  private static Worker join(String server, String kind, int floats) {
    final String model = "java-" + kind + "-" + floats;
    final Worker worker =
        Worker.join(
            new WorkerOptions(server, model, "java")
                .create(new ModelSpec(model).tensor("w", floats).algorithm("downpour"))
                .transport(kind.startsWith("shm") ? "shm" : "grpc"));
    worker.initialize(direct(floats), null);
    return worker;
  }

  private static FloatBuffer direct(int floats) {
    return ByteBuffer.allocateDirect(floats * Float.BYTES).order(ByteOrder.nativeOrder()).asFloatBuffer();
  }

  private static double median(double[] values) {
    final double[] sorted = values.clone();
    Arrays.sort(sorted);
    return (sorted[(sorted.length - 1) / 2] + sorted[sorted.length / 2]) / 2;
  }
}
