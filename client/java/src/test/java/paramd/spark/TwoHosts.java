package paramd.spark;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.SparkConf;
import org.apache.spark.deploy.master.Master;
import org.apache.spark.deploy.worker.Worker;
import org.apache.spark.rpc.RpcEnv;
import scala.None$;
import scala.Option;

/**
 * A standalone cluster whose two Spark workers, of one core each, are on different hosts, as far as Spark can tell: it
 * never runs a speculative attempt on the host of the first one.
 */
final class TwoHosts implements AutoCloseable {
  private final List<RpcEnv> started = new ArrayList<>();
  private final String master;

  TwoHosts() {
    final SparkConf conf = new SparkConf().set("spark.master.rest.enabled", "false");
    final RpcEnv environment = Master.startRpcEnvAndEndpoint("127.0.0.1", 0, 0, conf)._1();
    started.add(environment);
    master = "spark://127.0.0.1:" + environment.address().port();
    for (int i = 1; i <= 2; ++i) {
      started.add(
          Worker.startRpcEnvAndEndpoint(
              "127.0.0." + i, 0, 0, 1, 1024, new String[] {master}, null, Option.apply(i), conf, noResources()));
    }
  }

  String master() {
    return master;
  }

  @Override
  public void close() {
    for (int i = started.size(); i-- > 0; ) {
      started.get(i).shutdown();
      started.get(i).awaitTermination();
    }
  }

  @SuppressWarnings("unchecked")
  private static Option<String> noResources() {
    return (Option<String>) (Option<?>) None$.MODULE$;
  }
}
