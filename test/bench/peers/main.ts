/**
 * `bun run bench:peers [--only bullmq,restate,emmett,svc] [--rounds 3] [--seconds 5]`: what a user would pick instead, from npm, on this
 * machine and in this hour, and svc's own rows behind it. Each round stands between two floors, as in `bun run bench`.
 * BullMQ needs `redis-server` (Debian's package; each write is synced), emmett a PostgreSQL, Restate its own binary from npm.
 */
import { copyFile, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { type PostgresServer, startPostgres } from "../../support/postgres.ts";
import { findProgram, freePort } from "../../support/process.ts";
import { until } from "../../support/until.ts";
import { type Figures, type Round, resultOf, show } from "../figures.ts";
import { runToEnd } from "../processes.ts";

const { values: given } = parseArgs({
  options: {
    only: { type: "string", default: "bullmq,restate,emmett,svc" },
    rounds: { type: "string", default: "3" },
    seconds: { type: "string", default: "5" },
  },
});
const rounds = Number(given.rounds);
const seconds = Number(given.seconds);
const only = given.only.split(",");

/** Undone last to first, however this ends. */
const undo: (() => Promise<unknown>)[] = [];

interface Scenario {
  name: string;
  about: string;
}

interface Peer {
  name: string;
  packages: readonly string[];
  scenarios: readonly Scenario[];
  /** Starts what it stands on; answers what its program must know. */
  open(folder: string, postgres: PostgresServer): Promise<object>;
}

/** A program that is gone with this one. */
function started(command: string[], folder: string, env: Record<string, string> = {}) {
  const child = Bun.spawn(command, {
    ...{ cwd: folder, env: { ...process.env, ...env } },
    ...{ stdin: "ignore", stdout: Bun.file(join(folder, "said.log")), stderr: "ignore" },
    // A group of its own: what npm installs as a program starts the server as its child.
    detached: true,
  });
  undo.push(async () => {
    process.kill(-child.pid, "SIGKILL");
    await child.exited;
  });
}

const isThere = (url: string) =>
  until(async () => (await fetch(url).catch(() => undefined))?.ok, { about: url });

const acceptance: readonly Scenario[] = [
  { name: "lone", about: "one caller, kept and not begun" },
  { name: "callers", about: "64 callers, kept and not begun" },
];
const workflows: readonly Scenario[] = [
  { name: "runs", about: "runs of three steps, full load" },
  { name: "paced", about: "runs of three steps, 20 a second, ms" },
];

const peers: readonly Peer[] = [
  {
    name: "bullmq",
    packages: ["bullmq@6.7.0", "ioredis@5.8.2"],
    scenarios: [...acceptance, { name: "batches", about: "batches of 100, 8 callers" }, ...workflows],
    async open(folder) {
      const port = await freePort();
      const data = join(folder, "redis");
      await mkdir(data);
      const redis = findProgram(["redis-server"], "redis-server");
      const durable = ["--appendonly", "yes", "--appendfsync", "always", "--save", ""];
      started([redis, "--port", `${port}`, "--bind", "127.0.0.1", "--dir", data, ...durable], folder);
      await until(
        async () => {
          (await Bun.connect({ hostname: "127.0.0.1", port, socket: { data() {} } })).end();
          return true;
        },
        { about: "redis-server" },
      );
      return { port };
    },
  },
  {
    name: "restate",
    packages: ["@restatedev/restate-server@1.7.12", "@restatedev/restate-sdk@1.17.2"],
    scenarios: [...acceptance, ...workflows],
    async open(folder) {
      const [ingress, admin, node, port] = await Promise.all([
        freePort(),
        freePort(),
        freePort(),
        freePort(),
      ]);
      started(
        [join(folder, "node_modules/.bin/restate-server"), "--base-dir", join(folder, "restate")],
        folder,
        {
          RESTATE_INGRESS__BIND_ADDRESS: `127.0.0.1:${ingress}`,
          RESTATE_ADMIN__BIND_ADDRESS: `127.0.0.1:${admin}`,
          RESTATE_BIND_ADDRESS: `127.0.0.1:${node}`,
          RESTATE_DEFAULT_NUM_PARTITIONS: "2",
          RESTATE_DISABLE_TELEMETRY: "true",
        },
      );
      started(["node", "restate.mjs", JSON.stringify({ scenario: "serve", port })], folder);
      await isThere(`http://127.0.0.1:${admin}/health`);
      const deployed = () =>
        fetch(`http://127.0.0.1:${admin}/deployments`, {
          method: "POST",
          headers: { "content-type": "application/json" },
          body: JSON.stringify({ uri: `http://127.0.0.1:${port}`, force: true }),
        });
      await until(async () => (await deployed().catch(() => undefined))?.ok, { about: "the deployment" });
      return { ingress };
    },
  },
  {
    name: "emmett",
    packages: ["@event-driven-io/emmett@0.42.0", "@event-driven-io/emmett-postgresql@0.42.0"],
    scenarios: [
      { name: "appends", about: "appends with the expected version, 64 callers over 10,000 streams" },
      { name: "batches", about: "events a second in batches of 100, 8 callers" },
      { name: "reads", about: "events a second of a stream of 1,000, read again and again" },
    ],
    open: async (_, postgres) => ({ databaseUrl: await postgres.createDatabase() }),
  },
];

/** A peer that stands still is given up: one server of the field left a call without an answer for five minutes. */
const longestMs = 120_000;

async function run(command: string[], folder: string): Promise<string> {
  const child = Bun.spawn(command, {
    ...{ cwd: folder, stdin: "ignore", stdout: "pipe", stderr: "pipe" },
    ...{ timeout: longestMs, killSignal: "SIGKILL" },
  });
  const [said, error] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  if ((await child.exited) !== 0)
    throw new Error(`${command.slice(0, 2).join(" ")}: ${error || said || `no answer in ${longestMs} ms`}`);
  return said;
}

async function measure(peer: Peer, postgres: PostgresServer): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), `svc-peer-${peer.name}-`));
  undo.push(() => rm(folder, { recursive: true, force: true }));
  await writeFile(join(folder, "package.json"), '{ "private": true, "type": "module" }');
  await run(["npm", "install", "--no-audit", "--no-fund", "--silent", ...peer.packages], folder);
  for (const file of ["load.mjs", `${peer.name}.mjs`])
    await copyFile(join(import.meta.dir, file), join(folder, file));
  const place = await peer.open(folder, postgres);
  const databaseUrl = await postgres.createDatabase();
  const floor = () => runToEnd("floor.ts", { databaseUrl, seconds: 2, callers: 64 });
  for (const { name, about } of peer.scenarios) {
    const done: Round[] = [];
    for (let round = 0; round < rounds; round++) {
      const before = await floor();
      const options = JSON.stringify({ ...place, scenario: name, seconds });
      const figures: Figures | null = JSON.parse(
        await run(["node", `${peer.name}.mjs`, options], folder).catch((failure: Error) => {
          console.error(`${peer.name} ${name}, round ${round + 1} failed: ${failure.message.slice(0, 400)}`);
          return "null";
        }),
      );
      if (figures === null) continue;
      const after = await floor();
      const perS = (before.perS! + after.perS!) / 2;
      const ratio = figures.perS === undefined ? {} : { ratio: figures.perS / perS };
      const drift = Math.abs(before.perS! - after.perS!) / perS;
      done.push({ figures: { ...ratio, ...figures, floorPerS: perS }, drift });
    }
    if (done.length > 0)
      console.log(`${show(resultOf("postgres", `${peer.name} ${name}`, done), about, [])}\n`);
  }
}

async function withAll(): Promise<void> {
  const postgres = await startPostgres();
  undo.push(postgres.stop);
  for (const peer of peers) if (only.includes(peer.name)) await measure(peer, postgres);
}

async function cleanUp(): Promise<void> {
  for (const one of undo.splice(0).reverse()) await one().catch((error: unknown) => console.error(error));
}
for (const signal of ["SIGINT", "SIGTERM"] as const)
  process.once(signal, () => void cleanUp().then(() => process.exit(1)));

await withAll().finally(cleanUp);
if (only.includes("svc")) {
  const own = [
    ["main.ts", "--only", "lone,callers,batches,runs,latency,strict-bun", "--rounds", given.rounds],
    ["streams.ts", "--engine", "postgres", "--rounds", given.rounds],
  ];
  for (const [program, ...words] of own) {
    const script = join(import.meta.dir, "..", program!);
    await Bun.spawn([process.execPath, "run", script, ...words], { stdio: ["ignore", "inherit", "inherit"] })
      .exited;
  }
}
