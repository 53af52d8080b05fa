package paramd;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;

/** The first rows of one half of MNIST as minibatches, from idx files in the folder of property paramd.mnist. */
final class Mnist implements BatchSource {
  static final int PIXELS = 784;
  static final int CLASSES = 10;

  private final float[] features;
  private final float[] labels;
  private final int rowsPerBatch;
  private int row;

  /** {@code half}: "train" or "t10k". */
  Mnist(String half, int rows, int rowsPerBatch) throws IOException {
    final Path folder = Path.of(System.getProperty("paramd.mnist", "../../data/mnist"));
    final ByteBuffer images =
        ByteBuffer.wrap(Files.readAllBytes(folder.resolve(half + "-images-idx3-ubyte"))).position(16);
    final ByteBuffer classes =
        ByteBuffer.wrap(Files.readAllBytes(folder.resolve(half + "-labels-idx1-ubyte"))).position(8);
    features = new float[rows * PIXELS];
    labels = new float[rows];
    for (int i = 0; i < features.length; i++) {
      features[i] = (images.get() & 0xff) / 255f;
    }
    for (int i = 0; i < rows; i++) {
      labels[i] = classes.get();
    }
    this.rowsPerBatch = rowsPerBatch;
  }

  float[] features() {
    return features;
  }

  float[] labels() {
    return labels;
  }

  @Override
  public boolean next(Batch batch) {
    if (row == labels.length) {
      return false;
    }
    final int rows = Math.min(rowsPerBatch, labels.length - row);
    batch.resize(rows, rows * PIXELS, rows);
    batch.features().put(0, features, row * PIXELS, rows * PIXELS);
    batch.labels().put(0, labels, row, rows);
    row += rows;
    return true;
  }

  @Override
  public void rewind(long epoch) {
    row = 0;
  }

  @Override
  public long batchesPerEpoch() {
    return (labels.length + rowsPerBatch - 1) / rowsPerBatch;
  }
}
