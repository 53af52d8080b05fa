package paramd;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Consumer;

/**
 * The daemon that travels in the jar, as a child process. It ends with {@link #close}, when this object is forgotten,
 * and with the JVM, however that ends. Thread-safe.
 */
public final class ParamdServer implements AutoCloseable {
  private static final String READY = "paramd listens on ";
  private static final int STARTUP_SECONDS = 60;
  // The daemon's own grace period, and some more.
  private static final int SHUTDOWN_SECONDS = 15;
  private static final int KEPT_LINES = 20;
  private static final Set<String> WILDCARDS = Set.of("0.0.0.0", "::", "[::]");

  private final Process process;
  private final String advertisedHost;
  private final int port;

  private ParamdServer(Process process, String advertisedHost, int port) {
    this.process = process;
    this.advertisedHost = advertisedHost;
    this.port = port;
  }

  /** Returns once the daemon listens. UNAVAILABLE, with what the daemon said, if it does not. */
  public static ParamdServer start(ServerOptions options) {
    final Process process;
    final Path secrets;
    try (BundledFiles files = BundledFiles.extract(List.of("paramd"))) {
      secrets = options.secrets == null ? null : write(options.secrets);
      process = launch(command(files.path("paramd"), options, secrets));
    } catch (IOException e) {
      throw new ParamdException(
          ParamdException.Code.UNAVAILABLE,
          "can't start the daemon: " + e.getMessage() + "; " + BundledFiles.needs(),
          e);
    }
    final CompletableFuture<String> address = new CompletableFuture<>();
    final Thread reader = new Thread(() -> read(process, options.log, address), "paramd-log-" + process.pid());
    reader.setDaemon(true);
    reader.start();
    boolean started = false;
    try {
      final String listening = address.get(STARTUP_SECONDS, TimeUnit.SECONDS);
      final int port = Integer.parseInt(listening.substring(listening.lastIndexOf(':') + 1));
      final ParamdServer server = new ParamdServer(process, advertisedHost(options), port);
      started = true;
      return server;
    } catch (ExecutionException e) {
      throw new ParamdException(
          ParamdException.Code.UNAVAILABLE, "the daemon did not start: " + e.getCause().getMessage());
    } catch (TimeoutException e) {
      throw new ParamdException(
          ParamdException.Code.DEADLINE_EXCEEDED,
          "the daemon did not start within " + STARTUP_SECONDS + " s; is the machine overloaded?");
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new ParamdException(ParamdException.Code.CANCELLED, "interrupted while the daemon started", e);
    } finally {
      // It has read them.
      delete(secrets);
      if (!started) {
        process.destroyForcibly();
      }
    }
  }

  /** A folder of this user alone, as temporary ones are. */
  private static Path write(JobSecrets secrets) throws IOException {
    final Path folder = Files.createTempDirectory("paramd-secrets-");
    Files.writeString(folder.resolve("cert"), secrets.certificate());
    Files.writeString(folder.resolve("key"), secrets.key());
    Files.writeString(folder.resolve("tokens"), secrets.tokens());
    return folder;
  }

  private static void delete(Path folder) {
    if (folder == null) {
      return;
    }
    try {
      for (String file : List.of("cert", "key", "tokens")) {
        Files.deleteIfExists(folder.resolve(file));
      }
      Files.deleteIfExists(folder);
    } catch (IOException e) {
      // Nobody else can read what is left of it.
    }
  }

  /** HOST:PORT for workers. */
  public String address() {
    return advertisedHost + ":" + port;
  }

  public int port() {
    return port;
  }

  public boolean isAlive() {
    return process.isAlive();
  }

  public long pid() {
    return process.pid();
  }

  /** Lets exchanges under way end, within the daemon's grace period, then ends it. Idempotent. */
  @Override
  public void close() {
    try {
      // Its sign to stop. Process.destroy would cut off its log.
      process.getOutputStream().close();
    } catch (IOException e) {
      // Then it has ended.
    }
    try {
      if (process.waitFor(SHUTDOWN_SECONDS, TimeUnit.SECONDS)) {
        return;
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
    process.destroyForcibly();
  }

  private static List<String> command(Path program, ServerOptions options, Path secrets) {
    final List<String> command = new ArrayList<>();
    command.add(program.toString());
    command.add("--listen=" + bracketed(options.host) + ":" + options.port);
    command.add("--exit_with_stdin");
    if (options.insecure) {
      command.add("--insecure");
    }
    if (secrets != null) {
      command.add("--token_file=" + secrets.resolve("tokens"));
      if (options.tls) {
        command.add("--tls_cert=" + secrets.resolve("cert"));
        command.add("--tls_key=" + secrets.resolve("key"));
      }
    }
    command.addAll(options.flags);
    return command;
  }

  /** "Text file busy" if another thread forked while the program was written; that passes. */
  private static Process launch(List<String> command) throws IOException {
    for (int attempt = 0; ; attempt++) {
      try {
        return new ProcessBuilder(command).redirectErrorStream(true).start();
      } catch (IOException e) {
        if (attempt == 50 || !String.valueOf(e.getMessage()).contains("error=26")) {
          throw e;
        }
        Thread.yield();
      }
    }
  }

  private static void read(Process process, Consumer<String> log, CompletableFuture<String> address) {
    final ArrayDeque<String> last = new ArrayDeque<>();
    try (BufferedReader lines =
        new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8))) {
      for (String line; (line = lines.readLine()) != null; ) {
        if (line.startsWith(READY)) {
          address.complete(line.substring(READY.length()));
        } else {
          if (!address.isDone()) {
            last.add(line);
            if (last.size() > KEPT_LINES) {
              last.remove();
            }
          }
          try {
            log.accept(line);
          } catch (RuntimeException e) {
            // A daemon whose log nobody reads would stop.
          }
        }
      }
    } catch (IOException e) {
      last.add(e.toString());
    }
    address.completeExceptionally(new IllegalStateException(String.join("\n", last)));
  }

  /** An IPv6 address as it stands before a port. */
  private static String bracketed(String host) {
    return host.indexOf(':') >= 0 && !host.startsWith("[") ? "[" + host + "]" : host;
  }

  private static String advertisedHost(ServerOptions options) {
    if (options.advertisedHost != null) {
      return options.advertisedHost;
    }
    if (!WILDCARDS.contains(options.host)) {
      return bracketed(options.host);
    }
    try {
      return InetAddress.getLocalHost().getHostAddress();
    } catch (UnknownHostException e) {
      throw new ParamdException(
          ParamdException.Code.FAILED_PRECONDITION,
          "this host does not know its own address; give ServerOptions.advertisedHost",
          e);
    }
  }
}
