package paramd;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.util.List;

/**
 * One minibatch in memory of its own, which is used again for the next: at least one row; features [rows, columns],
 * row-major; labels as the model wants them, one or more a row; and other inputs. Not thread-safe.
 */
public final class Batch {
  private int rows;
  private FloatBuffer features = allocate(0);
  private FloatBuffer labels = allocate(0);
  private boolean sparse;
  private IntBuffer rowStarts = allocateIntegers(0);
  private IntBuffer columns = allocateIntegers(0);
  private FloatBuffer values = allocate(0);
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
    sparse = false;
    features = resized(features, featureFloats);
    labels = resized(labels, labelFloats);
  }

  /**
   * Makes room for rows of which few features are not 0, in place of {@link #features}: row i has {@code values[k]} in
   * column {@code columns[k]}, for k from {@code rowStarts[i]} up to {@code rowStarts[i + 1]}. In
   * {@link Training#run}, an {@link Mlp} trains them; nothing else does.
   *
   * @param rows at least 1
   * @param nonzeros values of all rows, fewer than 2^29
   * @param labelFloats of all rows, fewer than 2^29
   */
  public void resizeSparse(int rows, int nonzeros, int labelFloats) {
    final int most = Integer.MAX_VALUE / Float.BYTES;
    Arguments.check(
        nonzeros >= 0 && nonzeros <= most && rows < most,
        "a batch can't have " + rows + " sparse rows of " + nonzeros + " values: a buffer holds at most " + most
            + " of them; give smaller batches");
    resize(rows, 0, labelFloats);
    sparse = true;
    rowStarts = resized(rowStarts, rows + 1);
    columns = resized(columns, nonzeros);
    values = resized(values, nonzeros);
  }

  /**
   * Tells how the features are given.
   *
   * @return whether as sparse rows
   */
  public boolean isSparse() {
    return sparse;
  }

  /**
   * Gives where each sparse row begins in {@link #columns} and {@link #values}, and where the last one ends.
   *
   * @return rows + 1 of them, from 0 to the limit of the others; direct, in native byte order. Another buffer after a
   *     {@link #resizeSparse}
   */
  public IntBuffer rowStarts() {
    return rowStarts;
  }

  /**
   * Gives the sparse rows' columns, of one row after the other.
   *
   * @return as {@link #values}
   */
  public IntBuffer columns() {
    return columns;
  }

  /**
   * Gives the sparse rows' values.
   *
   * @return from position 0 to limit; direct, in native byte order. Another buffer after a {@link #resizeSparse}
   */
  public FloatBuffer values() {
    return values;
  }

  @Override
  public String toString() {
    return "Batch[" + rows + " rows, " + features.limit() + " features, " + labels.limit() + " labels, "
        + inputs.size() + " inputs]";
  }

  private static FloatBuffer resized(FloatBuffer buffer, int floats) {
    return (floats <= buffer.capacity() ? buffer : allocate(floats)).clear().limit(floats);
  }

  private static IntBuffer resized(IntBuffer buffer, int integers) {
    return (integers <= buffer.capacity() ? buffer : allocateIntegers(integers)).clear().limit(integers);
  }

  private static IntBuffer allocateIntegers(int integers) {
    return ByteBuffer.allocateDirect(Math.multiplyExact(integers, Integer.BYTES))
        .order(ByteOrder.nativeOrder())
        .asIntBuffer();
  }

  private static FloatBuffer allocate(int floats) {
    return ByteBuffer.allocateDirect(Math.multiplyExact(floats, Float.BYTES))
        .order(ByteOrder.nativeOrder())
        .asFloatBuffer();
  }
}
