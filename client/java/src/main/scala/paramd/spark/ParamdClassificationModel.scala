package paramd.spark

import org.apache.hadoop.fs.Path
import org.apache.spark.ml.classification.ProbabilisticClassificationModel
import org.apache.spark.ml.linalg.{DenseVector, Vector, Vectors}
import org.apache.spark.ml.param.ParamMap
import org.apache.spark.ml.util.{DefaultParamsReadable, DefaultParamsWritable, MLReadable, MLReader, MLWriter}

/** A trained network. Applying it needs neither a daemon nor native code. */
final class ParamdClassificationModel private (
    override val uid: String,
    network: DenseNetwork,
    @transient trainingSummary: Option[ParamdTrainingSummary] // not for the tasks that apply the model
) extends ProbabilisticClassificationModel[Vector, ParamdClassificationModel]
    with ParamdParams
    with DefaultParamsWritable {

  private[spark] def this(uid: String, network: DenseNetwork, summary: ParamdTrainingSummary) =
    this(uid, network, Some(summary))

  /** Without a network, which [[ParamdClassificationModel.read]] adds. */
  private[spark] def this(uid: String) = this(uid, null, None)

  /** Units of each layer, from input to output. */
  def layers: Array[Int] = network.layers.clone()

  /** Each layer's kernel [inputs, outputs], row-major, then its bias [outputs]. */
  def weights: Vector = Vectors.dense(network.parameters.map(_.toDouble))

  override def numFeatures: Int = network.features
  override def numClasses: Int = network.classes

  def hasSummary: Boolean = trainingSummary.isDefined

  /** Of the fit that made this model; a model that was loaded has none. */
  def summary: ParamdTrainingSummary = trainingSummary.getOrElse(
    throw new IllegalStateException(s"model $uid has no training summary: it was loaded. Only a model that fit returned has one")
  )

  override def predictRaw(features: Vector): Vector = Vectors.dense(network.logits(features).map(_.toDouble))

  override protected def raw2probabilityInPlace(rawPrediction: Vector): Vector = rawPrediction match {
    case vector: DenseVector =>
      val values = vector.values
      val largest = values.max
      var sum = 0.0
      for (i <- values.indices) {
        values(i) = math.exp(values(i) - largest)
        sum += values(i)
      }
      for (i <- values.indices) values(i) /= sum
      vector
    case other => throw new IllegalArgumentException(s"raw predictions of model $uid are dense, this one is $other")
  }

  override def copy(extra: ParamMap): ParamdClassificationModel =
    copyValues(new ParamdClassificationModel(uid, network, trainingSummary), extra).setParent(parent)

  private def withNetwork(network: DenseNetwork): ParamdClassificationModel =
    copyValues(new ParamdClassificationModel(uid, network, None))

  override def write: MLWriter = {
    val parameters = super.write
    new MLWriter {
      override protected def saveImpl(path: String): Unit = {
        parameters.session(sparkSession).save(path)
        val session = sparkSession
        import session.implicits._
        val pieces = network.parameters.grouped(ParamdClassificationModel.PieceLength).zipWithIndex.map {
          case (piece, index) => ParamdClassificationModel.Piece(index, network.layers, piece)
        }.toSeq
        // A task each: Spark limits the size of a task.
        val rows = session.sparkContext.parallelize(pieces, pieces.length).toDS()
        rows.write.parquet(ParamdClassificationModel.dataPath(path))
      }
    }
  }

  override def toString: String =
    s"ParamdClassificationModel: uid=$uid, layers=${Option(network).map(_.layers.mkString("-")).getOrElse("none")}"
}

object ParamdClassificationModel extends MLReadable[ParamdClassificationModel] {
  private val PieceLength = 1 << 22

  /** A row of the saved Parquet data: the parameters from index × PieceLength on. */
  private[spark] final case class Piece(index: Int, layers: Array[Int], parameters: Array[Float])

  private object Shell extends DefaultParamsReadable[ParamdClassificationModel]

  private def dataPath(path: String) = new Path(path, "data").toString

  override def read: MLReader[ParamdClassificationModel] = new MLReader[ParamdClassificationModel] {
    override def load(path: String): ParamdClassificationModel = {
      val session = sparkSession
      import session.implicits._
      val pieces = session.read.parquet(dataPath(path)).as[Piece].collect().sortBy(_.index)
      if (pieces.isEmpty) throw new IllegalStateException(s"${dataPath(path)} holds no weights: save the model again")
      val network = new DenseNetwork(pieces.head.layers, Array.concat(pieces.map(_.parameters).toSeq: _*))
      Shell.read.session(session).load(path).withNetwork(network)
    }
  }

  override def load(path: String): ParamdClassificationModel = super.load(path)
}
