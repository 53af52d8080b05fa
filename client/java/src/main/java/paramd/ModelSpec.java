package paramd;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;

/**
 * What a model is: named tensors of float32, flattened row-major in this order into its center, its algorithm, its
 * consistency ({@code async}, {@code bounded:S}, {@code sync}) and its hyperparameters. Consistency and hyperparameters
 * that are left out are the algorithm's. The server checks it all. Not thread-safe.
 */
public final class ModelSpec implements Serializable {
  private static final long serialVersionUID = 1;

  /** No shape: a scalar. */
  public record Tensor(String name, long[] shape) implements Serializable {}

  private final String name;
  private final List<Tensor> tensors = new ArrayList<>();
  private final Map<String, Double> hyperparameters = new TreeMap<>();
  private String algorithm;
  private String consistency;

  public ModelSpec(String name) {
    this.name = Objects.requireNonNull(name, "name");
  }

  public String name() {
    return name;
  }

  /** In the order of the center. */
  public List<Tensor> tensors() {
    return Collections.unmodifiableList(tensors);
  }

  /** Null if it was left out. */
  public String algorithm() {
    return algorithm;
  }

  /** Null if it was left out. */
  public String consistency() {
    return consistency;
  }

  public Map<String, Double> hyperparameters() {
    return Collections.unmodifiableMap(hyperparameters);
  }

  /** No shape: a scalar. */
  public ModelSpec tensor(String name, long... shape) {
    tensors.add(new Tensor(Objects.requireNonNull(name, "name"), shape.clone()));
    return this;
  }

  public ModelSpec algorithm(String algorithm) {
    this.algorithm = algorithm;
    return this;
  }

  public ModelSpec consistency(String consistency) {
    this.consistency = consistency;
    return this;
  }

  public ModelSpec hyperparameter(String name, double value) {
    hyperparameters.put(Objects.requireNonNull(name, "name"), value);
    return this;
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
