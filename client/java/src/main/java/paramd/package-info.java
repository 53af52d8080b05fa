/**
 * paramd's client for the JVM. Start with {@link paramd.Worker}, or {@link paramd.Training}; {@link paramd.Admin} is the
 * control plane, and {@link paramd.ParamdServer} a daemon of one's own. Native code travels in the jar.
 *
 * <p>What fails throws {@link paramd.ParamdException}, whose code is gRPC's. An argument that is null where it must not
 * be is a {@link java.lang.NullPointerException} with its name, an object that is closed an {@link
 * java.lang.IllegalStateException}. Floats are float32, vectors a model's tensors one after the other, each row-major.
 * A {@link java.time.Duration} that is null is no timeout.
 */
package paramd;
