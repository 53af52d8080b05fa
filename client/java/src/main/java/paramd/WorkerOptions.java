package paramd;

import java.io.Serializable;
import java.time.Duration;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;

/** How a worker joins a model. Not thread-safe. */
public final class WorkerOptions implements Serializable {
  private static final long serialVersionUID = 1;

  private final TreeMap<String, String> settings = new TreeMap<>();
  private ModelSpec spec;

  /**
   * @param server HOST:PORT or unix:PATH
   * @param model must exist, unless {@link #create} is given
   * @param worker unique in the model
   */
  public WorkerOptions(String server, String model, String worker) {
    settings.put("server", Objects.requireNonNull(server, "server"));
    settings.put("model", Objects.requireNonNull(model, "model"));
    settings.put("worker", Objects.requireNonNull(worker, "worker"));
  }

  /** Of the name: fences lower ones, and is refused if there was a higher one. 0: the server gives the next. */
  public WorkerOptions incarnation(long incarnation) {
    return set("incarnation", Long.toString(incarnation));
  }

  /** Creates the model first if it isn't there. */
  public WorkerOptions create(ModelSpec spec) {
    this.spec = spec;
    return this;
  }

  /** How long joining may take, waiting for the server to come up included; one minute if not given. */
  public WorkerOptions joinTimeout(Duration timeout) {
    return set("join_timeout", Double.toString(Arguments.seconds(timeout)));
  }

  /** How long the server may be out of reach, or silent in a call; one minute if not given. */
  public WorkerOptions rpcTimeout(Duration timeout) {
    return set("rpc_timeout", Double.toString(Arguments.seconds(timeout)));
  }

  /** {@code auto} (the default), {@code grpc} or {@code shm}. */
  public WorkerOptions transport(String transport) {
    return set("transport", transport);
  }

  /** What a float is on the wire: {@code f32} (the default), {@code f16} or {@code bf16}. */
  public WorkerOptions wire(String wire) {
    return set("wire", wire);
  }

  /** Certificates and token; those of the environment if not given. */
  public WorkerOptions security(Security security) {
    settings.putAll(security.settings());
    return this;
  }

  private WorkerOptions set(String key, String value) {
    settings.put(key, Objects.requireNonNull(value, key));
    return this;
  }

  /** The native options; to be freed. */
  long toNative(long canceller) {
    final long options = Native.optionsNew();
    try {
      for (Map.Entry<String, String> setting : settings.entrySet()) {
        Native.optionsSet(options, Arguments.utf8(setting.getKey()), Arguments.utf8(setting.getValue()));
      }
      if (spec != null) {
        spec.withNative(native_ -> Native.optionsSetSpec(options, native_));
      }
      Native.optionsSetCanceller(options, canceller);
      return options;
    } catch (RuntimeException e) {
      Native.optionsFree(options);
      throw e;
    }
  }
}
