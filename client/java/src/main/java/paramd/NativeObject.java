package paramd;

import java.lang.ref.Cleaner;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;

/**
 * An object of native code, which is freed once it is closed, or forgotten, and neither a call nor a buffer uses it any
 * more. Thread-safe.
 */
final class NativeObject implements AutoCloseable {
  static final Cleaner CLEANER = Cleaner.create();

  interface Free {
    void free(long address);
  }

  private final String what;
  private final State state;
  private final Cleaner.Cleanable cleanable;

  /** {@code what}: for messages, as "worker". */
  NativeObject(String what, long address, Free free) {
    this(what, address, 0, free);
  }

  /** {@code bytes}: that buffers keep after close. */
  NativeObject(String what, long address, long bytes, Free free) {
    this.what = what;
    state = new State(address, bytes, free);
    cleanable = CLEANER.register(this, state::close);
  }

  /** The address, good until the balancing {@link #release}. */
  long acquire() {
    if (!state.acquire()) {
      throw new IllegalStateException("this " + what + " is closed");
    }
    return state.address;
  }

  /** Good only while somebody uses it. */
  long address() {
    return state.address;
  }

  void release() {
    state.release();
  }

  boolean closed() {
    return state.closed();
  }

  /** {@code floats} at {@code memory}, which belongs to this object: it lives as long as the buffer does. */
  FloatBuffer buffer(long memory, long floats) {
    acquire();
    try {
      final ByteBuffer bytes = view(memory, floats);
      CLEANER.register(bytes, state::release);
      return bytes.asFloatBuffer();
    } catch (RuntimeException | Error e) {
      release();
      throw e;
    }
  }

  static ByteBuffer view(long address, long floats) {
    return Native.view(address, Math.multiplyExact(floats, (long) Float.BYTES)).order(ByteOrder.nativeOrder());
  }

  /** Later calls throw. Frees at once if nobody uses it; else the last one to end does. */
  @Override
  public void close() {
    cleanable.clean();
  }

  private static final class State {
    final long address;
    private final long bytes;
    private final Free free;
    private int users = 1; // the owner, until it closes
    private boolean closed;

    State(long address, long bytes, Free free) {
      this.address = address;
      this.bytes = bytes;
      this.free = free;
    }

    synchronized boolean closed() {
      return closed;
    }

    synchronized boolean acquire() {
      if (closed) {
        return false;
      }
      users++;
      return true;
    }

    void release() {
      synchronized (this) {
        if (--users > 0) {
          return;
        }
        if (closed) {
          Lingering.remove(bytes);
        }
      }
      free.free(address);
    }

    void close() {
      synchronized (this) {
        closed = true;
        Lingering.add(bytes);
      }
      release();
    }
  }
}
