import { mirrorLoop } from "../../src/app/outbox.ts";
import { presenceLoop } from "../../src/bus/nats.ts";
import type { LoopFacts } from "../../src/kit/loop.ts";
import { startTestServer } from "./server.ts";

/** Every background loop of the product, by name: those of a server that starts, and the two that need NATS. */
export async function allLoops(): Promise<LoopFacts[]> {
  const server = await startTestServer({ engine: "libsql" });
  try {
    return [...server.running.loops, presenceLoop, mirrorLoop].toSorted((a, b) =>
      a.name.localeCompare(b.name),
    );
  } finally {
    await server.stop();
  }
}
