package paramd;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.reflect.Executable;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Modifier;
import java.lang.reflect.Parameter;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** What happens to arguments that can't be, and what objects say of themselves. */
@Timeout(120)
class ArgumentsTest extends ServerTest {
  // Where null is a value: no timeout, no error, left out, no cause.
  private static final Set<String> NULLABLE =
      Set.of(
          "ModelSpec.algorithm",
          "ModelSpec.consistency",
          "Worker.leave",
          "ParamdException",
          "TrainOptions.exchangeTimeout",
          "WindowOptions.exchangeTimeout",
          "WorkerOptions.joinTimeout",
          "WorkerOptions.rpcTimeout");

  private static FloatBuffer floats(int count) {
    return ByteBuffer.allocateDirect(count * Float.BYTES).order(ByteOrder.nativeOrder()).asFloatBuffer();
  }

  /** Something that is no null, of a parameter's type. */
  private static Object some(Class<?> type) {
    if (type == int.class) {
      return 1;
    } else if (type == long.class) {
      return 1L;
    } else if (type == double.class) {
      return 0.1;
    } else if (type == boolean.class) {
      return false;
    } else if (type == String.class) {
      return "m";
    } else if (type == Duration.class) {
      return Duration.ofSeconds(1);
    } else if (type == Path.class) {
      return Path.of("/nowhere");
    } else if (type == FloatBuffer.class) {
      return floats(1);
    } else if (type == List.class) {
      return List.of("127.0.0.1");
    } else if (type == Consumer.class) {
      return (Consumer<String>) line -> {};
    } else if (type == System.Logger.class) {
      return System.getLogger("test");
    } else if (type == Security.class) {
      return new Security();
    } else if (type == ModelSpec.class) {
      return new ModelSpec("m");
    } else if (type == WorkerOptions.class) {
      return new WorkerOptions("127.0.0.1:1", "m", "a").joinTimeout(Duration.ofMillis(1));
    } else if (type == TrainOptions.class) {
      return new TrainOptions();
    } else if (type == WindowOptions.class) {
      return new WindowOptions();
    } else if (type == ServerOptions.class) {
      return new ServerOptions();
    } else if (type == MlpOptions.class) {
      return new MlpOptions(1, 1);
    } else if (type == JobSecrets.class) {
      return JobSecrets.make(List.of("127.0.0.1"));
    } else if (type == Batch.class) {
      return new Batch();
    } else if (type == Trainable.class) {
      return new Mlp(new long[] {1, 1}, "sgd", 0.1, 1);
    } else if (type == BatchSource.class) {
      return new KnownSteps.Batches();
    } else if (type == float[].class) {
      return new float[1];
    } else if (type == long[].class) {
      return new long[] {1, 1};
    } else if (type == double[].class) {
      return new double[1];
    } else if (type == String[].class) {
      return new String[] {"m"};
    } else if (type == Object[].class) {
      return new Object[] {"m"};
    } else if (type == FloatBuffer[].class) {
      return new FloatBuffer[] {floats(1)};
    }
    throw new IllegalArgumentException("no value of " + type + ": add one");
  }

  /** What {@code method} throws when its parameter {@code index} is null. */
  private static Throwable thrownForNull(Executable method, Object target, int index) throws Exception {
    final Parameter[] parameters = method.getParameters();
    final Object[] arguments = new Object[parameters.length];
    for (int i = 0; i < arguments.length; i++) {
      arguments[i] = i == index ? null : some(parameters[i].getType());
    }
    try {
      final Object result =
          method instanceof java.lang.reflect.Method called
              ? called.invoke(target, arguments)
              : ((java.lang.reflect.Constructor<?>) method).newInstance(arguments);
      if (result instanceof CompletableFuture<?> future) {
        future.join();
      }
      return null;
    } catch (InvocationTargetException e) {
      return e.getCause();
    } catch (CompletionException e) {
      return e.getCause();
    }
  }

  @Test
  void whatMustNotBeNullIsNamedIfItIs() throws Exception {
    final ModelSpec spec = new ModelSpec("m").tensor("w", 1).algorithm("downpour");
    try (Worker worker = Worker.join(new WorkerOptions(server.address(), "m", "a").create(spec));
        Window window = worker.window(new WindowOptions(), floats(1));
        Admin admin = Admin.connect(server.address(), Await.TIMEOUT);
        Mlp mlp = new Mlp(new long[] {1, 1}, "sgd", 0.1, 1)) {
      final List<Object> targets =
          List.of(
              worker, window, admin, mlp, spec, new Batch(), new Security(), new ServerOptions(), new TrainOptions(),
              new WindowOptions(), new MlpOptions(1, 1), new WorkerOptions("s", "m", "w"), server, new ModelSpec.Tensor("w", new long[0]),
              new ParamdException(ParamdException.Code.UNKNOWN, "m"), JobSecrets.make(List.of("h")));
      final List<Executable> methods = new ArrayList<>();
      for (Object target : targets) {
        methods.addAll(List.of(target.getClass().getConstructors()));
        methods.addAll(List.of(target.getClass().getDeclaredMethods()));
      }
      methods.addAll(List.of(Training.class.getDeclaredMethods()));
      methods.addAll(List.of(ModelFile.class.getDeclaredMethods()));
      final List<String> wrong = new ArrayList<>();
      for (Executable method : methods) {
        final Class<?> type = method.getDeclaringClass();
        final Object target = targets.stream().filter(type::isInstance).findFirst().orElse(null);
        final boolean callable = target != null || Modifier.isStatic(method.getModifiers());
        final String name = type.getSimpleName() + (method.getName().contains(".") ? "" : "." + method.getName());
        if (!Modifier.isPublic(method.getModifiers()) || !callable || method.getName().equals("equals")
            || method.isSynthetic()) {
          continue;
        }
        for (int i = 0; i < method.getParameterCount(); i++) {
          final Class<?> parameter = method.getParameterTypes()[i];
          if (parameter.isPrimitive() || NULLABLE.contains(name) || parameter == Duration.class) {
            continue;
          }
          final Throwable thrown = thrownForNull(method, target, i);
          if (!(thrown instanceof NullPointerException) || !String.valueOf(thrown.getMessage()).endsWith(" is null")
              || thrown.getMessage().contains("because")) {
            wrong.add(method + ", parameter " + i + ": " + thrown);
          }
        }
      }
      assertEquals(List.of(), wrong);
    }
  }

  private static void refused(String word, Runnable call) {
    final ParamdException thrown = assertThrows(ParamdException.class, call::run);
    assertEquals(ParamdException.Code.INVALID_ARGUMENT, thrown.code());
    assertTrue(thrown.getMessage().contains(word), thrown.getMessage());
    assertFalse(thrown.getMessage().contains("::") || thrown.getMessage().contains("--"), thrown.getMessage());
  }

  @Test
  void numbersThatCantBeAreRefusedWhereTheyAreSet() {
    refused("epochs is 0", () -> new TrainOptions().epochs(0));
    refused("communicationWindow is -1", () -> new TrainOptions().communicationWindow(-1));
    refused("communicationWindow is 0", () -> new WindowOptions().communicationWindow(0));
    refused("maxPrefetch is -3", () -> new TrainOptions().maxPrefetch(-3));
    for (double rate : new double[] {0, -1, Double.NaN, Double.POSITIVE_INFINITY}) {
      refused("learningRate is", () -> new TrainOptions().learningRate(rate));
    }
    refused("targetLoss is NaN", () -> new TrainOptions().targetLoss(Double.NaN));
    refused("port -1", () -> new ServerOptions().port(-1));
    refused("rpcTimeout is PT0S", () -> new WorkerOptions("s", "m", "w").rpcTimeout(Duration.ZERO));
    refused("-1 rows", () -> new Batch().resize(-1, 0, 0));
    refused("-2 features", () -> new Batch().resize(1, -2, 0));
    refused("smaller batches", () -> new Batch().resize(1, Integer.MAX_VALUE, 0));
    refused("'n'", () -> new WorkerOptions("s", "m", "w").create(new ModelSpec("n")));
    refused("name is empty", () -> Worker.join(new WorkerOptions(server.address(), "", "w")));
    refused(
        "wire f32",
        () -> Worker.join(new WorkerOptions(server.address(), "m", "w").transport("shm").wire("bf16")));
  }

  @Test
  void aModelThatNoBufferHoldsIsRefusedAndNobodyIsRegistered() {
    try (Admin admin = Admin.connect(server.address(), Await.TIMEOUT)) {
      final ModelSpec large = new ModelSpec("large").tensor("w", 1L << 31, 4).algorithm("downpour");
      final WorkerOptions options = new WorkerOptions(server.address(), "large", "a");
      refused("'w'", () -> Worker.join(options.create(large)));
      assertEquals(
          ParamdException.Code.NOT_FOUND,
          assertThrows(ParamdException.class, () -> admin.model("large")).code());
      admin.createModel(large);
      final ParamdException joined =
          assertThrows(
              ParamdException.class, () -> Worker.join(new WorkerOptions(server.address(), "large", "a")));
      assertEquals(ParamdException.Code.OUT_OF_RANGE, joined.code());
      assertTrue(joined.getMessage().contains("8589934592"), joined.getMessage());
      assertEquals(0, admin.model("large").liveWorkers());
      admin.deleteModel("large");
    }
  }

  @Test
  void objectsSayWhatTheyAreAndNoSecrets() {
    final ModelSpec spec = new ModelSpec("m").tensor("w", 2, 3).algorithm("adag").hyperparameter("rho", 0.5);
    assertEquals("ModelSpec[m: [w[2, 3]], algorithm=adag, consistency=null, hyperparameters={rho=0.5}]", spec.toString());
    final String options =
        new WorkerOptions("127.0.0.1:1", "m", "w").security(new Security().token("hush")).create(spec).toString();
    assertTrue(options.contains("server=127.0.0.1:1") && options.contains("adag"), options);
    assertFalse(options.contains("hush"), options);
    final JobSecrets secrets = JobSecrets.make(List.of("h"));
    for (Object object : List.of(secrets, secrets.security(true), new ServerOptions().secrets(secrets, true))) {
      final String text = object.toString();
      assertTrue(text.startsWith(object.getClass().getSimpleName()), text);
      assertFalse(text.contains("BEGIN") || text.contains(secrets.token()), text);
    }
    assertTrue(new TrainOptions().toString().contains("epochs=1"));
    assertTrue(new WindowOptions().metricNames("rmse").toString().contains("[rmse]"));
    assertTrue(new History.Record(1, 0.5, 2, 3, new double[] {4}).toString().contains("metrics=[4.0]"));
    assertTrue(server.toString().contains(server.address()), server.toString());
    try (Mlp mlp = new Mlp(new long[] {2, 3}, "sgd", 0.1, 1)) {
      assertEquals("Mlp[2, 3]", mlp.toString());
    }
  }
}
