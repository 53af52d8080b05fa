package paramd;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;

/**
 * One minibatch in memory of its own, which is used again for the next: features [rows, columns], row-major; labels as
 * the model wants them, one or more a row. Not thread-safe.
 */
public final class Batch {
  private int rows;
  private FloatBuffer features = allocate(0);
  private FloatBuffer labels = allocate(0);

  public int rows() {
    return rows;
  }

  /** Position 0, limit their number. Direct, in native order. */
  public FloatBuffer features() {
    return features;
  }

  /** Position 0, limit their number. Direct, in native order. */
  public FloatBuffer labels() {
    return labels;
  }

  /** Copies both arrays. */
  public void set(int rows, float[] features, float[] labels) {
    resize(rows, features.length, labels.length);
    this.features.put(0, features);
    this.labels.put(0, labels);
  }

  /** Makes room, to be filled through {@link #features} and {@link #labels} as they are after the call. */
  public void resize(int rows, int featureFloats, int labelFloats) {
    if (rows < 0) {
      throw new IllegalArgumentException("a batch can't have " + rows + " rows");
    }
    this.rows = rows;
    features = resized(features, featureFloats);
    labels = resized(labels, labelFloats);
  }

  private static FloatBuffer resized(FloatBuffer buffer, int floats) {
    return (floats <= buffer.capacity() ? buffer : allocate(floats)).clear().limit(floats);
  }

  private static FloatBuffer allocate(int floats) {
    return ByteBuffer.allocateDirect(Math.multiplyExact(floats, Float.BYTES))
        .order(ByteOrder.nativeOrder())
        .asFloatBuffer();
  }
}
