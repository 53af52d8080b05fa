package paramd;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.util.List;

/**
 * One minibatch in memory of its own, which is used again for the next: at least one row; features [rows, columns],
 * row-major; labels as the model wants them, one or more a row; and other inputs. Not thread-safe.
 */
public final class Batch {
  private int rows;
  private FloatBuffer features = allocate(0);
  private FloatBuffer labels = allocate(0);
  private List<Object> inputs = List.of();

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

  /** What the source gave beside features and labels. */
  public List<Object> inputs() {
    return inputs;
  }

  /**
   * More inputs, or inputs of other types, in whatever objects model and source agree on: {@code int[]}, buffers,
   * sparse rows. They are handed on as they are, up to as many minibatches later as are read ahead: give new ones each
   * time. An {@link Mlp} takes none.
   */
  public void setInputs(Object... inputs) {
    this.inputs = List.of(inputs);
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
