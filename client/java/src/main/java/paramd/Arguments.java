package paramd;

import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Objects;

/** How Java's values are checked, and go to native code and back. */
final class Arguments {
  private Arguments() {}

  /** {@code value}, which must not be null: says that it is by {@code name}. */
  static <T> T given(T value, String name) {
    if (value == null) {
      throw new NullPointerException(name + " is null");
    }
    return value;
  }

  static ParamdException invalid(String message) {
    return new ParamdException(ParamdException.Code.INVALID_ARGUMENT, message);
  }

  static void check(boolean holds, String message) {
    if (!holds) {
      throw invalid(message);
    }
  }

  static byte[] utf8(String text) {
    if (Objects.requireNonNull(text, "a name is null").indexOf('\0') >= 0) {
      throw invalid("a name or an address has a NUL character in it; leave it out");
    }
    return text.getBytes(StandardCharsets.UTF_8);
  }

  /** Words for people, which no character of theirs may keep from arriving. */
  static byte[] freeText(String text) {
    return utf8(text.replace('\0', '?'));
  }

  /** {@code buffer} itself, if native code can use it for as long as it likes. */
  static FloatBuffer direct(FloatBuffer buffer, String what) {
    given(buffer, what);
    check(
        buffer.isDirect() && buffer.order() == ByteOrder.nativeOrder() && !buffer.isReadOnly(),
        what + " must be in a direct buffer in native byte order that can be written, as"
            + " ByteBuffer.allocateDirect(n).order(ByteOrder.nativeOrder()).asFloatBuffer()");
    return buffer;
  }

  static byte[][] utf8(String[] texts) {
    final byte[][] all = new byte[texts.length][];
    for (int i = 0; i < texts.length; i++) {
      all[i] = utf8(texts[i]);
    }
    return all;
  }

  static String text(byte[] utf8) {
    return new String(utf8, StandardCharsets.UTF_8);
  }

  /** Of an option that is none if it is null, and can't be zero: native code takes that for a default, and refuses this. */
  static double secondsOrNone(Duration timeout) {
    return Math.max(seconds(timeout), timeout == null ? -1 : Double.MIN_VALUE);
  }

  /** Negative for null, which is no timeout. */
  static double seconds(Duration timeout) {
    if (timeout == null) {
      return -1;
    }
    return timeout.isNegative() ? 0 : timeout.getSeconds() + timeout.getNano() * 1e-9;
  }
}
