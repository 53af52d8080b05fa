package paramd;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.ref.WeakReference;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.ByteBuffer;
import java.nio.FloatBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** What native code does to its JVM, seen in JVMs of their own. */
@Timeout(300)
class JvmTest {
  /** Every test's child: does one thing, to the daemon at the second argument. */
  static final class Child {
    public static void main(String[] arguments) throws Exception {
      switch (arguments[0]) {
        case "leave open" -> {
          use(join(arguments[1], "grpc"));
          use(join(arguments[1], "shm"));
        }
        case "train" -> train(arguments[1]);
        case "tell" -> tell();
        case "exit" -> {
          use(join(arguments[1], "grpc"));
          System.exit(3);
        }
        case "maps" -> maps(arguments[1]);
        case "buffers" -> buffers(arguments[1]);
        case "leak" -> leak(arguments[1]);
        case "refused" -> refused(arguments[1]);
        case "class loaders" -> classLoaders(arguments[1], Path.of(arguments[2]), Path.of(arguments[3]));
        default -> throw new IllegalArgumentException(arguments[0]);
      }
    }
  }

  /** Says why each way in does not work, twice. */
  static void refused(String server) {
    final List<Runnable> ways =
        List.of(
            () -> join(server, "grpc"),
            () -> Admin.connect(server, Duration.ofSeconds(1)),
            () -> new Mlp(new long[] {2, 2}, "sgd", 0.1, 1),
            () -> Training.run(new WorkerOptions(server, "m", "w"), new TrainOptions(), null, null),
            () -> JobSecrets.make(List.of("127.0.0.1")),
            () -> ModelFile.open(Path.of("/nowhere")),
            () -> ParamdServer.start(new ServerOptions()));
    for (int i = 0; i < 2; i++) {
      for (Runnable way : ways) {
        try {
          way.run();
          System.out.println("it works");
        } catch (ParamdException e) {
          System.out.println(e.code() + " " + e.getMessage());
        }
      }
    }
  }

  /** Descriptors and resident kilobytes after each of many workers whose buffers nobody but the collector frees. */
  static void buffers(String server) throws Exception {
    final int floats = 4_000_000;
    final ModelSpec spec = new ModelSpec("large").tensor("w", floats).algorithm("downpour");
    for (int i = 0; i < 60; i++) {
      try (Worker worker =
          Worker.join(new WorkerOptions(server, "large", "a").create(spec).transport(i % 2 == 0 ? "shm" : "grpc"))) {
        worker.initialize(worker.commitBuffer(), Await.TIMEOUT);
        worker.pull(worker.centerBuffer(), Await.TIMEOUT);
      }
      try (var descriptors = Files.list(Path.of("/proc/self/fd"))) {
        System.out.println(descriptors.count() + " " + residentNow());
      }
    }
  }

  static final int FLOATS = 300_000;

  static Worker join(String server, String transport) {
    return Worker.join(
        new WorkerOptions(server, "m", transport)
            .create(new ModelSpec("m").tensor("w", FLOATS).algorithm("downpour"))
            .transport(transport));
  }

  static void use(Worker worker) {
    final float[] floats = new float[FLOATS];
    worker.initialize(floats, Await.TIMEOUT);
    worker.exchange(floats.clone(), floats, Await.TIMEOUT);
  }

  /** Loses its daemon, which the thread of heartbeats tells. */
  static void tell() throws Exception {
    final CollectedLog log = new CollectedLog();
    final ParamdServer own = ParamdServer.start(new ServerOptions().flags(List.of("--lease=600ms")));
    final ModelSpec spec = new ModelSpec("m").tensor("w", 1).algorithm("downpour");
    final Worker worker = Worker.join(new WorkerOptions(own.address(), "m", "a").create(spec).log(log));
    ProcessHandle.of(own.pid()).orElseThrow().destroyForcibly();
    Await.until("it is told", () -> log.lines().stream().anyMatch(line -> line.contains("heartbeat")));
    worker.close();
  }

  /** A network in native code, then one behind Java's interface. */
  static void train(String server) {
    final BatchSource source =
        new BatchSource() {
          private int batches;

          @Override
          public boolean next(Batch batch) {
            batch.set(2, new float[] {0, 1, 1, 0}, new float[] {0, 1});
            return ++batches <= 100;
          }

          @Override
          public void rewind(long epoch) {
            batches = 0;
          }
        };
    try (Mlp mlp = new Mlp(new long[] {2, 4, 2}, "sgd", 0.1, 1)) {
      final ModelSpec spec = new ModelSpec("mlp").algorithm("aeasgd");
      mlp.describe(spec);
      final WorkerOptions options = new WorkerOptions(server, "mlp", "a").create(spec);
      Training.run(options, new TrainOptions().epochs(2), mlp, source);
      final Trainable inJava =
          new Trainable() {
            @Override
            public FloatBuffer parameters() {
              return mlp.parameters();
            }

            @Override
            public double[] trainOnBatch(Batch batch) {
              return mlp.trainOnBatch(batch);
            }

            @Override
            public String[] metricNames() {
              return mlp.metricNames();
            }

            @Override
            public double learningRate() {
              return mlp.learningRate();
            }

            @Override
            public void setLearningRate(double learningRate) {
              mlp.setLearningRate(learningRate);
            }
          };
      Training.run(options, new TrainOptions().epochs(2), inJava, source);
    }
  }

  /** The files of shared objects that this process has mapped. */
  static Set<String> libraries() throws Exception {
    try (var lines = Files.lines(Path.of("/proc/self/maps"))) {
      return lines
          .filter(line -> line.contains("/"))
          .map(line -> line.substring(line.indexOf('/')).replace(" (deleted)", ""))
          .filter(path -> path.contains(".so"))
          .collect(Collectors.toCollection(TreeSet::new));
    }
  }

  static void maps(String server) throws Exception {
    final Set<String> before = libraries();
    use(join(server, "grpc"));
    libraries().stream().filter(path -> !before.contains(path)).forEach(System.out::println);
  }

  /** Kilobytes that this process holds. */
  static long resident() throws Exception {
    System.gc();
    return residentNow();
  }

  static long residentNow() throws Exception {
    try (var lines = Files.lines(Path.of("/proc/self/status"))) {
      final String line = lines.filter(text -> text.startsWith("VmRSS:")).findFirst().orElseThrow();
      return Long.parseLong(line.replaceAll("\\D", ""));
    }
  }

  static void leak(String server) throws Exception {
    for (int i = 0; i <= 240; i++) {
      try (Worker worker = join(server, i % 2 == 0 ? "grpc" : "shm")) {
        use(worker);
        if (i % 2 == 1) {
          worker.exchange(worker.commitBuffer(), worker.centerBuffer(), Await.TIMEOUT);
        }
      }
      if (i % 40 == 0) {
        System.out.println(resident());
      }
    }
  }

  /** The classes of {@code folder}, by a loader that shares only the JDK's. */
  static URLClassLoader loader(Path folder) throws Exception {
    return new URLClassLoader(new URL[] {folder.toUri().toURL()}, ClassLoader.getPlatformClassLoader());
  }

  static AutoCloseable joinIn(ClassLoader loader, String server, String name) throws Exception {
    final Class<?> options = loader.loadClass("paramd.WorkerOptions");
    final Object given =
        options.getConstructor(String.class, String.class, String.class).newInstance(server, "m", name);
    return (AutoCloseable) loader.loadClass("paramd.Worker").getMethod("join", options).invoke(null, given);
  }

  static void commit(AutoCloseable worker) throws Exception {
    worker
        .getClass()
        .getMethod("commit", float[].class, Duration.class)
        .invoke(worker, new float[FLOATS], Duration.ofSeconds(30));
  }

  /** Joins and commits in two loaders of {@code classes}, and in {@code other}; returns the two. */
  static List<WeakReference<ClassLoader>> commitInThree(String server, Path classes, ClassLoader other) throws Exception {
    try (URLClassLoader a = loader(classes);
        URLClassLoader b = loader(classes);
        AutoCloseable first = joinIn(a, server, "a");
        AutoCloseable second = joinIn(b, server, "b");
        AutoCloseable third = joinIn(other, server, "c")) {
      for (int i = 0; i < 10; i++) {
        commit(first);
        commit(second);
        commit(third);
      }
      return List.of(new WeakReference<>(a), new WeakReference<>(b));
    }
  }

  static void classLoaders(String server, Path classes, Path otherVersion) throws Exception {
    try (Worker own = join(server, "grpc");
        URLClassLoader other = loader(otherVersion)) {
      use(own);
      // As a container does that reloads its program.
      for (int i = 0; i < 3; i++) {
        final List<WeakReference<ClassLoader>> closed = commitInThree(server, classes, other);
        Await.until(
            "the class loaders go",
            () -> {
              System.gc();
              return closed.stream().allMatch(loader -> loader.get() == null);
            });
      }
      Await.until("their copies of native code go", () -> copiesOfOurOwn() == 2);
      try (AutoCloseable again = joinIn(other, server, "d")) {
        commit(again);
      }
    }
    final Pattern tag = Pattern.compile("paramd-([0-9a-f]{12})-libgrpc");
    final Set<String> copies = new TreeSet<>();
    for (String path : libraries()) {
      final Matcher matcher = tag.matcher(path);
      if (matcher.find()) {
        copies.add(matcher.group(1));
      }
    }
    System.out.println("copies of gRPC: " + copies.size());
    System.out.println("copies of our own: " + copiesOfOurOwn());
  }

  /** In the memory of this process: one a class loader that lives. */
  static long copiesOfOurOwn() {
    try {
      return libraries().stream().filter(path -> path.endsWith("/libparamd_jni.so")).count();
    } catch (Exception e) {
      throw new AssertionError(e);
    }
  }

  /** Runs {@link Child}, and returns its output once it ended with {@code exitCode}. */
  private static String run(int exitCode, List<String> options, String... arguments) throws Exception {
    try (ChildJvm child = new ChildJvm(options, Child.class, arguments)) {
      final String output = child.readAll();
      assertEquals(exitCode, child.exitCode(), output);
      return output;
    }
  }

  private static String runWithServer(int exitCode, List<String> options, String task, String... more)
      throws Exception {
    try (ParamdServer server = ParamdServer.start(new ServerOptions())) {
      final String[] arguments = new String[2 + more.length];
      arguments[0] = task;
      arguments[1] = server.address();
      System.arraycopy(more, 0, arguments, 2, more.length);
      return run(exitCode, options, arguments);
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"leave open", "exit"})
  void aJvmEndsWithWorkersLeftOpen(String task) throws Exception {
    assertEquals("", runWithServer(task.equals("exit") ? 3 : 0, List.of(), task));
  }

  @ParameterizedTest
  @ValueSource(strings = {"leave open", "train", "tell"})
  void theJvmFindsNothingWrongWithOurCalls(String task) throws Exception {
    final String output = runWithServer(0, List.of("-Xcheck:jni"), task);
    assertFalse(output.contains("WARNING") || output.contains("FATAL"), output);
  }

  @Test
  void nothingButGlibcComesFromTheSystem(@TempDir Path folder) throws Exception {
    final String output = runWithServer(0, List.of("-Djava.io.tmpdir=" + folder), "maps");
    final List<String> libraries = output.lines().toList();
    final List<String> foreign =
        libraries.stream()
            .filter(path -> !path.startsWith(folder + "/"))
            .filter(path -> !path.matches(".*/(libc|libm|ld-linux-x86-64|libdl|libpthread|librt)[.-].*"))
            .filter(path -> !path.startsWith(System.getProperty("java.home")))
            .toList();
    assertEquals(List.of(), foreign);
    for (String needed : List.of("libparamd_jni.so", "libgrpc", "libprotobuf-lite", "libabsl_base", "libcares")) {
      assertTrue(libraries.stream().anyMatch(path -> path.contains(needed)), needed + " is not in " + output);
    }
    try (var left = Files.list(folder)) {
      assertEquals(List.of(), left.filter(path -> path.getFileName().toString().startsWith("paramd")).toList());
    }
  }

  /** A shell line that puts an empty folder, of which nothing may be executed, in {@code folder}'s place. */
  private static List<String> withoutExecution(Path folder) {
    return List.of(
        "unshare", "--map-root-user", "--mount", "sh", "-c", "mount -t tmpfs -o noexec tmpfs \"$0\" && exec \"$@\"",
        folder.toString());
  }

  private static boolean canMount(Path folder) throws Exception {
    final List<String> command = new ArrayList<>(withoutExecution(folder));
    command.add("true");
    return new ProcessBuilder(command).start().waitFor() == 0;
  }

  @Test
  void whereFilesMayNotBeExecutedEveryWayInSaysSoAndNamesTheWayOut(@TempDir Path folder, @TempDir Path other)
      throws Exception {
    Assumptions.assumeTrue(canMount(folder), "this process may not mount");
    final List<String> temporary = List.of("-Djava.io.tmpdir=" + folder);
    try (ChildJvm child = new ChildJvm(withoutExecution(folder), temporary, Child.class, "refused", "127.0.0.1:1")) {
      final List<String> lines = child.readAll().lines().toList();
      assertEquals(14, lines.size(), lines::toString);
      for (String line : lines) {
        assertTrue(line.startsWith("UNAVAILABLE can't "), line);
        assertTrue(line.contains("programs may be executed") && line.contains("-Dparamd.native.dir=FOLDER"), line);
        assertTrue(line.contains("java.io.tmpdir (" + folder + ")"), line);
      }
    }
    final List<String> elsewhere = List.of("-Djava.io.tmpdir=" + folder, "-Dparamd.native.dir=" + other);
    try (ParamdServer server = ParamdServer.start(new ServerOptions());
        ChildJvm child =
            new ChildJvm(withoutExecution(folder), elsewhere, Child.class, "leave open", server.address())) {
      final String output = child.readAll();
      assertEquals(0, child.exitCode(), output);
    }
  }

  @Test
  void aFolderForNativeCodeThatIsNotThereIsTold(@TempDir Path folder) throws Exception {
    final String gone = folder.resolve("gone").toString();
    final String output = run(0, List.of("-Dparamd.native.dir=" + gone), "refused", "127.0.0.1:1");
    for (String line : output.lines().toList()) {
      assertTrue(line.startsWith("UNAVAILABLE can't ") && line.contains("paramd.native.dir (" + gone + ")"), line);
    }
  }

  @Test
  void classesThatWereMovedAreToldSo() {
    final ParamdException thrown =
        assertThrows(
            ParamdException.class, () -> NativeLibrary.checkName("shaded.paramd.Native"));
    assertEquals(ParamdException.Code.UNAVAILABLE, thrown.code());
    assertTrue(thrown.getMessage().contains("shaded.paramd.Native") && thrown.getMessage().contains("relocation"));
  }

  @Test
  void aLibraryThatIsNotOursIsToldInItsPlace(@TempDir Path folder) throws Exception {
    Files.copy(Path.of("/lib/x86_64-linux-gnu/libm.so.6"), folder.resolve("libparamd_jni.so"));
    final String output = run(0, List.of("-Djava.library.path=" + folder), "refused", "127.0.0.1:1");
    assertTrue(output.startsWith("UNAVAILABLE libparamd_jni.so from java.library.path is of another version"), output);
    assertFalse(output.contains("Error"), output);
  }

  @Test
  void closedWorkersKeepNoDescriptorsAndNotMuchMemory() throws Exception {
    final List<long[]> all =
        runWithServer(0, List.of(), "buffers")
            .lines()
            .map(line -> Arrays.stream(line.split(" ")).mapToLong(Long::parseLong).toArray())
            .toList();
    assertEquals(60, all.size());
    final long descriptors = all.get(59)[0] - all.get(9)[0];
    assertTrue(descriptors < 5, "more descriptors: " + descriptors);
    // 60 times 32 MB would be 1.9 GB.
    final long most = all.stream().mapToLong(line -> line[1]).max().orElseThrow();
    assertTrue(most < 800_000, "kB resident: " + most);
  }

  @Test
  void theLibraryComesFromTheLibraryPathIfItIsThere() throws Exception {
    final Path classes = Path.of(Worker.class.getProtectionDomain().getCodeSource().getLocation().toURI());
    final Path natives = classes.resolve("paramd/native/linux-x86_64");
    final String output = runWithServer(0, List.of("-Djava.library.path=" + natives), "maps");
    assertTrue(output.lines().anyMatch(natives.resolve("libparamd_jni.so").toString()::equals), output);
  }

  @Test
  void joinsAndExchangesLeaveNoMemoryBehind() throws Exception {
    final List<Long> resident =
        runWithServer(0, List.of("-Xms64m", "-XX:+AlwaysPreTouch"), "leak")
            .lines()
            .map(Long::parseLong)
            .toList();
    // A vector has 1200 kB, the first 40 joins warm up, and what was given out waits for the garbage collector.
    final long growth = Collections.min(resident.subList(4, 7)) - Collections.min(resident.subList(1, 4));
    assertTrue(growth < 8_000, "kB resident every 40 joins: " + resident);
  }

  /** A copy of this version whose bundled libraries have other names, as another version's have. */
  private static void copyAsOtherVersion(Path classes, Path target) throws Exception {
    final Path natives = classes.resolve("paramd/native/linux-x86_64");
    final String list = Files.readString(natives.resolve("libraries.txt"));
    final Matcher matcher = Pattern.compile("paramd-([0-9a-f]{12})-").matcher(list);
    assertTrue(matcher.find(), list);
    final byte[] from = matcher.group(1).getBytes(StandardCharsets.US_ASCII);
    final byte[] to = "0123456789ab".getBytes(StandardCharsets.US_ASCII);
    try (var files = Files.walk(classes)) {
      for (Path file : files.filter(Files::isRegularFile).toList()) {
        final Path copy =
            target.resolve(classes.relativize(file).toString().replace(matcher.group(1), "0123456789ab"));
        Files.createDirectories(copy.getParent());
        final byte[] content = Files.readAllBytes(file);
        if (file.startsWith(natives) && !file.endsWith("paramd")) {
          replace(content, from, to);
        }
        Files.write(copy, content);
      }
    }
  }

  private static void replace(byte[] content, byte[] from, byte[] to) {
    for (int i = 0; i + from.length <= content.length; i++) {
      if (content[i] == from[0] && ByteBuffer.wrap(content, i, from.length).equals(ByteBuffer.wrap(from))) {
        System.arraycopy(to, 0, content, i, to.length);
      }
    }
  }

  @Test
  void classLoadersAndVersionsWorkSideBySide(@TempDir Path folder) throws Exception {
    final Path classes = Path.of(Worker.class.getProtectionDomain().getCodeSource().getLocation().toURI());
    copyAsOtherVersion(classes, folder);
    assertEquals(
        "copies of gRPC: 2\ncopies of our own: 2\n",
        runWithServer(0, List.of(), "class loaders", classes.toString(), folder.toString()));
  }
}
