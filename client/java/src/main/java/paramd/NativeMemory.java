package paramd;

import java.nio.FloatBuffer;

/** Floats outside the heap, more than one buffer can hold if need be. Not thread-safe, but for close. */
final class NativeMemory implements AutoCloseable {
  private static final int PIECE_FLOATS = 1 << 28;

  private final long floats;
  private final long address;
  private final NativeObject memory;
  private final FloatBuffer[] pieces;

  NativeMemory(long floats) {
    this.floats = floats;
    address = Lingering.withRoom(() -> Native.allocate(Math.max(1, floats) * Float.BYTES));
    memory = new NativeObject("memory", address, Native::free);
    pieces = new FloatBuffer[Math.toIntExact((floats + PIECE_FLOATS - 1) / PIECE_FLOATS)];
    for (int i = 0; i < pieces.length; i++) {
      final long begin = (long) i * PIECE_FLOATS;
      final long length = Math.min(PIECE_FLOATS, floats - begin);
      pieces[i] = NativeObject.view(address + begin * Float.BYTES, length).asFloatBuffer();
    }
  }

  long floats() {
    return floats;
  }

  long address() {
    return address;
  }

  /** From {@code source}'s position on; leaves the position. */
  void read(FloatBuffer source) {
    final FloatBuffer from = source.duplicate();
    for (FloatBuffer piece : pieces) {
      piece.clear().put(slice(from, piece.capacity()));
    }
  }

  /** From {@code target}'s position on; leaves the position. */
  void write(FloatBuffer target) {
    final FloatBuffer to = target.duplicate();
    for (FloatBuffer piece : pieces) {
      to.put(piece.clear().limit(Math.min(piece.capacity(), to.remaining())));
    }
  }

  private static FloatBuffer slice(FloatBuffer from, int floats) {
    final int length = Math.min(floats, from.remaining());
    final FloatBuffer slice = from.slice(from.position(), length);
    from.position(from.position() + length);
    return slice;
  }

  @Override
  public void close() {
    memory.close();
  }
}
