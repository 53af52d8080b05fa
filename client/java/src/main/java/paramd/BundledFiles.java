package paramd;

import java.io.BufferedReader;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.List;

/** Files of the jar in a private folder, until closed. It is made in paramd.native.dir, or else in java.io.tmpdir. */
final class BundledFiles implements AutoCloseable {
  private static final String PARENT = "paramd.native.dir";
  private static final String PREFIX = "/paramd/native/linux-x86_64/";

  private final Path folder;
  private final List<Path> files = new ArrayList<>();

  private BundledFiles(Path folder) {
    this.folder = folder;
  }

  /** The names of the libraries in the jar; empty if it carries none. */
  static List<String> libraries() throws IOException {
    try (InputStream list = BundledFiles.class.getResourceAsStream(PREFIX + "libraries.txt")) {
      if (list == null) {
        return List.of();
      }
      return new BufferedReader(new InputStreamReader(list, StandardCharsets.UTF_8)).lines().toList();
    }
  }

  /** What is needed where files are extracted to, for messages. */
  static String needs() {
    return (System.getProperty(PARENT) == null ? "java.io.tmpdir" : PARENT) + " (" + parent()
        + ") must be a folder that can be written, where programs may be executed and that has room for some 20 MB; -D"
        + PARENT + "=FOLDER names another one";
  }

  private static Path parent() {
    return Path.of(System.getProperty(PARENT, System.getProperty("java.io.tmpdir")));
  }

  static BundledFiles extract(List<String> names) throws IOException {
    final BundledFiles bundle =
        new BundledFiles(
            Files.createTempDirectory(
                parent(),
                "paramd-",
                PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------"))));
    try {
      for (String name : names) {
        bundle.add(name);
      }
    } catch (IOException | RuntimeException e) {
      bundle.close();
      throw e;
    }
    return bundle;
  }

  Path path(String name) {
    return folder.resolve(name);
  }

  @Override
  public void close() {
    try {
      for (Path file : files) {
        Files.deleteIfExists(file);
      }
      Files.deleteIfExists(folder);
    } catch (IOException e) {
      // What is left lies in a private folder for temporary files.
    }
  }

  private void add(String name) throws IOException {
    try (InputStream content = BundledFiles.class.getResourceAsStream(PREFIX + name)) {
      if (content == null) {
        throw new FileNotFoundException(
            "this jar carries no " + name + " for linux-x86_64; was it lost when jars were merged, or is the jar not"
                + " from scripts/build_java.sh?");
      }
      final Path file = path(name);
      files.add(file);
      Files.copy(content, file);
      Files.setPosixFilePermissions(file, PosixFilePermissions.fromString("rwx------"));
    }
  }
}
