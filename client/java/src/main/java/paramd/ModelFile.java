package paramd;

import java.nio.FloatBuffer;
import java.nio.file.Path;

/**
 * A model in a file of the safetensors format, as {@code paramctl pull} writes them, too: its tensors, and if paramd
 * wrote it also its name, algorithm, consistency, hyperparameters and version. Immutable; the file is read in each call.
 */
public final class ModelFile {
  private final Path path;
  private final ModelInfo info;

  private ModelFile(Path path) {
    this.path = path;
    info = Models.read(Native.fileDescribe(utf8(path))).get(0);
  }

  /**
   * Reads what a file says of its model.
   *
   * @param path of any safetensors file whose tensors are float32
   * @return the file, of which nothing stays open
   * @throws ParamdException INVALID_ARGUMENT if it is no such file; DATA_LOSS if it has changed since it was written;
   *     else the system's error, as NOT_FOUND
   */
  public static ModelFile open(Path path) {
    Arguments.given(path, "path");
    NativeLibrary.load();
    return new ModelFile(path);
  }

  /**
   * Writes a model, in place of a file of that name once it is whole.
   *
   * @param path the new file
   * @param spec names at least the tensors
   * @param version of the center
   * @param center its tensors' floats, one after the other, from position to limit
   * @throws ParamdException INVALID_ARGUMENT if the center has another length than the tensors; else the system's error
   */
  public static void write(Path path, ModelSpec spec, long version, FloatBuffer center) {
    Arguments.given(path, "path");
    Arguments.given(spec, "spec");
    Arguments.given(center, "center");
    NativeLibrary.load();
    try (MemoryPool pool = new MemoryPool(-1);
        Floats from = Floats.input(center, pool)) {
      write(path, spec, version, from.address(), from.length());
    }
  }

  /**
   * Describes the model.
   *
   * @return its tensors in the order of the file's data. If paramd did not write it the name is empty, and algorithm
   *     and consistency are null
   */
  public ModelSpec spec() {
    return info.spec().with(info.spec().name(), info.spec().tensors());
  }

  /**
   * Tells the center's version.
   *
   * @return in commits applied since its creation; 0 if paramd did not write the file
   */
  public long version() {
    return info.version();
  }

  /**
   * Counts the floats.
   *
   * @return of all tensors
   */
  public long parameters() {
    return info.parameters();
  }

  /**
   * Reads all tensors, one after the other.
   *
   * @param center {@link #parameters} floats, from position to limit
   * @throws ParamdException INVALID_ARGUMENT if it has another length; DATA_LOSS if the file has changed since it was
   *     written; else the system's error
   */
  public void read(FloatBuffer center) {
    Arguments.given(center, "center");
    try (MemoryPool pool = new MemoryPool(-1);
        Floats to = Floats.output(center, pool)) {
      Native.fileRead(utf8(path), to.address(), to.length());
      to.deliver();
    }
  }

  @Override
  public String toString() {
    return "ModelFile[" + path + ", version=" + version() + ", " + info.spec() + "]";
  }

  static void write(Path path, ModelSpec spec, long version, long center, long floats) {
    final byte[] name = utf8(path);
    spec.withNative(native_ -> Native.fileWrite(name, native_, version, center, floats));
  }

  /** The center, in the order of {@code wanted}'s tensors. INVALID_ARGUMENT if the file does not have just these. */
  NativeMemory read(ModelSpec wanted) {
    final NativeMemory read = new NativeMemory(info.parameters());
    try {
      Native.fileRead(utf8(path), read.address(), read.floats());
      return wanted.tensors().equals(info.spec().tensors()) ? read : sorted(read, wanted);
    } catch (RuntimeException | Error e) {
      read.close();
      throw e;
    }
  }

  private NativeMemory sorted(NativeMemory read, ModelSpec wanted) {
    Arguments.check(
        wanted.tensors().size() == info.spec().tensors().size()
            && info.spec().tensors().containsAll(wanted.tensors()),
        path + " holds " + info.spec().tensors() + ", but the model has " + wanted.tensors());
    final NativeMemory sorted = new NativeMemory(info.parameters());
    long to = sorted.address();
    for (ModelSpec.Tensor tensor : wanted.tensors()) {
      long from = read.address();
      for (ModelSpec.Tensor before : info.spec().tensors()) {
        if (before.equals(tensor)) {
          break;
        }
        from += before.floats() * Float.BYTES;
      }
      Native.copy(from, to, tensor.floats() * Float.BYTES);
      to += tensor.floats() * Float.BYTES;
    }
    read.close();
    return sorted;
  }

  private static byte[] utf8(Path path) {
    return Arguments.utf8(path.toAbsolutePath().toString());
  }
}
