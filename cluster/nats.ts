import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { startDetached, untilReady } from "./processes.ts";
import { findNatsServer } from "./programs.ts";
import { logOf, type PartState, partsOf, runningOf, type State, writeState } from "./state.ts";
import { until } from "./until.ts";

const conf = join(import.meta.dirname, "nats.conf");

export const natsStoreOf = (state: State, part: PartState): string => join(state.folder, part.name);

/** Ready to take clients; JetStream may still be electing. */
export async function startNatsPart(state: State, part: PartState): Promise<void> {
  const store = natsStoreOf(state, part);
  mkdirSync(store, { recursive: true, mode: 0o700 });
  const routes = partsOf(state, "nats").map(({ clusterPort }) => `nats://127.0.0.1:${clusterPort}`);
  const log = logOf(state, part);
  const command = [
    ...[findNatsServer(), "-c", conf, "--name", part.name, "--store_dir", store],
    ...["--port", String(part.port), "--http_port", String(part.monitorPort)],
    ...["--cluster", `nats://127.0.0.1:${part.clusterPort}`, "--routes", routes.join(",")],
  ];
  part.process = startDetached(command, { folder: state.folder, log });
  writeState(state);
  await untilReady(part.name, part.process, log, async () => {
    const answer = await fetch(`http://127.0.0.1:${part.monitorPort}/varz`).catch(() => undefined);
    return answer?.ok === true;
  });
}

/** Waits for JetStream to have a leader, when enough servers run for one. */
export async function untilNatsAgrees(state: State): Promise<void> {
  const all = partsOf(state, "nats");
  const running = all.filter(runningOf);
  if (running.length * 2 <= all.length) return;
  const healthy = async ({ monitorPort }: PartState) =>
    (await fetch(`http://127.0.0.1:${monitorPort}/healthz`)).ok;
  await until(async () => (await Promise.all(running.map(healthy))).every(Boolean), {
    about: "NATS to elect a leader",
    deadlineMs: 30_000,
    everyMs: 50,
  });
}
