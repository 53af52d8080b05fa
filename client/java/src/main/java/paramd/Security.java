package paramd;

import java.io.IOException;
import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;

/**
 * How a client knows its server, and shows who it is. What is not given comes from the environment: PARAMD_TLS_CA,
 * PARAMD_TLS_CERT, PARAMD_TLS_KEY, PARAMD_TOKEN_FILE and PARAMD_INSECURE; "none" is nothing at all. Where a PEM file is
 * expected the PEM text itself may stand. Not thread-safe.
 *
 * @serial exclude
 */
public final class Security implements Serializable {
  private static final long serialVersionUID = 1;

  private final TreeMap<String, String> settings = new TreeMap<>();

  /** Everything from the environment, so far. */
  public Security() {}

  /**
   * Sets the authorities whose servers are trusted; with them everything goes over TLS.
   *
   * @param file PEM, or the path of such a file
   * @return this
   */
  public Security tlsCa(String file) {
    return set("tls_ca", file);
  }

  /**
   * Sets the client's own certificate, for servers that want one.
   *
   * @param file PEM, or the path of such a file
   * @return this
   */
  public Security tlsCert(String file) {
    return set("tls_cert", file);
  }

  /**
   * Sets the key of the client's own certificate.
   *
   * @param file PEM, or the path of such a file
   * @return this
   */
  public Security tlsKey(String file) {
    return set("tls_key", file);
  }

  /**
   * Sets where the token is, which is read again when it changes.
   *
   * @param file the path of a file that holds a token
   * @return this
   */
  public Security tokenFile(String file) {
    return set("token_file", file);
  }

  /**
   * Sets the token itself.
   *
   * @param token in place of a file of one
   * @return this
   */
  public Security token(String token) {
    return set("token", token);
  }

  /**
   * Lets a token go beyond this host without TLS, for everybody on the way to read.
   *
   * @param insecure false, if not given
   * @return this
   */
  public Security insecure(boolean insecure) {
    return set("insecure", insecure ? "1" : "0");
  }

  /**
   * The same with this process's files and environment in it, for another host.
   *
   * @return a new object
   * @throws ParamdException INVALID_ARGUMENT names the file that can't be read
   */
  public Security inlined() {
    final Security whole = new Security();
    whole.settings.putAll(settings);
    for (String key : new String[] {"tls_ca", "tls_cert", "tls_key"}) {
      final String file = given(key);
      if (!file.isEmpty()) {
        whole.set(key, file.startsWith("-----BEGIN") ? file : read(key, file));
      }
    }
    final String file = settings.containsKey("token") ? "" : given("token_file");
    whole.settings.remove("token_file");
    if (!file.isEmpty()) {
      whole.set("token", read("token_file", file).strip());
    }
    if ("1".equals(System.getenv("PARAMD_INSECURE"))) {
      whole.insecure(true);
    }
    return whole;
  }

  @Override
  public String toString() {
    return "Security" + shown(settings);
  }

  Map<String, String> settings() {
    return settings;
  }

  /** {@code settings} without secrets. */
  static Map<String, String> shown(Map<String, String> settings) {
    final TreeMap<String, String> shown = new TreeMap<>(settings);
    shown.replaceAll((key, value) -> key.equals("token") || value.startsWith("-----BEGIN") ? "(hidden)" : value);
    return shown;
  }

  private Security set(String key, String value) {
    settings.put(key, Arguments.given(value, key));
    return this;
  }

  private String given(String key) {
    final String set = settings.getOrDefault(key, "");
    final String environment = System.getenv("PARAMD_" + key.toUpperCase(Locale.ROOT));
    final String value = set.isEmpty() && environment != null ? environment : set;
    return value.equals("none") ? "" : value;
  }

  private static String read(String key, String file) {
    try {
      return Files.readString(Path.of(file), StandardCharsets.UTF_8);
    } catch (IOException e) {
      throw new ParamdException(ParamdException.Code.INVALID_ARGUMENT, key + ": can't read " + file, e);
    }
  }
}
