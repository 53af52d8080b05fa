package paramd;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.ref.Cleaner;
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
 * and with the JVM, however that ends. A terminal's signals (Ctrl-C), and the SIGTERM that a service manager sends to
 * all processes of a unit, do not stop it: shutdown hooks of the JVM find it as it was. Thread-safe.
 */
public final class ParamdServer implements AutoCloseable {
  private static final String READY = "paramd listens on ";
  private static final int STARTUP_SECONDS = 60;
  // The daemon's own grace period, and some more.
  private static final int SHUTDOWN_SECONDS = 15;
  // How long a daemon that was stopped (SIGSTOP) has to go on after its sign to end.
  private static final long STOPPED_NANOS = TimeUnit.SECONDS.toNanos(1);
  private static final int POLL_MILLIS = 20;
  private static final int KEPT_LINES = 20;
  private static final Set<String> WILDCARDS = Set.of("0.0.0.0", "::", "[::]");

  private final Process process;
  private final Cleaner.Cleanable forgotten;
  private final String advertisedHost;
  private final int port;

  private ParamdServer(Process process, String advertisedHost, int port) {
    this.process = process;
    forgotten = NativeObject.CLEANER.register(this, () -> signal(process));
    this.advertisedHost = advertisedHost;
    this.port = port;
  }

  /**
   * Returns once the daemon listens.
   *
   * @param options how it is to listen; may be used again
   * @return the daemon, which is to be closed
   * @throws ParamdException UNAVAILABLE, with what the daemon said, if it does not start; DEADLINE_EXCEEDED if it does
   *     not listen after a minute; CANCELLED if the thread is interrupted
   */
  public static ParamdServer start(ServerOptions options) {
    Arguments.given(options, "options");
    NativeLibrary.checkName(Native.class.getName());
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
    final Consumer<String> log = options.log;
    final Thread reader = new Thread(() -> read(process, log, address), "paramd-log-" + process.pid());
    reader.setDaemon(true);
    boolean started = false;
    try {
      reader.start();
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

  /**
   * Where workers find it.
   *
   * @return HOST:PORT
   */
  public String address() {
    return advertisedHost + ":" + port;
  }

  /**
   * Where it listens.
   *
   * @return the port, also if the system chose it
   */
  public int port() {
    return port;
  }

  /**
   * Tells whether the daemon runs.
   *
   * @return false once it has ended, for whatever reason
   */
  public boolean isAlive() {
    return process.isAlive();
  }

  /**
   * Names the daemon's process.
   *
   * @return its process id
   */
  public long pid() {
    return process.pid();
  }

  /**
   * Tells of the daemon's end, for whatever reason.
   *
   * @return completed with its exit code: 0 clean, 1 an error, more than 128 a signal
   */
  public CompletableFuture<Integer> onExit() {
    return process.onExit().thenApply(Process::exitValue);
  }

  /**
   * Lets exchanges under way end, within the daemon's grace period, then ends it. One that is stopped (SIGSTOP) is
   * killed. Being interrupted kills it, too. Idempotent.
   */
  @Override
  public void close() {
    forgotten.clean();
    try {
      final long begin = System.nanoTime();
      final long deadline = begin + TimeUnit.SECONDS.toNanos(SHUTDOWN_SECONDS);
      for (long now = begin; now - deadline < 0; now = System.nanoTime()) {
        if (process.waitFor(POLL_MILLIS, TimeUnit.MILLISECONDS)) {
          return;
        }
        if (now - begin > STOPPED_NANOS && isStopped()) {
          break;
        }
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
    process.destroyForcibly();
  }

  @Override
  public String toString() {
    return "ParamdServer[" + address() + ", pid=" + pid() + (isAlive() ? "" : ", ended") + "]";
  }

  /** The sign to stop. Process.destroy would cut off its log. */
  private static void signal(Process process) {
    try {
      process.getOutputStream().close();
    } catch (IOException e) {
      // Then it has ended.
    }
  }

  private boolean isStopped() {
    try {
      final String stat = Files.readString(Path.of("/proc/" + process.pid() + "/stat"));
      return "Tt".indexOf(stat.charAt(stat.lastIndexOf(')') + 2)) >= 0;
    } catch (IOException e) {
      return false;
    }
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
          } catch (Throwable e) {
            // A daemon whose log nobody reads would stop.
          }
        }
      }
    } catch (IOException | RuntimeException | Error e) {
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
