package paramd.spark

import java.net.InetAddress

import org.apache.spark.SparkContext

import paramd.{ParamdServer, ServerOptions}

/** The daemon that a fit talks to. */
private[spark] final class Daemon(val address: String, started: Option[ParamdServer]) extends AutoCloseable {

  /** Ends it, if this object started it. */
  override def close(): Unit = started.foreach(_.close())
}

private[spark] object Daemon {

  /** @param server one that runs; empty: starts one on this host, where the executors reach the driver */
  def apply(context: SparkContext, server: String, insecure: Boolean): Daemon = {
    if (server.nonEmpty) return new Daemon(server, None)
    val advertised = if (context.isLocal) "127.0.0.1" else context.getConf.get("spark.driver.host")
    val listen = if (context.isLocal) advertised else context.getConf.get("spark.driver.bindAddress", advertised)
    if (!insecure && !InetAddress.getByName(listen).isLoopbackAddress) {
      throw new IllegalStateException(
        s"the fit's daemon would listen on $listen, where it has no encryption and lets in anyone who reaches its port: " +
          "setInsecure(true) if you trust that network, or setServer to use a daemon of your own"
      )
    }
    val started = ParamdServer.start(new ServerOptions().host(listen).advertisedHost(advertised).insecure(insecure))
    new Daemon(started.address, Some(started))
  }
}
