package paramd.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.apache.spark.ml.attribute.NominalAttribute;
import org.apache.spark.ml.linalg.SQLDataTypes;
import org.apache.spark.ml.linalg.Vectors;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Tag("spark")
@Timeout(300)
final class LargePartitionTest {
  private static final int ROWS = 40000;
  private static final int FEATURES = 4000;

  /** Twice over: 640 MB as floats, 1.28 GB as Spark has the rows, and a heap of 512 MB. */
  @Test
  void aPartitionLargerThanTheHeapTrains() throws IOException {
    try (Cluster cluster = new Cluster(Cluster.LOCAL, Map.of("spark.executor.memory", "512m"))) {
      final List<Long> executors = cluster.executorPids();
      final ParamdTrainingSummary summary =
          new ParamdClassifier()
              .setNumWorkers(1)
              .setHiddenLayers(new int[0])
              .setBatchSize(200)
              .setMaxIter(2)
              .setStepSize(0.01)
              .fit(rows(cluster))
              .summary();
      assertEquals(ROWS, summary.rows());
      assertEquals(2 * ROWS / 200, summary.history().count());
      final double last = summary.averagedHistory().selectExpr("max_by(loss, step)").head().getDouble(0);
      assertTrue(last < 0.1, "the last loss was " + last);
      assertEquals(executors, cluster.executorPids());
    }
  }

  /** One partition, made row by row. */
  private static Dataset<Row> rows(Cluster cluster) {
    final StructType schema =
        new StructType()
            .add("label", DataTypes.DoubleType)
            .add("features", SQLDataTypes.VectorType());
    return cluster
        .session()
        .createDataFrame(
            cluster
                .context()
                .parallelize(List.of(0), 1)
                .flatMap(ignored -> IntStream.range(0, ROWS).mapToObj(LargePartitionTest::row).iterator()),
            schema)
        // Spares a pass over the labels.
        .withMetadata("label", NominalAttribute.defaultAttr().withNumValues(2).toMetadata());
  }

  private static Row row(int index) {
    final double[] features = new double[FEATURES];
    Arrays.fill(features, index % 2 == 0 ? 0.1 : -0.1);
    return RowFactory.create((double) (index % 2), Vectors.dense(features));
  }
}
