package paramd.spark;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.function.Supplier;
import java.util.stream.Stream;
import org.apache.spark.ml.Model;
import org.apache.spark.ml.classification.LogisticRegression;
import org.apache.spark.ml.evaluation.MulticlassClassificationEvaluator;
import org.apache.spark.ml.feature.HashingTF;
import org.apache.spark.ml.feature.IDF;
import org.apache.spark.ml.feature.RegexTokenizer;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.junit.jupiter.api.Test;

/**
 * Text of files that the set-up installs, labelled by the folder they come from, hashed to sparse features:
 * {@link ParamdClassifier} beside Spark's LogisticRegression, in one session. Run by scripts/sparse_bench.sh.
 */
final class SparseTextBench {
  private static final List<String> FOLDERS =
      List.of(
          "/usr/include/absl",
          "/usr/include/boost",
          "/usr/include/c++",
          "/usr/include/eigen3",
          "/usr/include/google",
          "/usr/include/grpcpp",
          "/usr/include/linux",
          "/usr/include/openssl",
          "/usr/include/x86_64-linux-gnu",
          "/usr/lib/llvm-14",
          "/usr/lib/python3",
          "/usr/lib/python3.11",
          "/usr/share/bazel",
          "/usr/share/doc",
          "/usr/share/perl");
  private static final int MOST_OF_A_FOLDER = 2500;
  private static final int MOST_BYTES = 8192;

  @Test
  void measure() throws IOException {
    try (SparkSession session =
        SparkSession.builder()
            .master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .getOrCreate()) {
      final Dataset<Row>[] documents = tokens(session).randomSplit(new double[] {0.8, 0.2}, 1);
      System.out.printf("%d documents, %d of them for the test%n", documents[0].count() + documents[1].count(), documents[1].count());
      System.out.printf("%-10s %-20s %8s %10s %12s%n", "features", "", "seconds", "accuracy", "peak MB");
      for (int bits : new int[] {14, 16, 18}) {
        final HashingTF hashing = new HashingTF().setInputCol("tokens").setOutputCol("counts").setNumFeatures(1 << bits);
        final IDF weighting = new IDF().setInputCol("counts").setOutputCol("features");
        final var idf = weighting.fit(hashing.transform(documents[0]));
        final Dataset<Row> train = idf.transform(hashing.transform(documents[0])).select("label", "features").cache();
        final Dataset<Row> test = idf.transform(hashing.transform(documents[1])).select("label", "features").cache();
        train.count();
        test.count();
        run("2^" + bits, "LogisticRegression", test, () -> new LogisticRegression().fit(train));
        run("2^" + bits, "ParamdClassifier", test, () -> linear().fit(train));
        train.unpersist();
        test.unpersist();
      }
    }
  }

  /** A linear classifier, too; its workers exchange seldom, as a step changes few of the center's floats. */
  private static ParamdClassifier linear() {
    return new ParamdClassifier()
        .setNumWorkers(2)
        .setHiddenLayers(new int[0])
        .setAlgorithm("downpour")
        .setCommunicationWindow(50)
        .setSolver("adam")
        .setStepSize(0.01)
        .setMaxIter(5)
        .setSeed(1);
  }

  private static void run(String features, String name, Dataset<Row> test, Supplier<Model<?>> fit) throws IOException {
    System.gc();
    // Begins the count of the peak again.
    Files.writeString(Path.of("/proc/self/clear_refs"), "5");
    final long begin = System.nanoTime();
    final Model<?> model = fit.get();
    final double seconds = (System.nanoTime() - begin) / 1e9;
    final long peak = peakKilobytes() / 1024;
    final double accuracy =
        new MulticlassClassificationEvaluator().setMetricName("accuracy").evaluate(model.transform(test));
    System.out.printf("%-10s %-20s %8.1f %10.4f %12d%n", features, name, seconds, accuracy, peak);
  }

  private static long peakKilobytes() throws IOException {
    for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
      if (line.startsWith("VmHWM:")) {
        return Long.parseLong(line.replaceAll("\\D", ""));
      }
    }
    return 0;
  }

  private static Dataset<Row> tokens(SparkSession session) throws IOException {
    final List<Row> rows = new ArrayList<>();
    double label = 0;
    for (String folder : FOLDERS) {
      final List<Path> files = files(Path.of(folder));
      for (Path file : files) {
        final byte[] bytes = Files.readAllBytes(file);
        // What a folder's files have in common at their begin, a license, would be too easy.
        final int begin = Math.min(1500, bytes.length / 2);
        final int length = Math.min(MOST_BYTES, bytes.length - begin);
        rows.add(RowFactory.create(label, new String(bytes, begin, length, StandardCharsets.ISO_8859_1)));
      }
      label += files.isEmpty() ? 0 : 1;
    }
    final StructType schema =
        new StructType().add("label", DataTypes.DoubleType).add("text", DataTypes.StringType);
    return new RegexTokenizer()
        .setInputCol("text")
        .setOutputCol("tokens")
        .setPattern("\\W+")
        .transform(session.createDataFrame(rows, schema).repartition(2));
  }

  private static List<Path> files(Path folder) throws IOException {
    if (!Files.isDirectory(folder)) {
      return List.of();
    }
    try (Stream<Path> walk = Files.walk(folder)) {
      final List<Path> files =
          new ArrayList<>(
              walk.filter(Files::isRegularFile)
                  .filter(SparseTextBench::isText)
                  .sorted()
                  .toList());
      Collections.shuffle(files, new Random(1));
      return files.subList(0, Math.min(MOST_OF_A_FOLDER, files.size()));
    }
  }

  private static boolean isText(Path file) {
    final String name = file.getFileName().toString();
    return !name.matches(".*\\.(gz|so.*|a|o|pyc|png|svg|zip|jar|exe|bin|tmac|mo|pack)") && file.toFile().length() > 500;
  }
}
