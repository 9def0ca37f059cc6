/**
 * `bun run bench:overview [--engine postgres|libsql] [--runs 1000000] [--active 100000] [--calls 200]`
 *
 * `GET /api/v1/overview` and a map of flows, of an environment with so many runs, so many of them not over, 300 functions, and as
 * many edges of each kind as each hour of a day may have. Medians over the calls and the slowest of them, in milliseconds, as a client sees them.
 */
import { parseArgs } from "node:util";
import { flowEdgesMax, flowHoursDefault } from "../../src/domain/record/flow/limits.ts";
import { plant } from "../support/plant.ts";
import { type EngineName, engines, startTestServer } from "../support/server.ts";
import { median } from "./figures.ts";

const { values: given } = parseArgs({
  options: {
    engine: { type: "string" },
    runs: { type: "string", default: "1000000" },
    active: { type: "string", default: "100000" },
    calls: { type: "string", default: "200" },
  },
});
const [runs, active, calls] = [Number(given.runs), Number(given.active), Number(given.calls)];
const functions = 300;
const target = 10;

async function fill({ env, running }: Awaited<ReturnType<typeof startTestServer>>): Promise<void> {
  const { store } = running.domain;
  const now = Date.now();
  const hour = now - (now % 3_600_000);
  const minute = now - (now % 60_000);
  const inEnv = { environment_id: `'${env}'` };
  const function_id = `'fn' || (n % ${functions})`;
  const ofRun = { ...inEnv, function_id, execution_seq: "1", attempt: "1", max_attempts: "1" };
  await plant(store, "functions", functions, {
    ...{ ...inEnv, id: "'fn' || (n - 1)", slug: "'fn' || (n - 1)", status: "'active'", mode: "'pull'" },
    ...{ version: "1", definition: `'{"id":"fn' || (n - 1) || '"}'` },
  });
  await plant(store, "runs", runs, {
    ...{ ...ofRun, id: "'run_' || n", event_id: "'evt_' || n", mode: "'pull'", function_version: "1" },
    ...{
      created_at: `${now - runs} + n`,
      status: `CASE WHEN n <= ${active} THEN 'active' ELSE 'completed' END`,
    },
    ended_at: `CASE WHEN n > ${active} THEN ${now} END`,
  });
  await plant(store, "executions", active, {
    ...{ ...ofRun, run_id: "'run_' || n", function_version: "1" },
    state: "CASE WHEN n % 4 = 0 THEN 'queued' ELSE 'sleeping' END",
    wake_at: `CASE WHEN n % 4 = 0 THEN ${now - 60_000} ELSE ${now + 30 * 86_400_000} END`,
  });
  for (const kind of ["emit", "invoke", "stream", "topic", "wait"])
    await plant(store, "flow_edges", flowEdgesMax * flowHoursDefault, {
      ...{ ...inEnv, kind: `'${kind}'`, hour: `${hour} - ((n - 1) / ${flowEdgesMax}) * 3600000`, count: "n" },
      ...{ source: `'fn' || (n % ${functions})`, target: `'event.' || (n % ${flowEdgesMax})` },
    });
  await plant(store, "flow_minutes", 24 * 60, {
    ...{ ...inEnv, minute: `${minute} - (n - 1) * 60000`, events: "n", started: "n", completed: "n" },
  });
}

async function measure(engine: EngineName): Promise<void> {
  const server = await startTestServer({ engine });
  try {
    await fill(server);
    for (const path of ["/api/v1/overview", "/api/v1/flow/emit-edges"]) {
      const took: number[] = [];
      for (let call = 0; call < calls; call++) {
        const since = performance.now();
        const { status, body } = await server.api(path);
        took.push(performance.now() - since);
        if (status !== 200) throw new Error(JSON.stringify(body));
      }
      const first = took[0]!.toFixed(1);
      const worst = Math.max(...took.slice(1)).toFixed(1);
      console.log(
        `${engine} ${path}: ${median(took).toFixed(1)} ms (first ${first}, then at most ${worst}; target < ${target})`,
      );
    }
  } finally {
    await server.stop();
  }
}

for (const engine of engines)
  if (given.engine === undefined || given.engine === engine) await measure(engine);
process.exit(0);
