import { variable } from "../wire/transport.ts";

let workersNamed = 0;

export function newWorkerId(): string {
  const name = variable("SVC_WORKER_ID");
  if (name) return ++workersNamed === 1 ? name : `${name}-${workersNamed}`;
  const letters = Array.from(crypto.getRandomValues(new Uint8Array(6)), (byte) => (byte % 36).toString(36));
  return `worker-${Date.now().toString(36)}-${letters.join("")}`;
}
