/**
 * `bun run bench:access purge [libsql|postgres] [rows] [quiet seconds]`: an environment of a million rows is deleted, cold: how long the answer
 * takes, how long the event loop is held while its rows go, and what callers in another environment notice, compared with the
 * seconds before and after; on Postgres also with the time in which another process removes as many rows in the same way.
 */
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { type Held, longestHold, watchHeld } from "../support/held.ts";
import { startPostgres } from "../support/postgres.ts";
import {
  type EngineName,
  makeHome,
  makeHomeAt,
  startTestServer,
  type TestServer,
} from "../support/server.ts";
import { median, percentile } from "./figures.ts";
import { anyRow, countRows, multiply, rowsOf, type Template } from "./purge-rows.ts";

const stepsEach = 3;
/** No hold of the event loop may last longer. */
const heldMsMax = 20;

async function templateIn(server: TestServer, key: string, environmentId: string): Promise<Template> {
  const call = async (path: string, body?: object, method?: string) => {
    const answer = await server.api(path, { key, ...(body && { body }), ...(method && { method }) });
    if (answer.status >= 300) throw new Error(`${path}: ${answer.status} ${JSON.stringify(answer.body)}`);
    return answer.body;
  };
  await call("/svc.v1.SvcService/RegisterFunction", { id: "f", triggers: [{ event: "go" }] });
  await call("/api/v1/workers/w/register", { function_ids: ["f"] });
  const emitted = await server.rpc(
    "SvcService",
    "Emit",
    { event: "go", data: { text: "x".repeat(200) } },
    { key, headers: { "idempotency-key": "key" } },
  );
  const [job] = (await call("/api/v1/workers/w/jobs?available=1")).jobs;
  const at = new Date().toISOString();
  const steps = Array.from({ length: stepsEach }, (_, number) => ({
    id: `s:${number}:0`,
    name: `step ${number}`,
    type: "invoke",
    status: "completed",
    output: { text: "y".repeat(100) },
    started_at: at,
    ended_at: at,
  }));
  const { job_id, execution_seq, lease_token } = job;
  const report = { status: "completed", output: { fine: true }, execution_seq, lease_token, steps };
  await call(`/api/v1/workers/w/jobs/${job_id}`, report, "PUT");
  return { environmentId, runId: job.run_id, eventId: emitted.body.eventId };
}

/** What the kernel has of the files in memory is given up, as after a restart of the machine. */
async function forgetFiles(path: string): Promise<void> {
  const found = Bun.spawnSync(["find", path, "-type", "f", "-size", "+64k"]).stdout.toString().split("\n");
  for (const file of found)
    if (file !== "")
      Bun.spawnSync(["dd", `of=${file}`, "oflag=nocache", "conv=notrunc,fdatasync", "count=0"], {
        stderr: "ignore",
      });
}

/** How long the event loop is held, and the time of one emit after another in another environment. */
function watch(server: TestServer) {
  const held = watchHeld(heldMsMax);
  const emits: number[] = [];
  let on = true;
  const emitting = (async () => {
    while (on) {
      const begun = performance.now();
      await server.rpc("SvcService", "Emit", { event: "neighbour" });
      emits.push(performance.now() - begun);
      await pause(20);
    }
  })();
  return async (): Promise<{
    held: Omit<Held, "longest">;
    longest: string;
    emitMs: { p50: number; p95: number };
  }> => {
    on = false;
    await emitting;
    const took = emits.toSorted((one, other) => one - other);
    const round = (value: number) => Math.round(value * 100) / 100;
    const { longest, ...rest } = await held();
    return {
      held: rest,
      longest: longest.map(({ ms, computedMs }) => `${ms} (${computedMs} computed)`).join(", "),
      emitMs: { p50: round(median(took)), p95: round(percentile(took, 0.95)) },
    };
  };
}

/** The same, and the same calls to the server, while another process removes rows. */
async function watchRival(server: TestServer, databaseUrl: string, environmentId: string) {
  const program = join(import.meta.dir, "purge-rival.ts");
  const begun = performance.now();
  // Starting a process holds this one, so that comes first.
  const child = Bun.spawn([process.execPath, "run", program, databaseUrl, environmentId], {
    stdio: ["ignore", "inherit", "inherit"],
  });
  const purging = watch(server);
  while (child.exitCode === null) {
    await server.api("/api/v1/integrity");
    await pause(500);
  }
  if (child.exitCode !== 0) throw new Error(`the rival ended with ${child.exitCode}`);
  return { purgedS: Math.round((performance.now() - begun) / 1_000), ...(await purging()) };
}

export async function benchPurge(engine: EngineName, rows: number, quietMs: number): Promise<void> {
  const postgres = engine === "postgres" ? await startPostgres() : undefined;
  const home = postgres ? await makeHomeAt(await postgres.createDatabase()) : await makeHome(engine);
  let server = await startTestServer({ engine, home, settings: { pollHoldMs: 1 } });
  try {
    const { id } = (await server.api("/api/v1/environments", { body: { name: "million" } })).body;
    const { key } = (await server.api("/api/v1/apikeys", { body: { name: "million", env_id: id } })).body;
    const template = await templateIn(server, key, id);
    const neighbour = await templateIn(server, server.adminKey, "env_default");
    const { store } = server.running.domain;
    const each = await rowsOf(store, template);
    await multiply(store, template, Math.ceil(rows / each));
    await multiply(store, neighbour, Math.ceil(rows / each / 10));
    const rival = postgres && (await server.api("/api/v1/environments", { body: { name: "rival" } })).body.id;
    if (rival) {
      const made = await server.api("/api/v1/apikeys", { body: { name: "rival", env_id: rival } });
      await multiply(store, await templateIn(server, made.body.key, rival), Math.ceil(rows / each));
    }
    const before = await countRows(store, id);
    // A process that has it all in memory proves little: everything is opened anew, and read from the disk.
    await server.running.stop();
    await postgres?.shutDown();
    await forgetFiles(postgres?.dataDir ?? home.folder);
    await postgres?.restart();
    server = await startTestServer({ engine, home, settings: { pollHoldMs: 1 } });
    await pause(2_000);
    const quiet = watch(server);
    await pause(quietMs);
    const first = await quiet();
    const asked = performance.now();
    let status = 0;
    const answerHeldMs = await longestHold(async () => {
      ({ status } = await server.api(`/api/v1/environments/${id}`, { method: "DELETE" }));
    });
    const answeredMs = performance.now() - asked;
    const purging = watch(server);
    const backlogs: number[] = [];
    while (await anyRow(server.running.domain.store, id)) {
      const { body } = await server.api("/api/v1/integrity");
      backlogs.push(backlogIn(body));
      await pause(500);
    }
    const purgedS = (performance.now() - asked) / 1_000;
    const during = await purging();
    const after = watch(server);
    await pause(quietMs);
    const last = await after();
    const elsewhere = rival && (await watchRival(server, home.place.databaseUrl!, rival));
    console.log(
      JSON.stringify(
        {
          engine,
          rows: before,
          status,
          answeredMs: Math.round(answeredMs),
          answerHeldMs: Math.round(answerHeldMs * 10) / 10,
          purgedS: Math.round(purgedS),
          rowsPerS: Math.round(before / purgedS),
          integrityShowedIt: backlogs.filter((count) => count > 0).length,
          looks: backlogs.length,
          before: first,
          during,
          after: last,
          ...(elsewhere && { elsewhere }),
        },
        null,
        2,
      ),
    );
  } finally {
    await server.running.stop();
    await postgres?.stop();
    await home.remove();
  }
}

// biome-ignore lint/suspicious/noExplicitAny: whatever the report says
const backlogIn = (body: any): number => body.purging?.environments ?? 0;
