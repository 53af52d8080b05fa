package paramd;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Objects;

/** How Java's values go to native code and back. */
final class Arguments {
  private Arguments() {}

  static byte[] utf8(String text) {
    if (Objects.requireNonNull(text).indexOf('\0') >= 0) {
      throw new ParamdException(
          ParamdException.Code.INVALID_ARGUMENT, "a name or an address has a NUL character in it; leave it out");
    }
    return text.getBytes(StandardCharsets.UTF_8);
  }

  static String text(byte[] utf8) {
    return new String(utf8, StandardCharsets.UTF_8);
  }

  /** Negative for null, which is no timeout. */
  static double seconds(Duration timeout) {
    if (timeout == null) {
      return -1;
    }
    return timeout.isNegative() ? 0 : timeout.getSeconds() + timeout.getNano() * 1e-9;
  }
}
