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

  /** An empty one. */
  public Batch() {}

  /**
   * Counts the rows.
   *
   * @return 0 in an empty one
   */
  public int rows() {
    return rows;
  }

  /**
   * Gives the features [rows, columns], row-major.
   *
   * @return from position 0 to limit; direct, in native byte order. Another buffer after a {@link #resize}
   */
  public FloatBuffer features() {
    return features;
  }

  /**
   * Gives the labels, as the model wants them.
   *
   * @return from position 0 to limit; direct, in native byte order. Another buffer after a {@link #resize}
   */
  public FloatBuffer labels() {
    return labels;
  }

  /**
   * Gives what the source gave beside features and labels.
   *
   * @return the same objects, in order
   */
  public List<Object> inputs() {
    return inputs;
  }

  /**
   * Sets more inputs, or inputs of other types, in whatever objects model and source agree on: {@code int[]}, buffers,
   * sparse rows. They are handed on as they are, up to as many minibatches later as are read ahead: give new ones each
   * time. An {@link Mlp} takes none.
   *
   * @param inputs none of them null
   */
  public void setInputs(Object... inputs) {
    for (Object input : Arguments.given(inputs, "inputs")) {
      Arguments.given(input, "an input");
    }
    this.inputs = List.of(inputs);
  }

  /**
   * Copies both arrays.
   *
   * @param rows at least 1
   * @param features [rows, columns], row-major
   * @param labels as the model wants them, one or more a row
   */
  public void set(int rows, float[] features, float[] labels) {
    resize(rows, Arguments.given(features, "features").length, Arguments.given(labels, "labels").length);
    this.features.put(0, features);
    this.labels.put(0, labels);
  }

  /**
   * Makes room, to be filled through {@link #features} and {@link #labels} as they are after the call.
   *
   * @param rows at least 1
   * @param featureFloats of all rows, fewer than 2^29
   * @param labelFloats of all rows, fewer than 2^29
   */
  public void resize(int rows, int featureFloats, int labelFloats) {
    final int most = Integer.MAX_VALUE / Float.BYTES;
    Arguments.check(
        rows >= 0 && featureFloats >= 0 && labelFloats >= 0 && featureFloats <= most && labelFloats <= most,
        "a batch can't have " + rows + " rows, " + featureFloats + " features and " + labelFloats
            + " labels: none may be negative, and a buffer holds at most " + most + " floats; give smaller batches");
    this.rows = rows;
    features = resized(features, featureFloats);
    labels = resized(labels, labelFloats);
  }

  @Override
  public String toString() {
    return "Batch[" + rows + " rows, " + features.limit() + " features, " + labels.limit() + " labels, "
        + inputs.size() + " inputs]";
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
