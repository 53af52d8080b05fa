package paramd.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import java.util.stream.Stream;
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

/** Driver and tasks in this JVM, so that it would have all that a fit leaves behind. */
@Tag("spark")
@Timeout(600)
final class ManyFitsTest {
  private static final int FITS = 50;
  private static final int WARM = 10;
  private static final long MEGABYTE = 1 << 20;

  @Test
  void fiftyFitsLeaveNoProcessesDescriptorsFoldersOrHeapBehind() throws Exception {
    final StructType schema =
        new StructType().add("label", DataTypes.DoubleType).add("features", SQLDataTypes.VectorType());
    try (Cluster cluster = new Cluster("local[2]", Map.of("spark.cleaner.periodicGC.interval", "1s"))) {
      final List<Row> rows =
          IntStream.range(0, 40).mapToObj(i -> RowFactory.create(i % 2.0, Vectors.dense(i % 2, 1))).toList();
      final Dataset<Row> data = cluster.session().createDataFrame(rows, schema);
      long descriptors = 0;
      final List<Path> before = temporaryFiles();
      long heap = 0;
      for (int i = 0; i < FITS; ++i) {
        if (i == WARM) {
          descriptors = descriptors();
          heap = heap();
        }
        new ParamdClassifier().setNumWorkers(2).setHiddenLayers(new int[] {4}).setMaxIter(1).fit(data);
        assertEquals(0, ProcessHandle.current().children().filter(ProcessHandle::isAlive).count());
      }
      // Tests that run beside this one have some, too, for a while.
      final List<Path> left = temporaryFiles();
      left.removeAll(before);
      while (!left.isEmpty()) {
        Thread.sleep(20);
        left.removeIf(file -> !Files.exists(file));
      }
      assertTrue(descriptors() <= descriptors + 10, descriptors() + " descriptors after " + descriptors);
      assertTrue(heap() <= heap + 15 * MEGABYTE, heap() + " bytes of heap after " + heap);
    }
  }

  private static long descriptors() throws IOException {
    System.gc();
    try (Stream<Path> open = Files.list(Path.of("/proc/self/fd"))) {
      return open.count();
    }
  }

  private static List<Path> temporaryFiles() throws IOException {
    final List<Path> files = new ArrayList<>();
    try (Stream<Path> list = Files.list(Path.of(System.getProperty("java.io.tmpdir")))) {
      list.filter(file -> file.getFileName().toString().startsWith("paramd-")).forEach(files::add);
    }
    return files;
  }

  /** What is reachable: Spark drops what it knows of a shuffle only after a collection. */
  private static long heap() {
    long least = Long.MAX_VALUE;
    for (int i = 0; i < 5; ++i) {
      System.gc();
      least = Math.min(least, ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed());
    }
    return least;
  }
}
