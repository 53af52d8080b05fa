package paramd;

import java.util.List;
import java.util.Objects;
import java.util.function.Consumer;

/** How {@link ParamdServer} starts a daemon. Not thread-safe. */
public final class ServerOptions {
  String host = "127.0.0.1";
  int port;
  String advertisedHost;
  boolean insecure;
  JobSecrets secrets;
  boolean tls;
  List<String> flags = List.of();
  Consumer<String> log = line -> {};

  /** Where to listen; loopback if not given. Anything else needs {@link #secrets} or {@link #insecure}. */
  public ServerOptions host(String host) {
    this.host = Objects.requireNonNull(host, "host");
    return this;
  }

  /** 0, if not given: the system chooses. */
  public ServerOptions port(int port) {
    this.port = port;
    return this;
  }

  /** How workers reach the host; as it listens, if not given. */
  public ServerOptions advertisedHost(String advertisedHost) {
    this.advertisedHost = Objects.requireNonNull(advertisedHost, "advertisedHost");
    return this;
  }

  /** Lets in those who have the secrets, and nobody else; {@code tls}: over TLS. */
  public ServerOptions secrets(JobSecrets secrets, boolean tls) {
    this.secrets = Objects.requireNonNull(secrets, "secrets");
    this.tls = tls;
    return this;
  }

  /** Allows to listen beyond loopback without TLS, or for everybody. */
  public ServerOptions insecure(boolean insecure) {
    this.insecure = insecure;
    return this;
  }

  /** More of the daemon's flags, as "--lease=10s". */
  public ServerOptions flags(List<String> flags) {
    this.flags = List.copyOf(flags);
    return this;
  }

  /** Takes the lines of the daemon's log, on a thread of its own, and must not throw; dropped if not given. */
  public ServerOptions log(Consumer<String> log) {
    this.log = Objects.requireNonNull(log, "log");
    return this;
  }
}
