package paramd;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** A JVM of a test's own, with its class path. Ends with close. */
final class ChildJvm implements AutoCloseable {
  private final Process process;
  private final BufferedReader out;

  ChildJvm(List<String> options, Class<?> main, String... arguments) {
    this(List.of(), options, main, arguments);
  }

  /** By another program, whose last arguments are the JVM's command. */
  ChildJvm(List<String> launcher, List<String> options, Class<?> main, String... arguments) {
    final List<String> command = new ArrayList<>(launcher);
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    command.add("-Xmx64m");
    command.addAll(options);
    command.add("-cp");
    command.add(System.getProperty("surefire.test.class.path", System.getProperty("java.class.path")));
    command.add(main.getName());
    command.addAll(List.of(arguments));
    try {
      process = new ProcessBuilder(command).redirectErrorStream(true).start();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    out = process.inputReader();
  }

  /** The next line of its output; null at the end. */
  String readLine() throws IOException {
    return out.readLine();
  }

  /** All that it still has to say. */
  String readAll() {
    final StringBuilder all = new StringBuilder();
    out.lines().forEach(line -> all.append(line).append('\n'));
    return all.toString();
  }

  long pid() {
    return process.pid();
  }

  void kill() {
    process.destroyForcibly();
  }

  int exitCode() throws InterruptedException {
    assertTrue(process.waitFor(Await.TIMEOUT.toSeconds(), TimeUnit.SECONDS), "the child JVM does not end");
    return process.exitValue();
  }

  @Override
  public void close() {
    process.destroyForcibly();
  }
}
