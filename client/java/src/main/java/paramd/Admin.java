package paramd;

import java.nio.FloatBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;

/**
 * The control plane of a server. Thread-safe. Every call returns within the timeout; being interrupted does not shorten
 * it. Errors are {@link ParamdException}s.
 */
public final class Admin implements AutoCloseable {
  private final NativeObject admin;
  private final MemoryPool pool = new MemoryPool(-1);

  private Admin(NativeObject admin) {
    this.admin = admin;
  }

  /** {@code server}: HOST:PORT or unix:PATH. Connects within the timeout, which then bounds each call, too. */
  public static Admin connect(String server, Duration timeout) {
    return connect(server, timeout, new Security());
  }

  public static Admin connect(String server, Duration timeout, Security security) {
    NativeLibrary.load();
    final double seconds = Arguments.seconds(timeout);
    final byte[] address = Arguments.utf8(server);
    final long options = Native.optionsNew();
    try {
      Native.optionsSet(options, Arguments.utf8("server"), address);
      for (Map.Entry<String, String> setting : security.settings().entrySet()) {
        Native.optionsSet(options, Arguments.utf8(setting.getKey()), Arguments.utf8(setting.getValue()));
      }
      return new Admin(new NativeObject("admin", Native.adminConnect(options, seconds), Native::adminFree));
    } finally {
      Native.optionsFree(options);
    }
  }

  /** ALREADY_EXISTS if it exists and differs. */
  public void createModel(ModelSpec spec) {
    final long address = admin.acquire();
    try {
      spec.withNative(native_ -> Native.adminCreateModel(address, native_));
    } finally {
      admin.release();
    }
  }

  public void deleteModel(String model) {
    final byte[] name = Arguments.utf8(model);
    final long address = admin.acquire();
    try {
      Native.adminDeleteModel(address, name);
    } finally {
      admin.release();
    }
  }

  public ModelInfo model(String model) {
    final byte[] name = Arguments.utf8(model);
    final double[] info;
    final long address = admin.acquire();
    try {
      info = Native.adminGetModel(address, name);
    } finally {
      admin.release();
    }
    return new ModelInfo(
        (long) info[0],
        (long) info[1],
        info[2] != 0,
        (long) info[3],
        (long) info[4],
        (long) info[5],
        (long) info[6],
        info[7],
        info[8]);
  }

  /** Why the model can't be trained any further (its center is not finite, its algorithm failed); empty if it can. */
  public String problem(String model) {
    final byte[] name = Arguments.utf8(model);
    final long address = admin.acquire();
    try {
      return Arguments.text(Native.adminProblem(address, name));
    } finally {
      admin.release();
    }
  }

  /**
   * Reads the center, as a reader that never joined, and returns its version. Waits for its initialization.
   * INVALID_ARGUMENT if {@code center} has another length.
   */
  public long pull(String model, float[] center) {
    final byte[] name = Arguments.utf8(model);
    final long address = admin.acquire();
    try (Floats to = Floats.output(FloatBuffer.wrap(center), pool)) {
      final long version = Native.adminPull(address, name, to.address(), to.length());
      to.deliver();
      return version;
    } finally {
      admin.release();
    }
  }

  /** Sets the first center; ALREADY_EXISTS if there is another one. */
  public void initialize(String model, float[] center) {
    final byte[] name = Arguments.utf8(model);
    final long address = admin.acquire();
    try (Floats from = Floats.input(FloatBuffer.wrap(center), pool)) {
      Native.adminInitialize(address, name, from.address(), from.length());
    } finally {
      admin.release();
    }
  }

  /** What workers reported, each by itself or averaged over all. */
  public History history(String model, boolean averaged) {
    final byte[] name = Arguments.utf8(model);
    final long address = admin.acquire();
    try {
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
    } finally {
      admin.release();
    }
  }

  /** Entry i: commits with staleness i; the last one holds all larger ones too. */
  public long[] stalenessHistogram(String model) {
    final byte[] name = Arguments.utf8(model);
    final long address = admin.acquire();
    try {
      return Native.adminStaleness(address, name);
    } finally {
      admin.release();
    }
  }

  @Override
  public void close() {
    admin.close();
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
