package paramd;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.time.Duration;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(180)
class TrainingTest extends ServerTest {
  /** y = w·x + b by least squares. */
  private static class Line implements Trainable {
    private final FloatBuffer parameters =
        ByteBuffer.allocateDirect(2 * Float.BYTES).order(ByteOrder.nativeOrder()).asFloatBuffer();
    private double learningRate = 0.1;

    @Override
    public FloatBuffer parameters() {
      return parameters;
    }

    @Override
    public double[] trainOnBatch(Batch batch) throws Exception {
      double loss = 0;
      double slope = 0;
      double bias = 0;
      for (int i = 0; i < batch.rows(); i++) {
        final float x = batch.features().get(i);
        final double error = parameters.get(0) * x + parameters.get(1) - batch.labels().get(i);
        loss += error * error / batch.rows();
        slope += 2 * error * x / batch.rows();
        bias += 2 * error / batch.rows();
      }
      parameters.put(0, (float) (parameters.get(0) - learningRate * slope));
      parameters.put(1, (float) (parameters.get(1) - learningRate * bias));
      return new double[] {loss, Math.sqrt(loss)};
    }

    @Override
    public String[] metricNames() {
      return new String[] {"rmse"};
    }

    @Override
    public double learningRate() {
      return learningRate;
    }

    @Override
    public void setLearningRate(double learningRate) {
      this.learningRate = learningRate;
    }
  }

  /** Points of y = 3x − 2, 50 batches of 8 an epoch. */
  private static class Points implements BatchSource {
    private final Random random = new Random(1);
    private int batches;

    @Override
    public boolean next(Batch batch) throws Exception {
      if (batches++ == 50) {
        return false;
      }
      batch.resize(8, 8, 8);
      for (int i = 0; i < 8; i++) {
        final float x = random.nextFloat() * 2 - 1;
        batch.features().put(i, x);
        batch.labels().put(i, 3 * x - 2);
      }
      return true;
    }

    @Override
    public void rewind(long epoch) {
      batches = 0;
    }

    @Override
    public long batchesPerEpoch() {
      return 50;
    }
  }

  private static WorkerOptions options(String model) {
    return new WorkerOptions(server.address(), model, "a")
        .create(new ModelSpec(model).tensor("w").tensor("b").algorithm("downpour"));
  }

  @Test
  void aModelInJavaConverges() {
    final Line line = new Line();
    final TrainSummary summary =
        Training.run(
            options("line"), new TrainOptions().epochs(4).communicationWindow(5).learningRate(0.2), line, new Points());
    assertEquals(200, summary.steps());
    assertEquals(1600, summary.samples());
    assertEquals(40, summary.exchanges());
    assertEquals(4, summary.epochs());
    assertEquals(0.2, line.learningRate());
    assertTrue(summary.lastLoss() < 1e-3, summary::toString);
    try (Admin admin = Admin.connect(server.address(), Await.TIMEOUT)) {
      final float[] center = new float[2];
      admin.pull("line", center);
      assertArrayEquals(new float[] {3, -2}, center, 0.05f);
      for (boolean averaged : new boolean[] {false, true}) {
        final History.Series series = admin.history("line", averaged).series().get(0);
        assertArrayEquals(new String[] {"rmse"}, series.metricNames());
        assertEquals(200, series.records().size());
        final History.Record last = series.records().get(199);
        assertEquals(200, last.step());
        assertEquals(4, last.epoch());
        assertEquals(Math.sqrt(last.loss()), last.metrics()[0], 1e-9);
      }
      assertEquals(0, admin.model("line").liveWorkers());
    }
  }

  @Test
  void aSourceThatHasNoMoreEndsTrainingWell() {
    final BatchSource ending =
        new Points() {
          private int given;

          @Override
          public boolean next(Batch batch) throws Exception {
            if (given++ == 70) {
              throw new ParamdException(ParamdException.Code.OUT_OF_RANGE, "no more");
            }
            return super.next(batch);
          }
        };
    final TrainSummary summary = Training.run(options("ending"), new TrainOptions().epochs(9), new Line(), ending);
    // One of the 70 was the end of an epoch.
    assertEquals(69, summary.steps());
    assertEquals(1, summary.epochs());
  }

  private static ParamdException failure(String model, Trainable trainable, BatchSource source) {
    return assertThrows(
        ParamdException.class, () -> Training.run(options(model), new TrainOptions(), trainable, source));
  }

  @Test
  void whatModelOrSourceThrowIsTheCause() {
    final Exception thrown = new Exception("there is no more ☃");
    final ParamdException model =
        failure(
            "throws",
            new Line() {
              @Override
              public double[] trainOnBatch(Batch batch) throws Exception {
                throw thrown;
              }
            },
            new Points());
    assertSame(thrown, model.getCause());
    assertEquals(ParamdException.Code.INTERNAL, model.code());
    assertTrue(model.getMessage().contains("no more ☃"), model.getMessage());

    final ParamdException own = new ParamdException(ParamdException.Code.DATA_LOSS, "a torn file");
    final ParamdException source =
        failure(
            "throws",
            new Line(),
            new Points() {
              @Override
              public boolean next(Batch batch) {
                throw own;
              }
            });
    assertSame(own, source.getCause());
    assertEquals(ParamdException.Code.DATA_LOSS, source.code());

    final ParamdException rate =
        failure(
            "throws",
            new Line() {
              @Override
              public void setLearningRate(double learningRate) {
                throw new StackOverflowError();
              }
            },
            new Points());
    assertInstanceOf(StackOverflowError.class, rate.getCause());

    final ParamdException results =
        failure(
            "throws",
            new Line() {
              @Override
              public double[] trainOnBatch(Batch batch) {
                return new double[1];
              }
            },
            new Points());
    assertEquals(ParamdException.Code.INVALID_ARGUMENT, results.code());
    try (Admin admin = Admin.connect(server.address(), Await.TIMEOUT)) {
      assertEquals(0, admin.model("throws").liveWorkers());
    }
  }

  @Test
  void whatParametersOrMetricNamesThrowIsTheCauseToo() {
    final RuntimeException thrown = new IllegalStateException("out of magic");
    final ParamdException names =
        failure(
            "throws",
            new Line() {
              @Override
              public String[] metricNames() {
                throw thrown;
              }
            },
            new Points());
    assertSame(thrown, names.getCause());
    final ParamdException parameters =
        failure(
            "throws",
            new Line() {
              @Override
              public FloatBuffer parameters() {
                throw thrown;
              }
            },
            new Points());
    assertSame(thrown, parameters.getCause());
    assertEquals(ParamdException.Code.INTERNAL, parameters.code());
  }

  @Test
  void aTrainingThatFailsTellsHowFarItCame() {
    final ParamdException failure =
        failure(
            "summary",
            new Line() {
              private int steps;

              @Override
              public double[] trainOnBatch(Batch batch) throws Exception {
                if (++steps == 12) {
                  throw new Exception("out of magic");
                }
                return super.trainOnBatch(batch);
              }
            },
            new Points());
    assertEquals(11, failure.summary().steps());
    assertEquals(88, failure.summary().samples());
    assertEquals(2, failure.summary().exchanges());
  }

  @Test
  void minibatchesCarryWhateverInputs() {
    final Line line =
        new Line() {
          private int next;

          @Override
          public double[] trainOnBatch(Batch batch) {
            assertArrayEquals(new int[] {next++}, (int[]) batch.inputs().get(0));
            assertEquals("row", batch.inputs().get(1));
            return new double[] {0, 0};
          }
        };
    final Points points =
        new Points() {
          private int read;

          @Override
          public boolean next(Batch batch) throws Exception {
            final boolean more = super.next(batch);
            assertEquals(0, batch.inputs().size());
            batch.setInputs(new int[] {read}, "row");
            read += more ? 1 : 0;
            return more;
          }
        };
    final TrainSummary summary = Training.run(options("inputs"), new TrainOptions().epochs(2), line, points);
    assertEquals(100, summary.steps());
  }

  @Test
  void aBatchWithoutRowsIsRefused() {
    final ParamdException empty =
        failure(
            "empty",
            new Line(),
            new Points() {
              @Override
              public boolean next(Batch batch) {
                batch.resize(0, 0, 0);
                return true;
              }
            });
    assertEquals(ParamdException.Code.INVALID_ARGUMENT, empty.code());
  }

  /** Interrupts a training that blocks in its source or its model, and returns its error. */
  private static ParamdException interrupted(boolean inSource) throws InterruptedException {
    final CountDownLatch blocks = new CountDownLatch(1);
    final AtomicReference<ParamdException> thrown = new AtomicReference<>();
    final Line line =
        new Line() {
          @Override
          public double[] trainOnBatch(Batch batch) throws Exception {
            if (!inSource) {
              blocks.countDown();
              Thread.sleep(Long.MAX_VALUE);
            }
            return super.trainOnBatch(batch);
          }
        };
    final Points points =
        new Points() {
          @Override
          public boolean next(Batch batch) throws Exception {
            if (inSource) {
              blocks.countDown();
              Thread.sleep(Long.MAX_VALUE);
            }
            return super.next(batch);
          }
        };
    final Thread thread =
        new Thread(
            () -> {
              final ParamdException e = failure("blocks", line, points);
              assertTrue(Thread.currentThread().isInterrupted());
              thrown.set(e);
            });
    thread.start();
    blocks.await();
    thread.interrupt();
    thread.join(Await.TIMEOUT.toMillis());
    assertTrue(thrown.get() != null, "the training did not end as it should");
    return thrown.get();
  }

  @Test
  void anInterruptEndsATrainingWhereverItWaits() throws InterruptedException {
    for (boolean inSource : new boolean[] {true, false}) {
      assertEquals(ParamdException.Code.CANCELLED, interrupted(inSource).code());
    }
  }

  @Test
  void aDirectBufferIsAskedFor() {
    final ParamdException thrown =
        assertThrows(
        ParamdException.class,
        () ->
            Training.run(
                options("heap"),
                new TrainOptions(),
                new Line() {
                  @Override
                  public FloatBuffer parameters() {
                    return FloatBuffer.allocate(2);
                  }
                },
                new Points()));
    assertEquals(ParamdException.Code.INVALID_ARGUMENT, thrown.code());
  }

  @Test
  void aDaemonThatIsGoneIsReportedInTime() {
    final ParamdServer own = ParamdServer.start(new ServerOptions());
    final long[] killed = new long[1];
    final Line line =
        new Line() {
          private int steps;

          @Override
          public double[] trainOnBatch(Batch batch) throws Exception {
            if (++steps == 7) {
              ProcessHandle.of(own.pid()).orElseThrow().destroyForcibly();
              own.onExit().join();
              killed[0] = System.nanoTime();
            }
            return super.trainOnBatch(batch);
          }
        };
    final WorkerOptions options =
        new WorkerOptions(own.address(), "gone", "a")
            .create(new ModelSpec("gone").tensor("w").tensor("b").algorithm("downpour"))
            .rpcTimeout(Duration.ofMillis(500));
    final ParamdException thrown =
        assertThrows(
            ParamdException.class, () -> Training.run(options, new TrainOptions(), line, new Points()));
    assertEquals(ParamdException.Code.UNAVAILABLE, thrown.code());
    assertTrue(System.nanoTime() - killed[0] < 5e9);
  }

  @Test
  void aNegativeNumberOfBatchesIsRefused() {
    final ParamdException negative =
        failure(
            "negative",
            new Line(),
            new Points() {
              @Override
              public long batchesPerEpoch() {
                return -1;
              }
            });
    assertEquals(ParamdException.Code.INVALID_ARGUMENT, negative.code());
    assertTrue(negative.getMessage().contains("batchesPerEpoch() is -1"), negative.getMessage());
  }

  @Test
  void aTrainingOnAThreadOfItsOwnCanBeCancelled() throws Exception {
    assertEquals(50, Training.runAsync(options("async"), new TrainOptions(), new Line(), new Points()).get().steps());
    final CountDownLatch ended = new CountDownLatch(1);
    final CountDownLatch blocks = new CountDownLatch(1);
    final Line line =
        new Line() {
          @Override
          public double[] trainOnBatch(Batch batch) throws Exception {
            blocks.countDown();
            try {
              Thread.sleep(Long.MAX_VALUE);
            } finally {
              ended.countDown();
            }
            return super.trainOnBatch(batch);
          }
        };
    final CompletableFuture<TrainSummary> training =
        Training.runAsync(options("async"), new TrainOptions(), line, new Points());
    blocks.await();
    training.cancel(true);
    assertTrue(ended.await(Await.TIMEOUT.toSeconds(), TimeUnit.SECONDS));
  }
}
