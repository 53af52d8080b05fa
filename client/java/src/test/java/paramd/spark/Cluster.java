package paramd.spark;

import java.io.IOException;
import java.io.Serializable;
import java.nio.file.DirectoryNotEmptyException;
import java.nio.file.FileVisitResult;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.SimpleFileVisitor;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.List;
import java.util.Map;
import org.apache.spark.BarrierTaskContext;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.sql.SparkSession;
import scala.Function1;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag$;

/** A session with two executor JVMs of one core each. */
final class Cluster implements AutoCloseable {
  static final String LOCAL = "local-cluster[2,1,1024]";

  // Where executors work. Spark wants a folder jars in it, but finds its own jars on the class path.
  private static final Path HOME = Path.of(System.getenv("SPARK_HOME"));

  private final SparkSession session;

  Cluster(String master, Map<String, String> settings) throws IOException {
    Files.createDirectories(HOME.resolve("jars"));
    final SparkSession.Builder builder =
        SparkSession.builder()
            .master(master)
            .appName("paramd-test")
            .config("spark.ui.enabled", "false")
            .config("spark.executor.extraClassPath", System.getProperty("java.class.path"))
            .config("spark.executor.memory", "1g")
            .config("spark.executor.cores", "1")
            // The first job waits for both executors.
            .config("spark.cores.max", "2")
            .config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
            .config("spark.scheduler.maxRegisteredResourcesWaitingTime", "120s")
            .config("spark.sql.shuffle.partitions", "2");
    settings.forEach(builder::config);
    session = builder.getOrCreate();
  }

  SparkSession session() {
    return session;
  }

  JavaSparkContext context() {
    return JavaSparkContext.fromSparkContext(session.sparkContext());
  }

  /** Process ids, in ascending order; needs both slots. */
  List<Long> executorPids() {
    return context()
        .parallelize(List.of(0, 1), 2)
        .rdd()
        .barrier()
        .mapPartitions(
            (Function1<Iterator<Integer>, Iterator<Long>> & Serializable) ignored -> ownPid(),
            false,
            ClassTag$.MODULE$.<Long>apply(Long.class))
        .toJavaRDD()
        .collect()
        .stream()
        .sorted()
        .toList();
  }

  /** In a task. Both tasks run at once, so that each has an executor of its own. */
  private static Iterator<Long> ownPid() {
    BarrierTaskContext.get().barrier();
    return CollectionConverters.asScala(List.of(ProcessHandle.current().pid()).iterator());
  }

  /** Also removes what the executors leave behind, which Spark does not. */
  @Override
  public void close() throws IOException {
    session.stop();
    final Path work = HOME.resolve("work");
    if (Files.exists(work)) {
      Files.walkFileTree(work, new Remover());
    }
  }

  private static final class Remover extends SimpleFileVisitor<Path> {
    @Override
    public FileVisitResult visitFile(Path file, BasicFileAttributes attributes) throws IOException {
      Files.deleteIfExists(file);
      return FileVisitResult.CONTINUE;
    }

    @Override
    public FileVisitResult visitFileFailed(Path file, IOException e) {
      // Executors that still end remove files, too.
      return FileVisitResult.CONTINUE;
    }

    @Override
    public FileVisitResult postVisitDirectory(Path folder, IOException e) throws IOException {
      try {
        Files.deleteIfExists(folder);
      } catch (DirectoryNotEmptyException ignored) {
        // An executor is not quite gone yet.
      }
      return FileVisitResult.CONTINUE;
    }
  }
}
