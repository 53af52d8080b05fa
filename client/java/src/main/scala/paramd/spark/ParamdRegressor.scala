package paramd.spark

import org.apache.spark.ml.Estimator
import org.apache.spark.ml.linalg.SQLDataTypes
import org.apache.spark.ml.param.{ParamMap, StringArrayParam}
import org.apache.spark.ml.param.shared.{HasFeaturesCol, HasLabelCol, HasPredictionCol}
import org.apache.spark.ml.util.{DefaultParamsReadable, Identifiable, MLWriter}
import org.apache.spark.sql.Dataset
import org.apache.spark.sql.types.{DoubleType, NumericType, StructType}

/** Columns of a regression. */
private[spark] trait ParamdRegressionParams extends HasFeaturesCol with HasLabelCol with HasPredictionCol {

  final val labelCols: StringArrayParam = new StringArrayParam(
    this,
    "labelCols",
    "columns of several outputs at once, whose predictions are a vector in this order; none: labelCol alone"
  )
  final def getLabelCols: Array[String] = $(labelCols)

  setDefault(labelCols -> Array.empty[String])

  private[spark] def labels: Seq[String] = if ($(labelCols).isEmpty) Seq($(labelCol)) else $(labelCols).toSeq

  private[spark] def predictedSchema(schema: StructType): StructType = {
    val features = schema($(featuresCol))
    require(
      features.dataType == SQLDataTypes.VectorType,
      s"column ${features.name} is of type ${features.dataType.simpleString}, but features are vectors: VectorAssembler makes such"
    )
    require(!schema.fieldNames.contains($(predictionCol)), s"there is a column ${$(predictionCol)} already: set another predictionCol")
    schema.add($(predictionCol), if ($(labelCols).isEmpty) DoubleType else SQLDataTypes.VectorType, nullable = false)
  }
}

/** Trains a network that tells one number a row, or several; see [[ParamdEstimator]]. Its loss is half the squared error. */
final class ParamdRegressor(override val uid: String)
    extends Estimator[ParamdRegressionModel]
    with ParamdRegressionParams
    with ParamdEstimator[ParamdRegressor] {

  def this() = this(Identifiable.randomUID("paramd"))

  def setFeaturesCol(value: String): this.type = set(featuresCol, value)
  def setLabelCol(value: String): this.type = set(labelCol, value)
  def setLabelCols(value: Array[String]): this.type = set(labelCols, value)
  def setPredictionCol(value: String): this.type = set(predictionCol, value)

  /** Training goes on from its weights, with all numbers scaled as they were for it. Not saved with the estimator. */
  def setInitialModel(model: ParamdRegressionModel): ParamdRegressor = setInitial(Some(model))

  // Python finds what a class itself declares.
  override def write: MLWriter = super.write

  override def copy(extra: ParamMap): ParamdRegressor = defaultCopy[ParamdRegressor](extra).setInitial(initialModel)

  override def fit(dataset: Dataset[_]): ParamdRegressionModel = {
    transformSchema(dataset.schema)
    val (network, summary) = fitted(dataset, labels, FitSpec.Squared, None)
    copyValues(new ParamdRegressionModel(uid, network, Some(summary)).setParent(this))
  }

  override def transformSchema(schema: StructType): StructType = {
    for (label <- labels) {
      val field = schema(label)
      require(field.dataType.isInstanceOf[NumericType], s"column $label is of type ${field.dataType.simpleString}, but labels are numbers")
    }
    predictedSchema(schema)
  }
}

object ParamdRegressor extends DefaultParamsReadable[ParamdRegressor] {
  override def load(path: String): ParamdRegressor = super.load(path)
}
