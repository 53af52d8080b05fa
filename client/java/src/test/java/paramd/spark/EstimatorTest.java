package paramd.spark;

import static org.apache.spark.sql.functions.expr;
import static org.apache.spark.sql.functions.lit;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.function.IntToDoubleFunction;
import org.apache.spark.ml.evaluation.MulticlassClassificationEvaluator;
import org.apache.spark.ml.evaluation.RegressionEvaluator;
import org.apache.spark.ml.linalg.SQLDataTypes;
import org.apache.spark.ml.linalg.Vector;
import org.apache.spark.ml.linalg.Vectors;
import org.apache.spark.ml.param.ParamMap;
import org.apache.spark.ml.tuning.CrossValidator;
import org.apache.spark.ml.tuning.CrossValidatorModel;
import org.apache.spark.ml.tuning.ParamGridBuilder;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import paramd.ParamdServer;
import paramd.ServerOptions;

/** What the estimators make of data and parameters, in one JVM. */
@Tag("spark")
@Timeout(300)
final class EstimatorTest {
  private static final int FEATURES = 16;
  private static final int CLASSES = 4;

  private static Cluster cluster;
  private static ParamdServer server; // started once, of what fits often
  private static Dataset<Row> clusters;

  @BeforeAll
  static void start() throws IOException {
    cluster = new Cluster("local[2]", Map.of());
    server = ParamdServer.start(new ServerOptions());
    clusters = clusters(600, 1, feature -> 1).cache();
  }

  @AfterAll
  static void stop() throws IOException {
    server.close();
    cluster.close();
  }

  /** 673 and 674 rows are 21 minibatches of 32 and one or two rows; the last one of these is far from all others. */
  @Test
  void noSeedIsLostToAShortMinibatchOfAnOutlier() {
    final List<Row> rows = new ArrayList<>(rowsOf(1347, 3, feature -> 1));
    rows.set(1346, RowFactory.create(0.0, Vectors.dense(new Random(2).doubles(FEATURES, -40, 40).toArray()), 1.0, false));
    final Dataset<Row> data = frame(rows).coalesce(2).cache();
    for (int seed = 1; seed <= 24; ++seed) {
      final ParamdClassificationModel model =
          new ParamdClassifier()
              .setServer(server.address())
              .setHiddenLayers(new int[] {128, 64, 32})
              .setMaxIter(4)
              .setSeed(seed)
              .fit(data);
      assertTrue(model.summary().accuracy() >= 0.9, "seed " + seed + " ends at " + model.summary());
    }
  }

  @Test
  void featuresAsTheyAreTrainAsWellAsScaledOnes() {
    // From thousandths to tens of thousands, far from 0.
    final Dataset<Row> raw = clusters(600, 1, feature -> Math.pow(10, feature % 8 - 3));
    for (String solver : new String[] {"sgd", "momentum", "adam"}) {
      for (String algorithm :
          new String[] {"adag", "adaptive_adag", "aeasgd", "averaging", "downpour", "dynsgd", "eamsgd", "easgd"}) {
        final ParamdClassificationModel model =
            new ParamdClassifier().setServer(server.address()).setSolver(solver).setAlgorithm(algorithm).fit(raw);
        assertTrue(model.evaluate(raw).accuracy() >= 0.95, solver + " " + algorithm + ": " + model.summary());
      }
    }
  }

  @Test
  void sparseRowsPredictAsDenseOnes() {
    final ParamdClassificationModel model = new ParamdClassifier().fit(clusters);
    for (Row row : clusters.limit(5).collectAsList()) {
      final Vector features = row.getAs(1);
      assertArrayEquals(model.predictRaw(features).toArray(), model.predictRaw(features.toSparse()).toArray(), 1e-3);
    }
  }

  @Test
  void theSameSeedGivesTheSameModelAndItIsFixed() {
    final ParamdClassifier classifier = new ParamdClassifier().setNumWorkers(1);
    final Vector first = classifier.fit(clusters).weights();
    assertEquals(first, new ParamdClassifier().setNumWorkers(1).fit(clusters.repartition(3)).weights());
    assertFalse(first.equals(classifier.setSeed(99).fit(clusters).weights()));
  }

  @Test
  void rowsCountByTheirWeights() {
    // Class 3 says that it is class 0 in rows of little weight.
    final Dataset<Row> lies =
        clusters
            .filter("label = 3")
            .withColumn("label", lit(0.0))
            .withColumn("weight", lit(0.001));
    final Dataset<Row> data = clusters.withColumn("weight", lit(0.1)).union(lies).union(lies);
    final Dataset<Row> truth = clusters.filter("label = 3");
    assertTrue(new ParamdClassifier().setWeightCol("weight").fit(data).evaluate(truth).accuracy() > 0.9);
    assertTrue(new ParamdClassifier().fit(data).evaluate(truth).accuracy() < 0.5);
    final IllegalArgumentException e =
        assertThrows(
            IllegalArgumentException.class,
            () -> new ParamdClassifier().setWeightCol("weight").fit(data.withColumn("weight", lit(0.0))));
    assertTrue(e.getMessage().contains("weights"), e.getMessage());
  }

  @Test
  void aPenaltyMakesWeightsSmall() {
    final ParamdClassifier classifier = new ParamdClassifier().setHiddenLayers(new int[0]).setNumWorkers(1);
    assertTrue(norm(classifier.setRegParam(1).fit(clusters)) < norm(classifier.setRegParam(0).fit(clusters)) / 2);
  }

  @Test
  void trainingStopsWhenTheValidationLossGetsNoBetter() {
    // Labels are chance: what is learned holds for no other row.
    final Dataset<Row> noise = clusters.withColumn("label", expr("cast(rand(5) * 2 as int)")).cache();
    for (ParamdEstimator<?> estimator :
        new ParamdEstimator<?>[] {new ParamdClassifier(), new ParamdRegressor()}) {
      estimator.setValidationIndicatorCol("validation").setMaxIter(1000).setPatience(3);
      final ParamdTrainingSummary summary =
          estimator instanceof ParamdClassifier classifier
              ? classifier.fit(noise).summary()
              : ((ParamdRegressor) estimator).fit(noise).summary();
      assertTrue(summary.totalIterations() < 200, summary.toString());
      assertEquals(noise.filter("not validation").count(), summary.rows());
      assertTrue(summary.validationHistory().length >= 4);
    }
  }

  @Test
  void trainingGoesOnFromAnInitialModel() {
    final ParamdClassifier classifier = new ParamdClassifier().setNumWorkers(1).setMaxIter(1);
    final ParamdClassificationModel first = classifier.setStepSize(0.05).fit(clusters);
    final ParamdClassificationModel next = classifier.copy(ParamMap.empty()).setInitialModel(first).fit(clusters);
    assertTrue(next.summary().objectiveHistory()[0] < first.summary().objectiveHistory()[0]);
    final ParamdClassificationModel same = classifier.setInitialModel(first).setStepSize(1e-9).fit(clusters);
    assertArrayEquals(first.weights().toArray(), same.weights().toArray(), 1e-6);
    assertThrows(IllegalArgumentException.class, () -> classifier.setHiddenLayers(new int[] {3}).fit(clusters));
  }

  @Test
  void rowsThatAreNotFiniteAreAnErrorOrLeftOutOrNaN() {
    final ParamdClassificationModel model = new ParamdClassifier().setMaxIter(1).fit(clusters);
    final double[] values = new double[FEATURES];
    values[2] = Double.NaN;
    final Dataset<Row> bad =
        frame(List.of(row(0, Vectors.dense(values)), row(0, null), row(0, Vectors.zeros(FEATURES))));
    final Exception e = assertThrows(Exception.class, () -> model.transform(bad).collectAsList());
    assertTrue(rootMessage(e).contains("features"), rootMessage(e));
    model.set(model.handleInvalid(), "skip");
    assertEquals(1, model.transform(bad).count());
    model.set(model.handleInvalid(), "keep");
    assertEquals(2, model.transform(bad).filter("isnan(prediction)").count());
    final Dataset<Row> longer = frame(List.of(row(0, Vectors.zeros(FEATURES + 1))));
    final Exception length = assertThrows(Exception.class, () -> model.transform(longer).collectAsList());
    assertTrue(rootMessage(length).contains((FEATURES + 1) + " features"), rootMessage(length));
    final ParamdClassifier skipping = new ParamdClassifier().setHandleInvalid("skip").setMaxIter(1);
    assertEquals(601, skipping.fit(clusters.union(bad)).summary().rows());
  }

  @Test
  void aSummaryAndAnEvaluationTellHowItWent() {
    final ParamdClassificationModel model = new ParamdClassifier().setMaxIter(7).fit(clusters);
    final ParamdTrainingSummary summary = model.summary();
    assertEquals(7, summary.totalIterations());
    assertEquals(7, summary.accuracyHistory().length);
    assertTrue(summary.objectiveHistory()[6] < summary.objectiveHistory()[0]);
    assertTrue(summary.toString().contains("accuracy"), summary.toString());
    final ParamdClassificationEvaluation evaluation = model.evaluate(clusters);
    assertEquals(
        new MulticlassClassificationEvaluator().setMetricName("accuracy").evaluate(model.transform(clusters)),
        evaluation.accuracy());
    assertEquals(CLASSES, evaluation.recallByLabel().length);
  }

  @Test
  void gridsAreSearchedWithFitsAtTheSameTime() {
    final ParamdClassifier classifier = new ParamdClassifier().setMaxIter(3).setNumWorkers(1);
    final ParamMap[] grid =
        new ParamGridBuilder().addGrid(classifier.stepSize(), new double[] {1e-6, 0.5}).build();
    final CrossValidatorModel validated =
        new CrossValidator()
            .setEstimator(classifier)
            .setEstimatorParamMaps(grid)
            .setEvaluator(new MulticlassClassificationEvaluator().setMetricName("accuracy"))
            .setNumFolds(2)
            .setParallelism(2)
            .fit(clusters);
    assertTrue(validated.avgMetrics()[1] > validated.avgMetrics()[0]);
    assertEquals(0.5, ((ParamdClassificationModel) validated.bestModel()).getStepSize());
  }

  @Test
  void aYearBesideCategoriesIsLearned() {
    final Random random = new Random(6);
    final List<Row> rows = new ArrayList<>();
    for (int i = 0; i < 1000; ++i) {
      final int year = 2000 + random.nextInt(21);
      rows.add(row(year > 2010 ? 1 : 0, Vectors.sparse(61, new int[] {random.nextInt(60), 60}, new double[] {1, year})));
    }
    final ParamdClassificationModel model = new ParamdClassifier().setNumWorkers(2).fit(frame(rows));
    assertTrue(model.summary().accuracy() > 0.95, "accuracy " + model.summary().accuracy());
  }

  @Test
  void numbersAreTrainedOneOrSeveralAndSaved(@TempDir Path folder) throws IOException {
    final Random random = new Random(4);
    final List<Row> rows = new ArrayList<>();
    for (int i = 0; i < 800; ++i) {
      final double x = random.nextDouble() * 2 - 1;
      final double y = random.nextDouble() * 100;
      // As far from 0, floats are 128 apart.
      rows.add(RowFactory.create(1.7e9 + 50 * x, x * x - y / 100, Vectors.dense(x, y)));
    }
    final StructType schema =
        new StructType()
            .add("label", DataTypes.DoubleType)
            .add("other", DataTypes.DoubleType)
            .add("features", SQLDataTypes.VectorType());
    final Dataset<Row> data = cluster.session().createDataFrame(rows, schema).cache();
    final ParamdRegressionModel one = new ParamdRegressor().fit(data);
    final double r2 = new RegressionEvaluator().setMetricName("r2").evaluate(one.transform(data));
    assertTrue(r2 > 0.98, "r² " + r2);
    final ParamdRegressionModel two =
        new ParamdRegressor().setLabelCols(new String[] {"label", "other"}).fit(data);
    two.save(folder.resolve("model").toString());
    final ParamdRegressionModel loaded = ParamdRegressionModel.load(folder.resolve("model").toString());
    assertEquals(two.summary().toString(), loaded.summary().toString());
    double error = 0;
    for (Row row : loaded.transform(data).collectAsList()) {
      final Vector prediction = row.getAs("prediction");
      assertEquals(two.predictAll(row.getAs("features")), prediction);
      error += Math.abs(prediction.apply(0) - row.getDouble(0)) / 50 + Math.abs(prediction.apply(1) - row.getDouble(1));
    }
    assertTrue(error / 1600 < 0.1, "mean error " + error / 1600);
  }

  private static double norm(ParamdClassificationModel model) {
    return Vectors.norm(model.weights(), 2);
  }

  private static String rootMessage(Throwable error) {
    Throwable root = error;
    while (root.getCause() != null) {
      root = root.getCause();
    }
    return String.valueOf(root.getMessage());
  }

  private static Row row(double label, Vector features) {
    return RowFactory.create(label, features, 1.0, false);
  }

  /** Around a point of each class, times what `scale` says of a feature, and as far from 0. */
  private static Dataset<Row> clusters(int rows, long seed, IntToDoubleFunction scale) {
    return frame(rowsOf(rows, seed, scale));
  }

  private static List<Row> rowsOf(int rows, long seed, IntToDoubleFunction scale) {
    final Random random = new Random(seed);
    final double[][] points = new double[CLASSES][FEATURES];
    for (double[] point : points) {
      for (int i = 0; i < FEATURES; ++i) {
        point[i] = random.nextGaussian() * 2;
      }
    }
    final List<Row> made = new ArrayList<>();
    for (int i = 0; i < rows; ++i) {
      final int label = i % CLASSES;
      final double[] features = new double[FEATURES];
      for (int j = 0; j < FEATURES; ++j) {
        features[j] = (points[label][j] + random.nextGaussian() + 3) * scale.applyAsDouble(j);
      }
      made.add(RowFactory.create((double) label, Vectors.dense(features), 1.0, i % 5 == 0));
    }
    return made;
  }

  private static Dataset<Row> frame(List<Row> rows) {
    return cluster
        .session()
        .createDataFrame(
            rows,
            new StructType()
                .add("label", DataTypes.DoubleType)
                .add("features", SQLDataTypes.VectorType())
                .add("weight", DataTypes.DoubleType)
                .add("validation", DataTypes.BooleanType));
  }
}
