package paramd;

import java.util.ArrayList;
import java.util.List;

/** Models as native code describes them. */
final class Models {
  private static final int TEXTS = 4;
  private static final int NUMBERS = 9;

  private Models() {}

  /** Reads, and frees, native code's {@code models}. */
  static List<ModelInfo> read(long models) {
    try {
      final List<ModelInfo> all = new ArrayList<>();
      for (long i = 0; i < Native.modelsCount(models); i++) {
        all.add(read(models, i));
      }
      return List.copyOf(all);
    } finally {
      Native.modelsFree(models);
    }
  }

  private static ModelInfo read(long models, long index) {
    final byte[][] texts = Native.modelsTexts(models, index);
    final double[] numbers = Native.modelsNumbers(models, index);
    final int hyperparameters = numbers.length - NUMBERS;
    final ModelSpec spec =
        new ModelSpec(Arguments.text(texts[0])).algorithm(leftOut(texts[1])).consistency(leftOut(texts[2]));
    for (int i = 0; i < hyperparameters; i++) {
      spec.hyperparameter(Arguments.text(texts[TEXTS + i]), numbers[NUMBERS + i]);
    }
    for (int i = 0; TEXTS + hyperparameters + i < texts.length; i++) {
      spec.tensor(
          Arguments.text(texts[TEXTS + hyperparameters + i]), Native.modelsTensorShape(models, index, i));
    }
    return new ModelInfo(
        spec,
        (long) numbers[0],
        (long) numbers[1],
        numbers[2] != 0,
        (long) numbers[3],
        (long) numbers[4],
        (long) numbers[5],
        (long) numbers[6],
        numbers[7],
        numbers[8],
        Arguments.text(texts[3]));
  }

  private static String leftOut(byte[] text) {
    return text.length == 0 ? null : Arguments.text(text);
  }
}
