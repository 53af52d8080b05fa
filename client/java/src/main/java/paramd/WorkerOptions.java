package paramd;

import java.io.Serializable;
import java.time.Duration;
import java.util.Map;
import java.util.TreeMap;

/**
 * How a worker joins a model. Not thread-safe.
 *
 * @serial exclude
 */
public final class WorkerOptions implements Serializable {
  private static final long serialVersionUID = 1;

  private final TreeMap<String, String> settings = new TreeMap<>();
  private ModelSpec spec;
  private transient System.Logger logger; // of another JVM: the default

  /**
   * As all workers, unless something is set.
   *
   * @param server HOST:PORT or unix:PATH
   * @param model must exist, unless {@link #create} is given
   * @param worker unique in the model
   */
  public WorkerOptions(String server, String model, String worker) {
    set("server", server);
    set("model", model);
    set("worker", worker);
  }

  /**
   * Sets the incarnation of the worker's name.
   *
   * @param incarnation fences lower ones, and is refused if there was a higher one. 0, if not given: the server gives
   *     the next
   * @return this
   */
  public WorkerOptions incarnation(long incarnation) {
    return set("incarnation", Long.toString(incarnation));
  }

  /**
   * Creates the model first if it isn't there.
   *
   * @param spec of the model that is to be joined, by its name
   * @return this
   * @throws ParamdException INVALID_ARGUMENT if it is of another name
   */
  public WorkerOptions create(ModelSpec spec) {
    final String model = settings.get("model");
    Arguments.check(
        Arguments.given(spec, "spec").name().equals(model),
        "the model to join is '" + model + "', but the spec to create it with is of '" + spec.name()
            + "'; give both one name");
    this.spec = spec;
    return this;
  }

  /**
   * Sets how long joining may take, waiting for the server to come up included.
   *
   * @param timeout one minute, if not given; null: as long as it likes
   * @return this
   */
  public WorkerOptions joinTimeout(Duration timeout) {
    return set("join_timeout", Double.toString(Arguments.seconds(timeout)));
  }

  /**
   * Sets how long the server may be out of reach, or silent in a call, its leave included.
   *
   * @param timeout positive; one minute, if not given; null: as long as it likes
   * @return this
   */
  public WorkerOptions rpcTimeout(Duration timeout) {
    Arguments.check(
        timeout == null || !(timeout.isNegative() || timeout.isZero()),
        "rpcTimeout is " + timeout + ", but must be positive");
    return set("rpc_timeout", Double.toString(Arguments.seconds(timeout)));
  }

  /**
   * Sets how exchanges travel.
   *
   * @param transport {@code auto} (the default), {@code grpc} or {@code shm}
   * @return this
   */
  public WorkerOptions transport(String transport) {
    return set("transport", transport);
  }

  /**
   * Sets what a float is on the wire.
   *
   * @param wire {@code f32} (the default), {@code f16} or {@code bf16}
   * @return this
   */
  public WorkerOptions wire(String wire) {
    return set("wire", wire);
  }

  /**
   * Sets certificates and token.
   *
   * @param security those of the environment, if not given
   * @return this
   */
  public WorkerOptions security(Security security) {
    settings.putAll(Arguments.given(security, "security").settings());
    return this;
  }

  /**
   * Sets who is told of waiting for the server, reconnects, retries and failed heartbeats, at level INFO, from any
   * thread.
   *
   * @param logger {@code System.getLogger("paramd")}, if not given. It is not serialized
   * @return this
   */
  public WorkerOptions log(System.Logger logger) {
    this.logger = Arguments.given(logger, "logger");
    return this;
  }

  @Override
  public String toString() {
    return "WorkerOptions" + Security.shown(settings) + (spec == null ? "" : " creates " + spec);
  }

  private WorkerOptions set(String key, String value) {
    settings.put(key, Arguments.given(value, key));
    return this;
  }

  /** Who is to be told. */
  Events events() {
    return new Events(
        logger == null ? System.getLogger("paramd") : logger,
        "worker '" + settings.get("worker") + "' of '" + settings.get("model") + "'");
  }

  /** The native options; to be freed. INVALID_ARGUMENT before anybody is asked. */
  long toNative(long canceller, long listener) {
    if (spec != null) {
      spec.checkSize();
    }
    final long options = Native.optionsNew();
    try {
      for (Map.Entry<String, String> setting : settings.entrySet()) {
        Native.optionsSet(options, Arguments.utf8(setting.getKey()), Arguments.utf8(setting.getValue()));
      }
      if (spec != null) {
        spec.withNative(native_ -> Native.optionsSetSpec(options, native_));
      }
      Native.optionsSetCanceller(options, canceller);
      Native.optionsSetListener(options, listener);
      return options;
    } catch (RuntimeException e) {
      Native.optionsFree(options);
      throw e;
    }
  }
}
