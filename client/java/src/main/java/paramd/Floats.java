package paramd;

import java.lang.ref.Reference;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;

/**
 * A caller's floats, from position to limit, as native code wants them: where they are if the buffer is direct and in
 * native order, else in a copy from a pool. Not thread-safe.
 */
final class Floats implements AutoCloseable {
  private final FloatBuffer buffer;
  private final MemoryPool pool;
  private final NativeMemory copy; // null if there is none
  private final long address;

  private Floats(FloatBuffer buffer, MemoryPool pool) {
    this.buffer = buffer;
    this.pool = pool;
    final boolean direct = buffer.isDirect() && buffer.order() == ByteOrder.nativeOrder();
    copy = direct ? null : pool.take(buffer.remaining());
    address = direct ? Native.address(buffer) + (long) buffer.position() * Float.BYTES : copy.address();
  }

  /** To be read by native code. */
  static Floats input(FloatBuffer buffer, MemoryPool pool) {
    final Floats floats = new Floats(buffer, pool);
    if (floats.copy != null) {
      floats.copy.read(buffer);
    }
    return floats;
  }

  /** To be written by native code; {@link #deliver} then brings it to the caller. */
  static Floats output(FloatBuffer buffer, MemoryPool pool) {
    Arguments.check(!buffer.isReadOnly(), "the buffer is read-only, but floats are to be written to it");
    return new Floats(buffer, pool);
  }

  long address() {
    return address;
  }

  long length() {
    return buffer.remaining();
  }

  void deliver() {
    if (copy != null) {
      copy.write(buffer);
    }
  }

  @Override
  public void close() {
    if (copy != null) {
      pool.giveBack(copy);
    }
    Reference.reachabilityFence(buffer);
  }
}
