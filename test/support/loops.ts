import { mirrorLoop } from "../../src/app/outbox.ts";
import { primaryLoop } from "../../src/app/primary.ts";
import { presenceLoop } from "../../src/bus/nats-presence.ts";
import type { LoopFacts } from "../../src/kit/loop.ts";
import { startTestServer } from "./server.ts";

/**
 * Every background loop of the product, by name: those of a server that starts, the two that need NATS, and the one that
 * needs PostgreSQL.
 */
export async function allLoops(): Promise<LoopFacts[]> {
  const server = await startTestServer({ engine: "libsql" });
  try {
    return [...server.running.loops, presenceLoop, mirrorLoop, primaryLoop].toSorted((a, b) =>
      a.name.localeCompare(b.name),
    );
  } finally {
    await server.stop();
  }
}
