package paramd.spark;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.FloatBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.stream.IntStream;
import org.apache.spark.ml.linalg.Vector;
import org.apache.spark.ml.linalg.Vectors;
import org.junit.jupiter.api.Test;
import paramd.Batch;
import paramd.BatchSource;
import scala.jdk.javaapi.CollectionConverters;

final class SpooledPartitionTest {
  private static final int FEATURES = 10;

  @Test
  void eachEpochHasAllRowsInAnOrderOfItsOwnSpreadEvenlyOverMinibatches() throws Exception {
    for (int rows : new int[] {1, 31, 32, 33, 64, 65, 673, 674}) {
      try (SpooledPartition spooled = spool(rows(rows), 32)) {
        assertEquals(rows, spooled.size());
        assertEquals((rows + 31) / 32, spooled.batchesPerEpoch());
        final List<List<Float>> epochs = List.of(epoch(spooled, 0, rows), epoch(spooled, 1, rows));
        for (List<Float> epoch : epochs) {
          assertEquals(IntStream.range(0, rows).mapToObj(i -> (float) i).toList(), epoch.stream().sorted().toList());
        }
        if (rows > 30) {
          assertNotEquals(epochs.get(0), epochs.get(1));
        }
        assertEquals(epochs.get(0), epoch(spooled, 0, rows));
      }
    }
  }

  @Test
  void theOrderIsThatOfTheSeedHoweverRowsCome() throws Exception {
    final List<TrainingRow> rows = rows(100);
    final List<Float> expected;
    try (SpooledPartition spooled = spool(rows, 8)) {
      expected = epoch(spooled, 3, 100);
    }
    Collections.shuffle(rows, new Random(1));
    try (SpooledPartition spooled = spool(rows, 8)) {
      assertEquals(expected, epoch(spooled, 3, 100));
    }
  }

  @Test
  void rowsOfAnyFormComeWithLabelsWeightsAndValidationApart() throws Exception {
    final Vector full = Vectors.dense(1, 2, 3, 4, 5, 6, 7, 8, 9, 10);
    final Vector sparse = Vectors.sparse(FEATURES, new int[] {2, 7}, new double[] {3, 0});
    final List<TrainingRow> rows =
        List.of(
            new TrainingRow(full, new double[] {1, 2}, 0.5f, false),
            new TrainingRow(sparse, new double[] {3, 4}, 2, true),
            new TrainingRow(sparse.toDense(), new double[] {5, 6}, 3, true));
    try (SpooledPartition spooled =
        new SpooledPartition(CollectionConverters.asScala(rows.iterator()), FEATURES, 2, true, 10_000_000, 1)) {
      assertEquals(1, spooled.size());
      final Batch batch = new Batch();
      spooled.rewind(0);
      assertTrue(spooled.next(batch));
      assertArrayEquals(new float[] {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, floats(batch.features()));
      assertArrayEquals(new float[] {1, 2, 0.5f}, floats(batch.labels()));
      spooled.validation().rewind(0);
      assertTrue(spooled.validation().next(batch));
      assertEquals(2, batch.rows());
      final float[] zeros = {0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0};
      assertArrayEquals(zeros, floats(batch.features()));
      final float[] labels = floats(batch.labels());
      assertEquals(labels[0] == 3 ? List.of(3f, 4f, 5f, 6f, 2f, 3f) : List.of(5f, 6f, 3f, 4f, 3f, 2f), boxed(labels));
    }
  }

  @Test
  void fewFeaturesOfManyComeAsSparseRows() throws Exception {
    final int features = 300;
    final Vector full = Vectors.dense(IntStream.range(1, features + 1).asDoubleStream().toArray());
    final List<TrainingRow> rows = new ArrayList<>();
    for (int i = 0; i < 20; ++i) {
      final Vector few = Vectors.sparse(features, new int[] {i, 200, 299}, new double[] {i + 1, 0, 7});
      rows.add(new TrainingRow(i == 0 ? full : few, new double[] {i}, 1, false));
      rows.add(new TrainingRow(few, new double[] {i}, 1, true));
    }
    try (SpooledPartition spooled =
        new SpooledPartition(CollectionConverters.asScala(rows.iterator()), features, 1, false, 8, 1)) {
      final Batch batch = new Batch();
      int seen = 0;
      for (spooled.rewind(0); spooled.next(batch); ) {
        assertTrue(batch.isSparse());
        assertEquals(0, batch.rowStarts().get(0));
        assertEquals(batch.rowStarts().get(batch.rows()), batch.columns().limit());
        assertEquals(batch.columns().limit(), batch.values().limit());
        for (int i = 0; i < batch.rows(); ++i, ++seen) {
          final double[] row = new double[features];
          for (int k = batch.rowStarts().get(i); k < batch.rowStarts().get(i + 1); ++k) {
            row[batch.columns().get(k)] = batch.values().get(k);
          }
          assertEquals(rows.get(2 * (int) batch.labels().get(i)).features(), Vectors.dense(row));
        }
      }
      assertEquals(20, seen);
      spooled.validation().rewind(0);
      assertTrue(spooled.validation().next(batch));
      assertFalse(batch.isSparse());
      assertEquals(batch.rows() * features, batch.features().limit());
    }
  }

  @Test
  void aRowOfAnotherLengthIsRefused() {
    final TrainingRow longer = new TrainingRow(Vectors.zeros(FEATURES + 1), new double[1], 1, false);
    assertThrows(IllegalArgumentException.class, () -> spool(List.of(longer), 8));
  }

  private static SpooledPartition spool(List<TrainingRow> rows, int batchSize) {
    return new SpooledPartition(CollectionConverters.asScala(rows.iterator()), FEATURES, 1, false, batchSize, 1);
  }

  /** Each with its number as label and as one of its features. */
  private static List<TrainingRow> rows(int count) {
    final List<TrainingRow> rows = new ArrayList<>();
    for (int i = 0; i < count; ++i) {
      final Vector features = Vectors.sparse(FEATURES, new int[] {i % FEATURES}, new double[] {i});
      rows.add(new TrainingRow(features, new double[] {i}, 1, false));
    }
    return rows;
  }

  /** The labels in their order. */
  private static List<Float> epoch(BatchSource source, long epoch, int rows) throws Exception {
    final List<Float> labels = new ArrayList<>();
    final Batch batch = new Batch();
    final int batches = (int) source.batchesPerEpoch();
    source.rewind(epoch);
    while (source.next(batch)) {
      assertTrue(batch.rows() == rows / batches || batch.rows() == (rows + batches - 1) / batches);
      for (int i = 0; i < batch.rows(); ++i) {
        final float label = batch.labels().get(i);
        assertEquals(label, batch.features().get(i * FEATURES + (int) label % FEATURES));
        labels.add(label);
      }
    }
    return labels;
  }

  private static float[] floats(FloatBuffer buffer) {
    final float[] floats = new float[buffer.limit()];
    buffer.get(0, floats);
    return floats;
  }

  private static List<Float> boxed(float[] floats) {
    return IntStream.range(0, floats.length).mapToObj(i -> floats[i]).toList();
  }
}
