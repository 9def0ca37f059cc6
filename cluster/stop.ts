import { stopProcess } from "./processes.ts";
import { type Kind, type PartState, partsOf, runningOf, type State, writeState } from "./state.ts";

/** How each kind is asked to end, and for how long it is waited for before it is killed. */
const manner: Record<Kind, { signal: NodeJS.Signals; patienceMs: number }> = {
  // A drain takes SVC_DRAIN_MS at most for what is open, and a moment for the rest.
  node: { signal: "SIGTERM", patienceMs: 20_000 },
  nats: { signal: "SIGTERM", patienceMs: 15_000 },
  // Fast shutdown: open transactions are rolled back, then a checkpoint.
  postgres: { signal: "SIGINT", patienceMs: 60_000 },
};

async function stopPart(state: State, part: PartState): Promise<void> {
  const mark = runningOf(part);
  if (!mark) return;
  const { signal, patienceMs } = manner[part.kind];
  const { SVC_DRAIN_MS = 0, SVC_DRAIN_NOTICE_MS = 0 } = state.settings;
  const drainMs = part.kind === "node" ? Number(SVC_DRAIN_MS) + Number(SVC_DRAIN_NOTICE_MS) : 0;
  const outcome = await stopProcess(mark, signal, patienceMs + drainMs);
  const how =
    outcome === "killed"
      ? `did not end within ${(patienceMs + drainMs) / 1_000} s and was killed`
      : "stopped";
  console.log(`${part.name} (process ${mark.pid}) ${how}`);
}

/** Stops those of the parts that run: nodes first, together, then NATS, then PostgreSQL. */
export async function stopParts(state: State, names: readonly string[]): Promise<void> {
  for (const kind of ["node", "nats", "postgres"] as const) {
    const parts = partsOf(state, kind).filter(({ name }) => names.includes(name));
    await Promise.all(parts.map((part) => stopPart(state, part)));
    for (const part of parts) delete part.process;
    writeState(state);
  }
}
