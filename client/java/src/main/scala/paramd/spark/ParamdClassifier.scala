package paramd.spark

import org.apache.spark.ml.attribute.{Attribute, BinaryAttribute, NominalAttribute}
import org.apache.spark.ml.classification.ProbabilisticClassifier
import org.apache.spark.ml.linalg.Vector
import org.apache.spark.ml.param.ParamMap
import org.apache.spark.ml.util.{DefaultParamsReadable, Identifiable, MLWriter}
import org.apache.spark.sql.Dataset

/** Trains a network that tells classes; see [[ParamdEstimator]]. */
final class ParamdClassifier(override val uid: String)
    extends ProbabilisticClassifier[Vector, ParamdClassifier, ParamdClassificationModel]
    with ParamdEstimator[ParamdClassifier] {

  def this() = this(Identifiable.randomUID("paramd"))

  /** Training goes on from its weights, with features scaled as they were for it. Not saved with the estimator. */
  def setInitialModel(model: ParamdClassificationModel): ParamdClassifier = setInitial(Some(model))

  // Python finds what a class itself declares.
  override def write: MLWriter = super.write

  override def copy(extra: ParamMap): ParamdClassifier = defaultCopy[ParamdClassifier](extra).setInitial(initialModel)

  override protected def train(dataset: Dataset[_]): ParamdClassificationModel = {
    val classes = Attribute.fromStructField(dataset.schema($(labelCol))) match {
      case nominal: NominalAttribute => nominal.getNumValues
      case _: BinaryAttribute => Some(2)
      case _ => None
    }
    val (network, summary) = fitted(dataset, Seq($(labelCol)), FitSpec.Softmax, classes)
    new ParamdClassificationModel(uid, network, Some(summary))
  }
}

object ParamdClassifier extends DefaultParamsReadable[ParamdClassifier] {
  override def load(path: String): ParamdClassifier = super.load(path)
}
