import { createClient } from "../sdk/index.ts";
import type { Io } from "./io.ts";
import { devUnheardMs } from "./limits.ts";

const prefix = "events:";

/** Says once for each event name that it started no run: a misspelt name looks like a worker that hangs. */
export async function tellUnheard(url: string, io: Io, signal: AbortSignal): Promise<void> {
  const client = createClient({ url, apiKey: "" });
  const seen = new Set<string>();
  const subscription = client.subscribe(`${prefix}>`, { signal }, async ({ topic, eventId }) => {
    const name = topic.slice(prefix.length);
    if (eventId === undefined || seen.has(name)) return;
    seen.add(name);
    // A run is there with its event; what debounce or batch gathers may come later.
    await io.clock.sleep(devUnheardMs, signal);
    if (signal.aborted) return;
    // A hint that cannot be given ends nothing.
    const found = await client.listRuns({ eventId, limit: 1 }).catch(() => undefined);
    if (found?.runs.length === 0)
      io.note(
        `${name} started no run: svc function list shows which events start functions (by debounce or batch, later)`,
      );
  });
  await subscription.done;
}
