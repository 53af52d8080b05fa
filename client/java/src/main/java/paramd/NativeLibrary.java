package paramd;

import java.io.IOException;
import java.util.List;

/** Loads native code, once a class loader. Thread-safe. */
final class NativeLibrary {
  private static final String NAME = "paramd_jni";

  private static boolean loaded;

  private NativeLibrary() {}

  /**
   * From java.library.path if it is there, else from the jar. To be called before the first of {@link Native}'s
   * functions. UNAVAILABLE, each time anew, if it can't be loaded.
   */
  static synchronized void load() {
    if (loaded) {
      return;
    }
    checkName(Native.class.getName());
    if (!loadFromPath()) {
      loadFromJar();
    }
    final int version = version();
    if (version != Native.VERSION) {
      throw unavailable(
          "lib" + NAME + ".so from java.library.path is of another version than this jar: it speaks version "
              + version + " and the jar " + Native.VERSION + "; take both from one build, or leave the library to the"
              + " jar",
          null);
    }
    loaded = true;
  }

  /** {@code name}: of {@link Native}. Native code, and its place in the jar, know it by one name only. */
  static void checkName(String name) {
    // Whoever moves classes changes names in texts, too.
    final String expected = String.join(".", "paramd", "Native");
    if (!name.equals(expected)) {
      throw unavailable(
          "paramd's classes were moved: " + expected + " is " + name + " here, which native code does not know; leave"
              + " them out of the relocation (maven-shade-plugin: an <exclude> of paramd.** in <relocation>)",
          null);
    }
  }

  /** 0 if the library has nothing to say. */
  private static int version() {
    try {
      return Native.version();
    } catch (UnsatisfiedLinkError e) {
      return 0;
    }
  }

  private static boolean loadFromPath() {
    try {
      System.loadLibrary(NAME);
      return true;
    } catch (UnsatisfiedLinkError e) {
      // It is not there, or another class loader has it: a file is loaded only once.
      return false;
    }
  }

  private static void loadFromJar() {
    if (!System.getProperty("os.name").equals("Linux") || !System.getProperty("os.arch").equals("amd64")) {
      throw unavailable(
          "paramd's native code is for Linux on x86-64, but this is "
              + System.getProperty("os.name") + " on " + System.getProperty("os.arch"),
          null);
    }
    try {
      final List<String> libraries = BundledFiles.libraries();
      if (libraries.isEmpty()) {
        throw unavailable(
            "lib" + NAME + ".so is neither in java.library.path nor in the jar; was it lost when jars were merged, or"
                + " is this jar not from scripts/build_java.sh?",
            null);
      }
      try (BundledFiles files = BundledFiles.extract(libraries)) {
        System.load(files.path("lib" + NAME + ".so").toString());
      }
    } catch (IOException e) {
      throw unavailable("can't extract native code: " + e.getMessage() + "; " + BundledFiles.needs(), e);
    } catch (UnsatisfiedLinkError e) {
      // What else could be wrong needs no other folder.
      final boolean forbidden = String.valueOf(e.getMessage()).contains("failed to map segment");
      throw unavailable(
          "can't load native code: " + e.getMessage() + "; "
              + (forbidden ? BundledFiles.needs() : "it needs glibc 2.36 or later"),
          e);
    }
  }

  private static ParamdException unavailable(String message, Throwable cause) {
    return new ParamdException(ParamdException.Code.UNAVAILABLE, message, cause);
  }
}
