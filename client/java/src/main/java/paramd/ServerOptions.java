package paramd;

import java.util.List;
import java.util.Map;
import java.util.function.Consumer;

/** How {@link ParamdServer} starts a daemon. Not thread-safe. */
public final class ServerOptions {
  private static final Map<String, System.Logger.Level> LEVELS =
      Map.of(
          "level=debug", System.Logger.Level.DEBUG,
          "level=info", System.Logger.Level.INFO,
          "level=warning", System.Logger.Level.WARNING,
          "level=error", System.Logger.Level.ERROR);

  String host = "127.0.0.1";
  int port;
  String advertisedHost;
  boolean insecure;
  JobSecrets secrets;
  boolean tls;
  List<String> flags = List.of();
  Consumer<String> log = line -> {};

  /** Loopback, a port that the system chooses, and everybody on this host is let in. */
  public ServerOptions() {}

  /**
   * Sets where to listen. Anything but loopback needs {@link #secrets} or {@link #insecure}.
   *
   * @param host an address or a name; 127.0.0.1 if not given
   * @return this
   */
  public ServerOptions host(String host) {
    this.host = Arguments.given(host, "host");
    return this;
  }

  /**
   * Sets the port.
   *
   * @param port 0, if not given: the system chooses
   * @return this
   */
  public ServerOptions port(int port) {
    Arguments.check(port >= 0 && port <= 65535, "port " + port + ": use one from 1 to 65535, or 0");
    this.port = port;
    return this;
  }

  /**
   * Sets how workers reach the host.
   *
   * @param advertisedHost as it listens, if not given
   * @return this
   */
  public ServerOptions advertisedHost(String advertisedHost) {
    this.advertisedHost = Arguments.given(advertisedHost, "advertisedHost");
    return this;
  }

  /**
   * Lets in those who have the secrets, and nobody else.
   *
   * @param secrets made for this daemon
   * @param tls whether it speaks TLS
   * @return this
   */
  public ServerOptions secrets(JobSecrets secrets, boolean tls) {
    this.secrets = Arguments.given(secrets, "secrets");
    this.tls = tls;
    return this;
  }

  /**
   * Allows to listen beyond loopback without TLS, or for everybody.
   *
   * @param insecure false, if not given
   * @return this
   */
  public ServerOptions insecure(boolean insecure) {
    this.insecure = insecure;
    return this;
  }

  /**
   * Sets more of the daemon's flags.
   *
   * @param flags as "--lease=10s"
   * @return this
   */
  public ServerOptions flags(List<String> flags) {
    for (String flag : Arguments.given(flags, "flags")) {
      Arguments.given(flag, "a flag");
    }
    this.flags = List.copyOf(flags);
    return this;
  }

  /**
   * Sets who takes the lines of the daemon's log; they are dropped if not given.
   *
   * @param log called on a thread of the daemon's own; what it throws is dropped. While it refers to the {@link
   *     ParamdServer}, that counts as in use
   * @return this
   */
  public ServerOptions log(Consumer<String> log) {
    this.log = Arguments.given(log, "log");
    return this;
  }

  /**
   * Sends the daemon's log to a logger, at the level that each line has.
   *
   * @param logger as {@code System.getLogger("paramd")} is
   * @return this
   */
  public ServerOptions log(System.Logger logger) {
    Arguments.given(logger, "logger");
    return log((String line) -> logger.log(levelOf(line), line));
  }

  @Override
  public String toString() {
    return "ServerOptions[host=" + host + ", port=" + port + ", advertisedHost=" + advertisedHost + ", insecure="
        + insecure + ", secrets=" + (secrets == null ? "none" : tls ? "with TLS" : "without TLS") + ", flags=" + flags
        + "]";
  }

  /** Of what else it says, such as a crash: a warning. */
  private static System.Logger.Level levelOf(String line) {
    for (String word : line.split(" ", 3)) {
      if (LEVELS.containsKey(word)) {
        return LEVELS.get(word);
      }
    }
    return System.Logger.Level.WARNING;
  }
}
