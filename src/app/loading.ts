/** The largest pieces of what `load` ends with, low to high. */
const steps: readonly (() => Promise<unknown>)[] = [
  () => import("../kit/wkt.ts"),
  () => import("../edge/services.ts"),
  () => import("../edge/http.ts"),
  () => import("./log.ts"),
  () => import("./runs.ts"),
  () => import("./workers.ts"),
  () => import("./engine.ts"),
  () => import("./realtime.ts"),
  () => import("./access.ts"),
  () => import("./projections.ts"),
  () => import("./integrations.ts"),
];

/**
 * Loads what stands on the database while that is opened. In steps, because answers of the database are not
 * processed while a module loads.
 */
export async function loadParts() {
  for (const step of steps) {
    await step();
    await new Promise((heard) => setImmediate(heard));
  }
  const [{ openParts }, { listen }, { probes }] = await Promise.all([
    import("./parts.ts"),
    import("./listen.ts"),
    import("../edge/probes.ts"),
  ]);
  return { openParts, listen, probes };
}
