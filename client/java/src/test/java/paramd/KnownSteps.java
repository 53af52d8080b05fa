package paramd;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.util.concurrent.CyclicBarrier;

/**
 * A problem with a known answer: whatever its parameters and batch, a step of a worker adds the same small integers,
 * which every encoding represents exactly.
 */
public final class KnownSteps implements Trainable {
  public static final int FLOATS = 2500;
  public static final int EPOCHS = 3;
  public static final int WINDOW = 2;
  public static final int STEPS = EPOCHS * Batches.AN_EPOCH;
  public static final int COMMITS = (STEPS + WINDOW - 1) / WINDOW;

  private final FloatBuffer parameters =
      ByteBuffer.allocateDirect(FLOATS * Float.BYTES).order(ByteOrder.nativeOrder()).asFloatBuffer();
  private final int worker;
  private final CyclicBarrier begun;
  private int steps;

  /** @param begun waited for before the first step; null: nothing */
  public KnownSteps(int worker, CyclicBarrier begun) {
    this.worker = worker;
    this.begun = begun;
    for (int i = 0; i < FLOATS; i++) {
      parameters.put(i, start(i));
    }
  }

  public static ModelSpec spec(String name, String algorithm, String consistency) {
    return new ModelSpec(name)
        .tensor("w", FLOATS)
        .algorithm(algorithm)
        .consistency(consistency)
        .hyperparameter("communication_window", WINDOW)
        .hyperparameter("learning_rate", 1);
  }

  public static TrainOptions options(boolean overlap) {
    return new TrainOptions().epochs(EPOCHS).overlap(overlap).exchangeTimeout(Await.TIMEOUT);
  }

  public static float start(int i) {
    return i % 5;
  }

  /** What one step of each of the workers adds, together. */
  public static double steps(int workers, int i) {
    double sum = 0;
    for (int worker = 0; worker < workers; worker++) {
      sum += step(worker, i);
    }
    return sum;
  }

  private static float step(int worker, int i) {
    return (i + 2 * worker) % 7 - 3;
  }

  @Override
  public FloatBuffer parameters() {
    return parameters;
  }

  @Override
  public double[] trainOnBatch(Batch batch) throws Exception {
    if (steps++ == 0 && begun != null) {
      begun.await();
    }
    for (int i = 0; i < FLOATS; i++) {
      parameters.put(i, parameters.get(i) + step(worker, i));
    }
    return new double[] {1};
  }

  @Override
  public double learningRate() {
    return 1;
  }

  @Override
  public void setLearningRate(double learningRate) {}

  /** Empty ones. */
  public static final class Batches implements BatchSource {
    static final int AN_EPOCH = 3;

    private int given;

    @Override
    public boolean next(Batch batch) {
      batch.resize(1, 1, 1);
      return given++ < AN_EPOCH;
    }

    @Override
    public void rewind(long epoch) {
      given = 0;
    }
  }
}
