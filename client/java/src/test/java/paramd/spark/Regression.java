package paramd.spark;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.util.Random;
import paramd.Batch;
import paramd.BatchSource;
import paramd.Trainable;

/** Least squares, as an example of a model of one's own: plain gradient steps. */
final class Regression implements Trainable {
  static final int WEIGHTS = 4;

  private final FloatBuffer weights =
      ByteBuffer.allocateDirect(WEIGHTS * Float.BYTES).order(ByteOrder.nativeOrder()).asFloatBuffer();
  private double learningRate = 0.01;

  @Override
  public FloatBuffer parameters() {
    return weights;
  }

  @Override
  public double[] trainOnBatch(Batch batch) {
    final double[] gradient = new double[WEIGHTS];
    double loss = 0;
    for (int row = 0; row < batch.rows(); ++row) {
      double error = -batch.labels().get(row);
      for (int i = 0; i < WEIGHTS; ++i) {
        error += weights.get(i) * batch.features().get(row * WEIGHTS + i);
      }
      for (int i = 0; i < WEIGHTS; ++i) {
        gradient[i] += 2 * error * batch.features().get(row * WEIGHTS + i) / batch.rows();
      }
      loss += error * error / batch.rows();
    }
    for (int i = 0; i < WEIGHTS; ++i) {
      weights.put(i, (float) (weights.get(i) - learningRate * gradient[i]));
    }
    return new double[] {loss};
  }

  @Override
  public double learningRate() {
    return learningRate;
  }

  @Override
  public void setLearningRate(double learningRate) {
    this.learningRate = learningRate;
  }

  /** Minibatches of labels that are 1, 2, 3 and 4 times the features. */
  static class Samples implements BatchSource {
    private static final int BATCHES = 200;
    private static final int ROWS = 32;

    private final Random random;
    private int given;

    Samples(long seed) {
      random = new Random(seed);
    }

    @Override
    public void rewind(long epoch) {
      given = 0;
    }

    @Override
    public boolean next(Batch batch) throws Exception {
      if (given++ == BATCHES) {
        return false;
      }
      final float[] features = new float[ROWS * WEIGHTS];
      final float[] labels = new float[ROWS];
      for (int i = 0; i < features.length; ++i) {
        features[i] = (float) random.nextGaussian();
        labels[i / WEIGHTS] += (i % WEIGHTS + 1) * features[i];
      }
      batch.set(ROWS, features, labels);
      return true;
    }
  }
}
