package paramd;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Consumer;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInfo;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

@Timeout(120)
class WorkerTest extends ServerTest {
  private static final Duration TIMEOUT = Duration.ofSeconds(30);
  private String model;

  @BeforeEach
  void name(TestInfo test) {
    model = test.getTestMethod().orElseThrow().getName() + test.getDisplayName().hashCode();
  }

  private WorkerOptions options(String worker, int floats) {
    return new WorkerOptions(server.address(), model, worker)
        .create(new ModelSpec(model).tensor("w", floats).algorithm("downpour"))
        .joinTimeout(TIMEOUT);
  }

  private static FloatBuffer direct(int floats, ByteOrder order) {
    return ByteBuffer.allocateDirect(floats * Float.BYTES).order(order).asFloatBuffer();
  }

  private static ParamdException.Code codeOf(Runnable call) {
    return assertThrows(ParamdException.class, call::run).code();
  }

  @ParameterizedTest
  @ValueSource(strings = {"grpc", "shm"})
  void theCenterGoesRoundInArrays(String transport) {
    try (Worker worker = Worker.join(options("a", 3).transport(transport))) {
      assertEquals(3, worker.parameters());
      assertEquals(model, worker.model());
      assertEquals(transport, worker.transport());
      worker.initialize(new float[] {1, 2, 3}, TIMEOUT);
      final float[] center = new float[3];
      assertEquals(new Exchanged(0, 0), worker.pull(center, TIMEOUT));
      assertArrayEquals(new float[] {1, 2, 3}, center);
      final Exchanged committed = worker.commit(new float[] {1, 1, 1}, TIMEOUT);
      assertEquals(new Exchanged(1, 0), committed);
      assertTrue(committed.applied() && !new Exchanged(1, -1).applied());
      assertEquals(2, worker.exchange(new float[] {0, 1, 0}, center, TIMEOUT).version());
      assertArrayEquals(new float[] {2, 4, 4}, center);
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"grpc", "shm"})
  void aWorkerSaysWhatBecameOfItsCommit(String transport) {
    try (Worker worker = Worker.join(options("a", 3).transport(transport))) {
      assertEquals(CommitState.NONE, worker.commitState());
      worker.initialize(new float[3], TIMEOUT);
      worker.commit(new float[3], TIMEOUT);
      assertEquals(CommitState.APPLIED, worker.commitState());
      assertEquals(
          ParamdException.Code.INVALID_ARGUMENT, codeOf(() -> worker.commit(new float[] {0, Float.NaN, 0}, TIMEOUT)));
      assertEquals(CommitState.NOT_APPLIED, worker.commitState());
    }
  }

  @Test
  void aCenterThatIsNotFiniteIsAProblem() {
    try (Worker worker = Worker.join(options("a", 3));
        Admin admin = Admin.connect(server.address(), TIMEOUT)) {
      worker.initialize(new float[] {3e38f, 0, 0}, TIMEOUT);
      assertEquals("", admin.problem(model));
      assertThrows(
          ParamdException.class,
          () -> {
            worker.commit(new float[] {3e38f, 0, 0}, TIMEOUT);
            worker.commit(new float[3], TIMEOUT);
          });
      assertTrue(admin.problem(model).contains("'w'"), () -> admin.problem(model));
    }
  }

  @Test
  void theModelIsWhatAWorkerTells() {
    final WorkerOptions options =
        new WorkerOptions(server.address(), model, "a")
            .create(
                new ModelSpec(model)
                    .tensor("w", 2, 3)
                    .tensor("b")
                    .algorithm("adag")
                    .consistency("bounded:3")
                    .hyperparameter("communication_window", 7))
            .joinTimeout(TIMEOUT)
            .transport("grpc")
            .wire("bf16");
    try (Worker worker = Worker.join(options)) {
      final ModelSpec spec = worker.spec();
      assertEquals(model, spec.name());
      assertEquals("adag", spec.algorithm());
      assertEquals("bounded:3", spec.consistency());
      assertEquals(7, spec.hyperparameters().get("communication_window"));
      assertEquals(0.5, spec.hyperparameters().get("learning_rate"));
      assertEquals("w", spec.tensors().get(0).name());
      assertArrayEquals(new long[] {2, 3}, spec.tensors().get(0).shape());
      assertArrayEquals(new long[0], spec.tensors().get(1).shape());
      assertEquals("bf16", worker.wire());
    }
  }

  @Test
  void anyBufferWillDoFromItsPositionToItsLimit() {
    final List<FloatBuffer> buffers = new ArrayList<>();
    for (ByteOrder order : List.of(ByteOrder.LITTLE_ENDIAN, ByteOrder.BIG_ENDIAN)) {
      buffers.add(direct(8, order));
      buffers.add(ByteBuffer.allocate(8 * Float.BYTES).order(order).asFloatBuffer());
    }
    buffers.add(FloatBuffer.wrap(new float[10], 1, 9).slice());
    try (Worker worker = Worker.join(options("a", 3))) {
      worker.initialize(new float[3], TIMEOUT);
      float sum = 0;
      for (FloatBuffer update : buffers) {
        for (FloatBuffer other : buffers) {
          final FloatBuffer center = other == update ? direct(8, ByteOrder.nativeOrder()) : other;
          for (int i = 0; i < 8; i++) {
            update.put(i, i);
            center.put(i, -1);
          }
          worker.exchange(update.limit(7).position(4), center.limit(5).position(2), TIMEOUT);
          sum++;
          assertEquals(4, update.position());
          assertEquals(2, center.position());
          update.clear();
          center.clear();
          final float[] all = new float[8];
          center.get(0, all);
          assertArrayEquals(new float[] {-1, -1, 4 * sum, 5 * sum, 6 * sum, -1, -1, -1}, all);
        }
      }
      assertEquals(
          ParamdException.Code.INVALID_ARGUMENT,
          codeOf(() -> worker.pull(FloatBuffer.wrap(new float[3]).asReadOnlyBuffer(), TIMEOUT)));
    }
  }

  @Test
  void aWorkersOwnBuffersLiveOnAfterIt() {
    final FloatBuffer update;
    final FloatBuffer center;
    try (Worker worker = Worker.join(options("a", 1000).transport("shm"))) {
      worker.initialize(new float[1000], TIMEOUT);
      update = worker.commitBuffer();
      center = worker.centerBuffer();
      for (int i = 0; i < 1000; i++) {
        update.put(i, i);
      }
      worker.exchange(update, center, TIMEOUT);
      assertEquals(999, center.get(999));
    }
    update.put(0, 1);
    assertEquals(999, center.get(999));
    try (Admin admin = Admin.connect(server.address(), TIMEOUT)) {
      assertEquals(0, admin.model(model).liveWorkers());
    }
  }

  @Test
  void buffersCanBeGivenBackAtOnce() {
    final Worker worker = Worker.join(options("a", 1000).transport("shm"));
    worker.initialize(new float[1000], TIMEOUT);
    final FloatBuffer update = worker.commitBuffer();
    final FloatBuffer center = worker.centerBuffer();
    update.put(7, 7);
    worker.exchange(update, center, TIMEOUT);
    final long before = Lingering.bytes();
    worker.close();
    assertEquals(7, center.get(7));
    assertEquals(before + 2 * 1000 * Float.BYTES, Lingering.bytes());
    worker.closeWithBuffers();
    worker.closeWithBuffers();
    assertEquals(0, center.get(7));
    assertEquals(0, update.get(7));
    assertEquals(before, Lingering.bytes());
  }

  @Test
  void callsOnThreadsOfTheirOwnCompleteAndCanBeCancelled() throws Exception {
    try (Worker worker = Worker.joinAsync(options("a", 3)).get()) {
      final FloatBuffer center = direct(3, ByteOrder.nativeOrder());
      final CompletableFuture<Exchanged> waiting = worker.pullAsync(center, null);
      Await.until("the pull waits", () -> Thread.getAllStackTraces().keySet().stream().anyMatch(WorkerTest::pulls));
      assertTrue(waiting.cancel(true));
      Await.until("it ends", () -> Thread.getAllStackTraces().keySet().stream().noneMatch(WorkerTest::pulls));
      worker.initialize(new float[3], TIMEOUT);
      assertEquals(1, worker.commitAsync(FloatBuffer.wrap(new float[] {1, 2, 3}), TIMEOUT).get().version());
      assertEquals(2, worker.exchangeAsync(FloatBuffer.wrap(new float[3]), center, TIMEOUT).get().version());
      assertEquals(3, center.get(2));
      final ExecutionException thrown =
          assertThrows(
              ExecutionException.class, () -> worker.commitAsync(FloatBuffer.wrap(new float[4]), TIMEOUT).get());
      assertInstanceOf(ParamdException.class, thrown.getCause());
    }
    final CompletableFuture<Worker> never =
        Worker.joinAsync(new WorkerOptions("127.0.0.1:1", "m", "a").joinTimeout(null));
    never.cancel(true);
    assertTrue(never.isCancelled());
  }

  private static boolean pulls(Thread thread) {
    return Arrays.stream(thread.getStackTrace()).anyMatch(frame -> frame.getMethodName().equals("workerPull"));
  }

  @Test
  void aLoggerIsToldOfWhatWorkersWaitFor() {
    final CollectedLog log = new CollectedLog();
    codeOf(
        () ->
            Worker.join(
                new WorkerOptions("127.0.0.1:1", "m", "a").joinTimeout(Duration.ofMillis(200)).log(log)));
    assertTrue(
        log.lines().stream().anyMatch(line -> line.startsWith("INFO worker 'a' of 'm': join: waiting for the server")),
        () -> log.lines().toString());
  }

  @Test
  void aFarewellToADaemonThatIsGoneTakesNoLongerThanItMay() {
    final ParamdServer own = ParamdServer.start(new ServerOptions());
    final ModelSpec spec = new ModelSpec(model).tensor("w", 3).algorithm("downpour");
    final WorkerOptions options = new WorkerOptions(own.address(), model, "a").create(spec);
    try (Worker patient = Worker.join(options);
        Worker hasty =
            Worker.join(
                new WorkerOptions(own.address(), model, "b").rpcTimeout(Duration.ofMillis(300)))) {
      ProcessHandle.of(own.pid()).orElseThrow().destroyForcibly();
      own.onExit().join();
      final long begin = System.nanoTime();
      assertThrows(ParamdException.class, hasty::leave);
      assertThrows(ParamdException.class, () -> patient.leave(Duration.ofMillis(300)));
      assertTrue(System.nanoTime() - begin < 5e9);
    }
  }

  @Test
  void errorsHaveCodesAndSayWhatToDo() {
    assertEquals(
        ParamdException.Code.NOT_FOUND, codeOf(() -> Worker.join(new WorkerOptions(server.address(), "no ☃", "a"))));
    assertEquals(ParamdException.Code.INVALID_ARGUMENT, codeOf(() -> Worker.join(options("a", 3).transport("pigeon"))));
    assertEquals(ParamdException.Code.INVALID_ARGUMENT, codeOf(() -> Worker.join(options("\0", 3))));
    final ParamdException negative =
        assertThrows(ParamdException.class, () -> Worker.join(options("a", 3).incarnation(-1)));
    assertTrue(negative.getMessage().contains("incarnation '-1'"), negative.getMessage());
    assertEquals(
        ParamdException.Code.DEADLINE_EXCEEDED,
        codeOf(() -> Worker.join(new WorkerOptions("127.0.0.1:1", "m", "a").joinTimeout(Duration.ofMillis(50)))));
    try (Worker worker = Worker.join(options("a", 3).incarnation(7))) {
      assertEquals(7, worker.incarnation());
      assertEquals(
          ParamdException.Code.DEADLINE_EXCEEDED, codeOf(() -> worker.pull(new float[3], Duration.ofMillis(50))));
      worker.initialize(new float[3], TIMEOUT);
      assertEquals(
          ParamdException.Code.ALREADY_EXISTS, codeOf(() -> worker.initialize(new float[] {1, 0, 0}, TIMEOUT)));
      final ParamdException length =
          assertThrows(ParamdException.class, () -> worker.commit(new float[4], TIMEOUT));
      assertEquals(ParamdException.Code.INVALID_ARGUMENT, length.code());
      assertTrue(length.getMessage().contains("has 3 parameters"), length.getMessage());
      assertEquals(
          ParamdException.Code.INVALID_ARGUMENT, codeOf(() -> worker.commit(new float[] {1, Float.NaN, 1}, TIMEOUT)));
      try (Worker newer = Worker.join(options("a", 3).incarnation(8))) {
        assertEquals(ParamdException.Code.ABORTED, codeOf(() -> worker.pull(new float[3], TIMEOUT)));
        newer.leave("it failed\0, \ud800");
        newer.leave();
        assertEquals(ParamdException.Code.FAILED_PRECONDITION, codeOf(() -> newer.pull(new float[3], TIMEOUT)));
      }
    }
  }

  @Test
  void aClosedWorkerThrows() {
    final Worker worker = Worker.join(options("a", 3));
    worker.close();
    worker.close();
    assertThrows(IllegalStateException.class, () -> worker.pull(new float[3], TIMEOUT));
    assertThrows(IllegalStateException.class, worker::commitBuffer);
    assertThrows(IllegalStateException.class, worker::transport);
    assertThrows(IllegalStateException.class, worker::cancel);
    assertThrows(IllegalStateException.class, worker::leave);
    assertEquals(3, worker.parameters());
  }

  private record Ended(Throwable thrown, boolean interrupted) {}

  /** Runs {@code call} on a thread until it blocks in native code, does {@code act}, and says how the call ended. */
  private static Ended whileBlocked(Runnable call, Consumer<Thread> act) throws InterruptedException {
    final AtomicReference<Ended> ended = new AtomicReference<>();
    final Thread thread =
        new Thread(
            () -> {
              Throwable thrown = null;
              try {
                call.run();
              } catch (Throwable e) {
                thrown = e;
              }
              ended.set(new Ended(thrown, Thread.currentThread().isInterrupted()));
            });
    thread.start();
    Await.until(
        "the call blocks",
        () ->
            Arrays.stream(thread.getStackTrace())
                .anyMatch(frame -> frame.getClassName().equals("paramd.Native") && frame.isNativeMethod()));
    act.accept(thread);
    Await.until("the call ends", () -> ended.get() != null);
    return ended.get();
  }

  private static void assertCancelled(boolean interrupted, Ended ended) {
    assertEquals(ParamdException.Code.CANCELLED, assertInstanceOf(ParamdException.class, ended.thrown()).code());
    assertEquals(interrupted, ended.interrupted());
  }

  @ParameterizedTest
  @ValueSource(strings = {"grpc", "shm"})
  void anInterruptEndsAPullAndLeavesTheWorkerUsable(String transport) throws InterruptedException {
    try (Worker worker = Worker.join(options("a", 3).transport(transport))) {
      for (int i = 0; i < 3; i++) {
        assertCancelled(true, whileBlocked(() -> worker.pull(new float[3], null), Thread::interrupt));
      }
      worker.initialize(new float[] {1, 2, 3}, TIMEOUT);
      final float[] center = new float[3];
      Thread.currentThread().interrupt();
      assertEquals(ParamdException.Code.CANCELLED, codeOf(() -> worker.pull(center, null)));
      assertTrue(Thread.interrupted());
      worker.pull(center, TIMEOUT);
      assertArrayEquals(new float[] {1, 2, 3}, center);
      worker.cancel();
      assertEquals(ParamdException.Code.CANCELLED, codeOf(() -> worker.pull(center, TIMEOUT)));
    }
  }

  @Test
  void anInterruptEndsAJoin() throws InterruptedException {
    assertCancelled(
        true,
        whileBlocked(
            () -> Worker.join(new WorkerOptions("127.0.0.1:1", "m", "a").joinTimeout(null)), Thread::interrupt));
  }

  @ParameterizedTest
  @ValueSource(strings = {"grpc", "shm"})
  void aCloseEndsCallsUnderWay(String transport) throws InterruptedException {
    final Worker worker = Worker.join(options("a", 3).transport(transport));
    assertCancelled(false, whileBlocked(() -> worker.pull(new float[3], null), thread -> worker.close()));
    try (Admin admin = Admin.connect(server.address(), TIMEOUT)) {
      assertEquals(0, admin.model(model).liveWorkers());
    }
  }

  @Test
  void closingInTheMiddleOfExchangesIsSafe() throws InterruptedException {
    for (int round = 0; round < 20; round++) {
      final Worker worker = Worker.join(options("a" + round, 10_000));
      worker.initialize(new float[10_000], TIMEOUT);
      final List<Thread> threads = new ArrayList<>();
      final List<Throwable> unexpected = new ArrayList<>();
      for (int i = 0; i < 3; i++) {
        final Thread thread =
            new Thread(
                () -> {
                  final float[] floats = new float[10_000];
                  try {
                    while (true) {
                      worker.commit(floats, TIMEOUT);
                    }
                  } catch (IllegalStateException e) {
                    // Closed.
                  } catch (ParamdException e) {
                    if (e.code() != ParamdException.Code.CANCELLED) {
                      synchronized (unexpected) {
                        unexpected.add(e);
                      }
                    }
                  }
                });
        thread.start();
        threads.add(thread);
      }
      try (Admin admin = Admin.connect(server.address(), TIMEOUT)) {
        final long before = admin.model(model).version();
        Await.until("exchanges go on", () -> admin.model(model).version() > before + 3);
      }
      worker.close();
      for (Thread thread : threads) {
        thread.join();
      }
      assertEquals(List.of(), unexpected);
    }
  }
}
