package paramd;

import java.util.ArrayDeque;

/** Memory for copies of vectors of one length; keeps two that nobody uses. Thread-safe. */
final class MemoryPool implements AutoCloseable {
  private static final int KEPT = 2;

  private final long floats;
  private final ArrayDeque<NativeMemory> idle = new ArrayDeque<>();
  private boolean closed;

  MemoryPool(long floats) {
    this.floats = floats;
  }

  NativeMemory take(long length) {
    synchronized (this) {
      if (length == floats && !idle.isEmpty()) {
        return idle.pop();
      }
    }
    return new NativeMemory(length);
  }

  void giveBack(NativeMemory memory) {
    synchronized (this) {
      if (!closed && memory.floats() == floats && idle.size() < KEPT) {
        idle.push(memory);
        return;
      }
    }
    memory.close();
  }

  @Override
  public synchronized void close() {
    closed = true;
    idle.forEach(NativeMemory::close);
    idle.clear();
  }
}
