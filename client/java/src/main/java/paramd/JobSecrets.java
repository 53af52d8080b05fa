package paramd;

import java.util.List;

/** What one job's daemon and its workers need to trust each other, made anew: a certificate and a token. Immutable. */
public final class JobSecrets {
  private final String ca;
  private final String certificate;
  private final String key;
  private final String token;
  private final String tokens;

  private JobSecrets(byte[][] texts) {
    this.ca = Arguments.text(texts[0]);
    this.certificate = Arguments.text(texts[1]);
    this.key = Arguments.text(texts[2]);
    this.token = Arguments.text(texts[3]);
    this.tokens = Arguments.text(texts[4]);
  }

  /**
   * Makes new ones.
   *
   * @param hosts names and addresses that workers reach the daemon by
   * @return secrets that nobody else has
   * @throws ParamdException UNAVAILABLE if native code can't be loaded
   */
  public static JobSecrets make(List<String> hosts) {
    Arguments.given(hosts, "hosts");
    NativeLibrary.load();
    return new JobSecrets(
        Native.secretsMake(
            hosts.stream().map(host -> Arguments.utf8(Arguments.given(host, "a host"))).toArray(byte[][]::new)));
  }

  /**
   * What workers and admins of the job connect with.
   *
   * @param tls as {@link ServerOptions#secrets} was told
   * @return a new object
   */
  public Security security(boolean tls) {
    return new Security().tlsCa(tls ? ca : "none").tlsCert("none").tlsKey("none").token(token);
  }

  /**
   * The authority's certificate, for clients.
   *
   * @return PEM
   */
  public String ca() {
    return ca;
  }

  /**
   * The token.
   *
   * @return of the role worker, for all models
   */
  public String token() {
    return token;
  }

  @Override
  public String toString() {
    return "JobSecrets[hidden]";
  }

  /** PEM. */
  String certificate() {
    return certificate;
  }

  /** PEM. */
  String key() {
    return key;
  }

  /** A line of the daemon's --token_file. */
  String tokens() {
    return tokens;
  }
}
