package paramd;

import java.io.IOException;
import java.util.List;

/** Loads native code, once a class loader. */
final class NativeLibrary {
  private static final String NAME = "paramd_jni";

  private NativeLibrary() {}

  /** From java.library.path if it is there, else from the jar. Throws UnsatisfiedLinkError. */
  static void load() {
    if (!loadFromPath()) {
      loadFromJar();
    }
    if (Native.version() != Native.VERSION) {
      throw new UnsatisfiedLinkError(
          "lib" + NAME + ".so from java.library.path is of another version than this jar: it speaks version "
              + Native.version() + " and the jar " + Native.VERSION + "; take both from one build, or leave the"
              + " library to the jar");
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
      throw new UnsatisfiedLinkError(
          "paramd's native code is for Linux on x86-64, but this is "
              + System.getProperty("os.name") + " on " + System.getProperty("os.arch"));
    }
    try {
      final List<String> libraries = BundledFiles.libraries();
      if (libraries.isEmpty()) {
        throw new UnsatisfiedLinkError(
            "lib" + NAME + ".so is neither in java.library.path nor in the jar; build the jar with"
                + " scripts/build_java.sh");
      }
      try (BundledFiles files = BundledFiles.extract(libraries)) {
        System.load(files.path("lib" + NAME + ".so").toString());
      }
    } catch (IOException e) {
      throw (UnsatisfiedLinkError)
          new UnsatisfiedLinkError(
                  "can't extract native code to java.io.tmpdir (" + System.getProperty("java.io.tmpdir") + "): "
                      + e.getMessage() + "; it must be a folder that can be written and has room for some 20 MB")
              .initCause(e);
    }
  }
}
