package paramd.spark

import java.net.InetAddress

import org.apache.spark.SparkContext

import paramd.{JobSecrets, ParamdServer, Security, ServerOptions}

import scala.jdk.CollectionConverters._

/** The daemon that a fit talks to, and what opens it, on any host. */
private[spark] final class Daemon(val address: String, val security: Security, started: Option[ParamdServer])
    extends AutoCloseable {

  /** Ends it, if this object started it. */
  override def close(): Unit = started.foreach(_.close())
}

private[spark] object Daemon {

  /**
   * @param server one that runs; empty: starts one on this host, where the executors reach the driver. It lets in this
   *   fit and nobody else, and beyond loopback it speaks TLS, unless `insecure`.
   * @param security what opens `server`
   */
  def apply(context: SparkContext, server: String, security: => Security, insecure: Boolean): Daemon = {
    if (server.nonEmpty) return new Daemon(server, security.inlined(), None)
    val advertised = if (context.isLocal) "127.0.0.1" else context.getConf.get("spark.driver.host")
    val listen = if (context.isLocal) advertised else context.getConf.get("spark.driver.bindAddress", advertised)
    val options = new ServerOptions().host(listen).advertisedHost(advertised)
    if (insecure) {
      val started = ParamdServer.start(options.insecure(true))
      return new Daemon(started.address, Open, Some(started))
    }
    val secrets = JobSecrets.make(List(advertised.stripPrefix("[").stripSuffix("]")).asJava)
    val tls = !List(listen, advertised).forall(InetAddress.getByName(_).isLoopbackAddress)
    val started = ParamdServer.start(options.secrets(secrets, tls))
    new Daemon(started.address, secrets.security(tls), Some(started))
  }

  /** Of a daemon that knows no tokens, whatever the environment says. */
  private def Open = new Security().tlsCa("none").tlsCert("none").tlsKey("none").tokenFile("none")
}
