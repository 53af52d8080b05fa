package paramd;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * What a model is: named tensors of float32, flattened row-major in this order into its center, its algorithm, its
 * consistency ({@code async}, {@code bounded:S}, {@code sync}) and its hyperparameters. Consistency and hyperparameters
 * that are left out are the algorithm's. The server checks it all. Not thread-safe.
 *
 * @serial exclude
 */
public final class ModelSpec implements Serializable {
  private static final long serialVersionUID = 1;

  /**
   * A tensor of float32.
   *
   * @param name unique in its model
   * @param shape its dimensions; none: a scalar
   * @serial exclude
   */
  public record Tensor(String name, long[] shape) implements Serializable {
    /**
     * Copies the shape.
     *
     * @param name unique in its model
     * @param shape its dimensions; none: a scalar
     */
    public Tensor {
      Arguments.given(name, "name");
      shape = Arguments.given(shape, "shape").clone();
    }

    /**
     * A copy of the shape.
     *
     * @return its dimensions; none: a scalar
     */
    public long[] shape() {
      return shape.clone();
    }

    @Override
    public boolean equals(Object other) {
      return other instanceof Tensor tensor && name.equals(tensor.name) && Arrays.equals(shape, tensor.shape);
    }

    @Override
    public int hashCode() {
      return 31 * name.hashCode() + Arrays.hashCode(shape);
    }

    @Override
    public String toString() {
      return name + Arrays.toString(shape);
    }

    /** At most Long.MAX_VALUE; 0 if the server will refuse the shape. */
    long floats() {
      if (Arrays.stream(shape).anyMatch(length -> length <= 0)) {
        return 0;
      }
      try {
        return Arrays.stream(shape).reduce(1, Math::multiplyExact);
      } catch (ArithmeticException e) {
        return Long.MAX_VALUE;
      }
    }
  }

  private final String name;
  private final List<Tensor> tensors = new ArrayList<>();
  private final Map<String, Double> hyperparameters = new TreeMap<>();
  private String algorithm;
  private String consistency;

  /**
   * A model without tensors, so far.
   *
   * @param name unique in its server
   */
  public ModelSpec(String name) {
    this.name = Arguments.given(name, "name");
  }

  /**
   * Names the model.
   *
   * @return as it was given
   */
  public String name() {
    return name;
  }

  /**
   * Lists the tensors.
   *
   * @return in the order of the center
   */
  public List<Tensor> tensors() {
    return Collections.unmodifiableList(tensors);
  }

  /**
   * Names the algorithm.
   *
   * @return null if it was left out
   */
  public String algorithm() {
    return algorithm;
  }

  /**
   * Names the consistency.
   *
   * @return null if it was left out
   */
  public String consistency() {
    return consistency;
  }

  /**
   * Lists the hyperparameters.
   *
   * @return those that were set, by name
   */
  public Map<String, Double> hyperparameters() {
    return Collections.unmodifiableMap(hyperparameters);
  }

  /**
   * Adds a tensor behind the others.
   *
   * @param name unique in the model
   * @param shape its dimensions; none: a scalar
   * @return this
   */
  public ModelSpec tensor(String name, long... shape) {
    tensors.add(new Tensor(name, shape));
    return this;
  }

  /**
   * Sets the algorithm.
   *
   * @param algorithm as docs/algorithms.md names it; null: left out
   * @return this
   */
  public ModelSpec algorithm(String algorithm) {
    this.algorithm = algorithm;
    return this;
  }

  /**
   * Sets the consistency.
   *
   * @param consistency {@code async}, {@code bounded:S} or {@code sync}; null: the algorithm's
   * @return this
   */
  public ModelSpec consistency(String consistency) {
    this.consistency = consistency;
    return this;
  }

  /**
   * Sets a hyperparameter.
   *
   * @param name one of the algorithm's
   * @param value in place of an earlier one
   * @return this
   */
  public ModelSpec hyperparameter(String name, double value) {
    hyperparameters.put(Arguments.given(name, "name"), value);
    return this;
  }

  @Override
  public String toString() {
    return "ModelSpec[" + name + ": " + tensors + ", algorithm=" + algorithm + ", consistency=" + consistency
        + ", hyperparameters=" + hyperparameters + "]";
  }

  /** The same with this name, and these tensors. */
  ModelSpec with(String newName, List<Tensor> newTensors) {
    final ModelSpec spec = new ModelSpec(newName).algorithm(algorithm).consistency(consistency);
    spec.tensors.addAll(newTensors);
    spec.hyperparameters.putAll(hyperparameters);
    return spec;
  }

  /** INVALID_ARGUMENT if no worker in Java could join it. */
  void checkSize() {
    long room = Integer.MAX_VALUE;
    for (Tensor tensor : tensors) {
      final long floats = tensor.floats();
      room -= Math.min(floats, Long.MAX_VALUE - Integer.MAX_VALUE);
      Arguments.check(
          room >= 0,
          "with tensor '" + tensor.name + "' model '" + name + "' has more than " + Integer.MAX_VALUE
              + " parameters, which is all that an array or a buffer of Java holds; check its shape "
              + Arrays.toString(tensor.shape) + ", or train it from C++");
    }
  }

  /** Gives {@code user} the native spec, for the length of the call. */
  void withNative(NativeUser user) {
    final long spec = Native.specNew(Arguments.utf8(name));
    try {
      for (Tensor tensor : tensors) {
        Native.specAddTensor(spec, Arguments.utf8(tensor.name), tensor.shape);
      }
      if (algorithm != null) {
        Native.specSetAlgorithm(spec, Arguments.utf8(algorithm));
      }
      if (consistency != null) {
        Native.specSetConsistency(spec, Arguments.utf8(consistency));
      }
      hyperparameters.forEach((key, value) -> Native.specSetHyperparameter(spec, Arguments.utf8(key), value));
      user.use(spec);
    } finally {
      Native.specFree(spec);
    }
  }

  interface NativeUser {
    void use(long spec);
  }
}
