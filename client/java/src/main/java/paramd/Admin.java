package paramd;

import java.nio.FloatBuffer;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.function.LongFunction;

/**
 * The control plane of a server. Thread-safe. Every call returns within the timeout; being interrupted does not shorten
 * it. Errors are {@link ParamdException}s: NOT_FOUND for a model that does not exist, DEADLINE_EXCEEDED or UNAVAILABLE
 * with the address that did not answer.
 */
public final class Admin implements AutoCloseable {
  private final String server;
  private final NativeObject admin;
  private final MemoryPool pool = new MemoryPool(-1);

  private Admin(String server, NativeObject admin) {
    this.server = server;
    this.admin = admin;
  }

  /**
   * Connects, with certificates and token of the environment.
   *
   * @param server HOST:PORT or unix:PATH
   * @param timeout of connecting, and then of each call
   * @return the connection, which is to be closed
   * @throws ParamdException DEADLINE_EXCEEDED or UNAVAILABLE if no server answers
   */
  public static Admin connect(String server, Duration timeout) {
    return connect(server, timeout, new Security());
  }

  /**
   * Connects.
   *
   * @param server HOST:PORT or unix:PATH
   * @param timeout of connecting, and then of each call
   * @param security certificates and token
   * @return the connection, which is to be closed
   * @throws ParamdException DEADLINE_EXCEEDED or UNAVAILABLE if no server answers; UNAUTHENTICATED if one of the two is
   *     not trusted
   */
  public static Admin connect(String server, Duration timeout, Security security) {
    final byte[] address = Arguments.utf8(Arguments.given(server, "server"));
    Arguments.given(security, "security");
    NativeLibrary.load();
    final double seconds = Arguments.seconds(timeout);
    final long options = Native.optionsNew();
    try {
      Native.optionsSet(options, Arguments.utf8("server"), address);
      for (Map.Entry<String, String> setting : security.settings().entrySet()) {
        Native.optionsSet(options, Arguments.utf8(setting.getKey()), Arguments.utf8(setting.getValue()));
      }
      return new Admin(server, new NativeObject("admin", Native.adminConnect(options, seconds), Native::adminFree));
    } finally {
      Native.optionsFree(options);
    }
  }

  /**
   * Creates a model, unless it exists as it is to be.
   *
   * @param spec all that it is to be
   * @throws ParamdException ALREADY_EXISTS if it exists and differs; INVALID_ARGUMENT says what is wrong with the spec
   */
  public void createModel(ModelSpec spec) {
    Arguments.given(spec, "spec");
    use(
        address -> {
          spec.withNative(native_ -> Native.adminCreateModel(address, native_));
          return null;
        });
  }

  /**
   * Deletes a model, and ends its workers.
   *
   * @param model its name
   */
  public void deleteModel(String model) {
    final byte[] name = name(model);
    use(
        address -> {
          Native.adminDeleteModel(address, name);
          return null;
        });
  }

  /**
   * Describes a model.
   *
   * @param model its name
   * @return as it is at the moment
   */
  public ModelInfo model(String model) {
    final byte[] name = name(model);
    return use(address -> Models.read(Native.adminDescribe(address, name)).get(0));
  }

  /**
   * Describes all models.
   *
   * @return as they are at the moment
   */
  public List<ModelInfo> listModels() {
    return use(address -> Models.read(Native.adminDescribe(address, null)));
  }

  /**
   * Tells why a model can't be trained any further (its center is not finite, its algorithm failed).
   *
   * @param model its name
   * @return empty if it can
   */
  public String problem(String model) {
    return model(model).problem();
  }

  /**
   * Reads the center, as a reader that never joined. Waits for its initialization.
   *
   * @param model its name
   * @param center as many floats as the model has
   * @return the center's version
   * @throws ParamdException INVALID_ARGUMENT if {@code center} has another length
   */
  public long pull(String model, float[] center) {
    return pull(model, FloatBuffer.wrap(Arguments.given(center, "center")));
  }

  /**
   * Reads the center, as a reader that never joined. Waits for its initialization.
   *
   * @param model its name
   * @param center as many floats as the model has, from position to limit; copied once unless it is direct and in
   *     native byte order
   * @return the center's version
   * @throws ParamdException INVALID_ARGUMENT if {@code center} has another length
   */
  public long pull(String model, FloatBuffer center) {
    final byte[] name = name(model);
    Arguments.given(center, "center");
    return use(
        address -> {
          try (Floats to = Floats.output(center, pool)) {
            final long version = Native.adminPull(address, name, to.address(), to.length());
            to.deliver();
            return version;
          }
        });
  }

  /**
   * Sets the first center.
   *
   * @param model its name
   * @param center as many floats as the model has
   * @throws ParamdException ALREADY_EXISTS if there is another one; INVALID_ARGUMENT if this has another length, or NaN
   *     or infinity in it
   */
  public void initialize(String model, float[] center) {
    initialize(model, FloatBuffer.wrap(Arguments.given(center, "center")));
  }

  /**
   * Sets the first center.
   *
   * @param model its name
   * @param center as many floats as the model has, from position to limit; copied once unless it is direct and in
   *     native byte order
   * @throws ParamdException ALREADY_EXISTS if there is another one; INVALID_ARGUMENT if this has another length, or NaN
   *     or infinity in it
   */
  public void initialize(String model, FloatBuffer center) {
    final byte[] name = name(model);
    Arguments.given(center, "center");
    use(
        address -> {
          try (Floats from = Floats.input(center, pool)) {
            Native.adminInitialize(address, name, from.address(), from.length());
            return null;
          }
        });
  }

  /**
   * Saves a model's center and spec to a file of the safetensors format, in place of one of that name once it is whole.
   *
   * @param model its name
   * @param path the new file, which {@link ModelFile}, {@code paramctl} and any reader of that format read
   * @return the center's version
   * @throws ParamdException also the system's error if it can't be written
   */
  public long save(String model, Path path) {
    Arguments.given(path, "path");
    final byte[] name = name(model);
    final ModelInfo info = model(model);
    try (NativeMemory center = new NativeMemory(info.parameters())) {
      final long version = use(address -> Native.adminPull(address, name, center.address(), center.floats()));
      ModelFile.write(path, info.spec(), version, center.address(), center.floats());
      return version;
    }
  }

  /**
   * Makes a model from a file that paramd has written: a new one, whose first center is the file's, and of which nobody
   * has trained anything yet.
   *
   * @param model its name, whatever the file says
   * @param path the file
   * @throws ParamdException INVALID_ARGUMENT if it is no such file; ALREADY_EXISTS if there is such a model and it, or
   *     its first center, differs
   */
  public void load(String model, Path path) {
    Arguments.given(model, "model");
    final ModelFile file = ModelFile.open(path);
    Arguments.check(
        file.spec().algorithm() != null,
        path + " says nothing of an algorithm, as paramd did not write it; give a ModelSpec that does");
    load(file.spec().with(model, file.spec().tensors()), file);
  }

  /**
   * Makes a model from any safetensors file.
   *
   * @param spec all that it is to be; without tensors these are the file's, else the file must have just them, in any
   *     order
   * @param path the file
   * @throws ParamdException INVALID_ARGUMENT if it is no such file, or has other tensors; ALREADY_EXISTS if there is
   *     such a model and it, or its first center, differs
   */
  public void load(ModelSpec spec, Path path) {
    Arguments.given(spec, "spec");
    final ModelFile file = ModelFile.open(path);
    load(spec.with(spec.name(), spec.tensors().isEmpty() ? file.spec().tensors() : spec.tensors()), file);
  }

  /**
   * Gives what workers reported.
   *
   * @param model its name
   * @param averaged over all workers, or each by itself
   * @return at the moment; workers report with their heartbeats, and when they leave
   */
  public History history(String model, boolean averaged) {
    final byte[] name = name(model);
    return use(
        address -> {
          final long history = Native.adminHistory(address, name, averaged);
          try {
            final List<History.Series> series = new ArrayList<>();
            for (long i = 0; i < Native.historySeries(history); i++) {
              series.add(series(history, i));
            }
            return new History(List.copyOf(series));
          } finally {
            Native.historyFree(history);
          }
        });
  }

  /**
   * Counts commits by their staleness.
   *
   * @param model its name
   * @return entry i: commits with staleness i; the last one holds all larger ones too
   */
  public long[] stalenessHistogram(String model) {
    final byte[] name = name(model);
    return use(address -> Native.adminStaleness(address, name));
  }

  /** Ends the connection, once calls of other threads have. Idempotent. */
  @Override
  public void close() {
    admin.close();
    pool.close();
  }

  @Override
  public String toString() {
    return "Admin[" + server + (admin.closed() ? ", closed" : "") + "]";
  }

  private void load(ModelSpec spec, ModelFile file) {
    final byte[] name = Arguments.utf8(spec.name());
    try (NativeMemory center = file.read(spec)) {
      createModel(spec);
      use(
          address -> {
            Native.adminInitialize(address, name, center.address(), center.floats());
            return null;
          });
    }
  }

  private static byte[] name(String model) {
    return Arguments.utf8(Arguments.given(model, "model"));
  }

  private <T> T use(LongFunction<T> call) {
    final long address = admin.acquire();
    try {
      return call.apply(address);
    } finally {
      admin.release();
    }
  }

  private static History.Series series(long history, long index) {
    final String[] metricNames = new String[Math.toIntExact(Native.historyMetrics(history, index))];
    for (int i = 0; i < metricNames.length; i++) {
      metricNames[i] = Arguments.text(Native.historyMetricName(history, index, i));
    }
    final double[] values = Native.historyMetricValues(history, index);
    final double[] fields = Native.historyRecords(history, index);
    final List<History.Record> records = new ArrayList<>(fields.length / 4);
    for (int i = 0; i * 4 < fields.length; i++) {
      records.add(
          new History.Record(
              (long) fields[i * 4],
              fields[i * 4 + 1],
              fields[i * 4 + 2],
              fields[i * 4 + 3],
              Arrays.copyOfRange(values, i * metricNames.length, (i + 1) * metricNames.length)));
    }
    return new History.Series(
        Arguments.text(Native.historyWorker(history, index)), metricNames, List.copyOf(records), Native.historyDropped(history, index));
  }
}
