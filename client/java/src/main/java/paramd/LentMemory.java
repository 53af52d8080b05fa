package paramd;

import java.nio.ByteBuffer;
import java.nio.FloatBuffer;

/**
 * The memory of a worker's own buffers. It outlives the worker for as long as one of the buffers is referred to.
 * Thread-safe.
 */
final class LentMemory {
  private final long bytes;
  private int buffers; // that are referred to
  private long memory; // once the worker is gone; 0 if it isn't, or nothing is left
  private boolean unwanted;

  LentMemory(long bytes) {
    this.bytes = bytes;
  }

  /** {@code floats} at {@code address}, of a worker that lives. */
  synchronized FloatBuffer lend(long address, long floats) {
    final ByteBuffer view = NativeObject.view(address, floats);
    NativeObject.CLEANER.register(view, this::gone);
    buffers++;
    return view.asFloatBuffer();
  }

  /** Before {@code worker} is freed. It leaves. */
  synchronized void takeFrom(long worker) {
    if (buffers == 0) {
      return;
    }
    memory = Native.workerTakeMemory(worker);
    if (memory == 0) {
      return;
    }
    if (unwanted) {
      Native.memoryClear(memory);
    } else {
      Lingering.add(bytes);
    }
  }

  /** Gives the memory back, now or when the worker is gone; buffers that are still referred to are zero. */
  synchronized void clear() {
    if (memory != 0 && !unwanted) {
      Native.memoryClear(memory);
      Lingering.remove(bytes);
    }
    unwanted = true;
  }

  private synchronized void gone() {
    buffers--;
    if (buffers > 0 || memory == 0) {
      return;
    }
    Native.memoryFree(memory);
    memory = 0;
    if (!unwanted) {
      Lingering.remove(bytes);
    }
  }
}
