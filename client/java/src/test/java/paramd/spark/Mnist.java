package paramd.spark;

import java.io.EOFException;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.stream.IntStream;
import org.apache.spark.ml.linalg.SQLDataTypes;
import org.apache.spark.ml.linalg.Vectors;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/** Images of the data set, read by the tasks: `label` and `features`, in [0, 1]. */
final class Mnist {
  static final int FEATURES = 28 * 28;
  static final int CLASSES = 10;

  private static final int IMAGES_HEADER = 16;
  private static final int LABELS_HEADER = 8;

  private Mnist() {}

  static Dataset<Row> train(Cluster cluster, int rows) {
    return read(cluster, "train", rows);
  }

  static Dataset<Row> test(Cluster cluster, int rows) {
    return read(cluster, "t10k", rows);
  }

  private static Dataset<Row> read(Cluster cluster, String set, int rows) {
    final String folder = System.getProperty("paramd.mnist");
    final int partitions = 2;
    final StructType schema =
        new StructType().add("label", DataTypes.DoubleType).add("features", SQLDataTypes.VectorType());
    return cluster
        .session()
        .createDataFrame(
            cluster
                .context()
                .parallelize(IntStream.range(0, partitions).boxed().toList(), partitions)
                .flatMap(part -> rows(folder, set, part * rows / partitions, (part + 1) * rows / partitions)),
            schema);
  }

  private static Iterator<Row> rows(String folder, String set, int begin, int end) throws IOException {
    final byte[] images = bytes(folder, set + "-images-idx3-ubyte", IMAGES_HEADER, FEATURES, begin, end);
    final byte[] labels = bytes(folder, set + "-labels-idx1-ubyte", LABELS_HEADER, 1, begin, end);
    final List<Row> rows = new ArrayList<>();
    for (int i = 0; i < end - begin; ++i) {
      final double[] features = new double[FEATURES];
      for (int j = 0; j < FEATURES; ++j) {
        features[j] = (images[i * FEATURES + j] & 0xff) / 255.0;
      }
      rows.add(RowFactory.create((double) labels[i], Vectors.dense(features)));
    }
    return rows.iterator();
  }

  private static byte[] bytes(String folder, String name, int header, int each, int begin, int end)
      throws IOException {
    try (RandomAccessFile file = new RandomAccessFile(Path.of(folder, name).toFile(), "r")) {
      final byte[] bytes = new byte[(end - begin) * each];
      file.seek(header + (long) begin * each);
      file.readFully(bytes);
      return bytes;
    } catch (EOFException e) {
      throw new IOException(name + " has fewer than " + end + " rows", e);
    }
  }
}
