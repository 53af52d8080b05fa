package paramd.spark

import org.apache.hadoop.fs.Path
import org.apache.spark.ml.util.{MLReader, MLWriter}
import org.apache.spark.sql.SparkSession

/** A network and how it came to be, in Parquet files beside a model's parameters. */
private[spark] object SavedNetwork {
  private val PieceLength = 1 << 22

  /** The parameters from index × PieceLength on. */
  final case class Piece(index: Int, layers: Array[Int], parameters: Array[Float])
  final case class Scalings(input: Scaling, output: Scaling)

  /** Of a model whose parameters `parameters` writes. */
  final class Writer(parameters: MLWriter, network: DenseNetwork, summary: Option[ParamdTrainingSummary]) extends MLWriter {
    override protected def saveImpl(path: String): Unit = {
      val session = sparkSession
      import session.implicits._
      parameters.session(session).save(path)
      val pieces = network.parameters.grouped(PieceLength).zipWithIndex.map { case (piece, index) =>
        Piece(index, network.layers, piece)
      }.toSeq
      // A task each: Spark limits the size of a task.
      session.sparkContext.parallelize(pieces, pieces.length).toDS().write.parquet(folder(path, "data"))
      Seq(Scalings(network.input, network.output)).toDS().coalesce(1).write.parquet(folder(path, "scaling"))
      for (summary <- summary) Seq(summary.saved).toDS().coalesce(1).write.parquet(folder(path, "summary"))
    }
  }

  /** Gives what `make` makes of the parameters that `shell` reads, the network and the summary. */
  final class Reader[T](shell: MLReader[T], make: (T, DenseNetwork, Option[ParamdTrainingSummary]) => T) extends MLReader[T] {
    override def load(path: String): T = {
      val session = sparkSession
      make(shell.session(session).load(path), network(session, path), summary(session, path))
    }
  }

  private def network(session: SparkSession, path: String): DenseNetwork = {
    import session.implicits._
    val pieces = session.read.parquet(folder(path, "data")).as[Piece].collect().sortBy(_.index)
    if (pieces.isEmpty) throw new IllegalStateException(s"${folder(path, "data")} holds no weights: save the model again")
    val scalings = session.read.parquet(folder(path, "scaling")).as[Scalings].head()
    new DenseNetwork(pieces.head.layers, Array.concat(pieces.map(_.parameters).toSeq: _*), scalings.input, scalings.output)
  }

  private def summary(session: SparkSession, path: String): Option[ParamdTrainingSummary] = {
    import session.implicits._
    val saved = new Path(folder(path, "summary"))
    if (!saved.getFileSystem(session.sparkContext.hadoopConfiguration).exists(saved)) return None
    Some(session.read.parquet(saved.toString).as[ParamdTrainingSummary.Saved].head().summary)
  }

  private def folder(path: String, name: String) = new Path(path, name).toString
}
