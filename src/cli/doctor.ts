import { existsSync, statfsSync, statSync } from "node:fs";
import { connect as openSocket } from "node:net";
import { dirname, resolve } from "node:path";
import type { Command } from "commander";
import { silentLog } from "../kit/log.ts";
import { shownText } from "../kit/log-lines.ts";
import { sql } from "../kit/sql.ts";
import { version } from "../kit/version.ts";
import { SvcError } from "../sdk/index.ts";
import { type Asking, addCommon, ask, askingOf, type CommonFlags } from "./command.ts";
import { targetOf } from "./connection.ts";
import { bad, type Finding, ofWorkers, ok, warning } from "./doctor-workers.ts";
import { CommandFailure, exitCodes, type Io } from "./io.ts";
import { clockOffMsMax, doctorMsMax, freeBytesMin } from "./limits.ts";
import { profilesFileOf } from "./profiles.ts";
import { paintOf, tableOf } from "./show.ts";

interface HealthAnswer {
  status: string;
  timestamp: string;
  version: string;
  warnings?: string[];
}

async function reaches({ connection, io }: Asking): Promise<{ findings: Finding[]; reached: boolean }> {
  const { url } = connection.target;
  const before = io.clock.now();
  let health: HealthAnswer;
  try {
    health = await connection.transport.send<HealthAnswer>({
      method: "GET",
      path: "/health",
      timeoutMs: doctorMsMax,
    });
  } catch (error) {
    const isDown = error instanceof SvcError && error.status === 503;
    const found = error instanceof Error ? error.message : String(error);
    if (isDown)
      return { reached: true, findings: [bad("server", found, "look at its database, and at its log")] };
    const isOther = error instanceof SvcError && error.status > 0;
    if (isOther)
      return {
        reached: false,
        findings: [bad("server", `${url} is no svc server: ${found}`, "look at --server and SVC_SERVER_URL")],
      };
    return {
      reached: false,
      findings: [
        bad("server", found, "start one (svc dev, svc serve), or name it by --server or SVC_SERVER_URL"),
      ],
    };
  }
  const after = io.clock.now();
  const findings = [
    ok("server", `${url} answers in ${after - before} ms: ${health.status}`),
    ...(health.warnings ?? []).map((text) => warning("server", text, "svc server integrity says more")),
  ];
  findings.push(
    health.version === version
      ? ok("version", `both are ${version}`)
      : warning(
          "version",
          `the server is ${health.version}, this command ${version}`,
          "use the command of the server's version",
        ),
  );
  const off = Math.round((before + after) / 2 - Date.parse(health.timestamp));
  const doubt = Math.ceil((after - before) / 2);
  findings.push(
    Math.abs(off) - doubt <= clockOffMsMax
      ? ok("clock", `within ${Math.abs(off)} ms of the server's`)
      : warning(
          "clock",
          `${Math.abs(off)} ms ${off > 0 ? "ahead of" : "behind"} the server's`,
          "set this machine's clock by NTP",
        ),
  );
  return { findings, reached: true };
}

interface ClusterAnswer {
  status: string;
  issues: string[];
  nodes: { status: string }[];
  database: { engine: string; round_trip_ms: number };
  bus: { kind: string; status: string };
}

const slowStoreMs = 50;

async function ofCluster(asking: Asking): Promise<Finding[]> {
  const health = await ask<ClusterAnswer>(asking, "cluster.health");
  const { engine, round_trip_ms: roundTripMs } = health.database;
  const up = health.nodes.filter(({ status }) => status === "up").length;
  return [
    ok("key", "the server knows it, or needs none"),
    ok("nodes", `${up} of ${health.nodes.length} are up`),
    ...health.issues.map((text) => warning("nodes", text, "svc cluster health says more")),
    roundTripMs <= slowStoreMs
      ? ok("store", `${engine} answers the server in ${roundTripMs} ms`)
      : warning(
          "store",
          `${engine} answers the server in ${roundTripMs} ms`,
          "move them together, or look at the database's load",
        ),
    health.bus.status === "connected"
      ? ok("bus", `${health.bus.kind} is connected`)
      : bad(
          "bus",
          `${health.bus.kind} is ${health.bus.status}`,
          "look at NATS_URL of the server, and at the NATS server",
        ),
  ];
}

const rights = {
  runs: "runs.list",
  events: "events.list",
  functions: "functions.list",
  workers: "workers.list",
} as const;

async function ofRights(asking: Asking): Promise<Finding[]> {
  const denied: string[] = [];
  for (const [what, operation] of Object.entries(rights))
    try {
      await ask(asking, operation, { limit: 1 });
    } catch (error) {
      if (!(error instanceof SvcError) || error.status !== 403) throw error;
      denied.push(what);
    }
  return [
    denied.length === 0
      ? ok("permissions", `may read ${Object.keys(rights).join(", ")}`)
      : warning(
          "permissions",
          `may not read ${denied.join(", ")}`,
          "give the key a role: svc apikey set-roles",
        ),
  ];
}

async function ofCaller(asking: Asking): Promise<Finding[]> {
  try {
    const [cluster, rights] = [await ofCluster(asking), await ofRights(asking)];
    // Who may not read functions and workers is told so already.
    const readsAll = rights.every(({ state }) => state === "ok");
    return [...cluster, ...rights, ...(readsAll ? await ofWorkers(asking) : [])];
  } catch (error) {
    if (!(error instanceof SvcError)) throw error;
    const remedies: Record<number, string> = {
      401: "set SVC_API_KEY or --key-file; the first start wrote a key into its data folder",
      403: "use a key with a role of the org",
      404: "svc env list shows the environments",
    };
    return [bad("key", error.message, remedies[error.status] ?? "look at the log of the server")];
  }
}

interface PostgresFacts {
  server_version: string;
  fsync: string;
  synchronous_commit: string;
  full_page_writes: string;
  max_connections: string;
  off_ms: number;
}

async function ofPostgres(url: string, { clock }: Io): Promise<Finding[]> {
  const limits = { connectMs: doctorMsMax };
  const options = {
    url,
    clock,
    log: silentLog,
    poolSize: 1,
    hotPoolSize: 1,
    applicationName: "svc doctor",
    limits,
  };
  try {
    const { openPostgres } = await import("../store/postgres.ts");
    const store = await openPostgres(options);
    try {
      const facts =
        await store.one<PostgresFacts>(sql`SELECT current_setting('server_version') AS server_version,
        current_setting('fsync') AS fsync, current_setting('synchronous_commit') AS synchronous_commit,
        current_setting('full_page_writes') AS full_page_writes, current_setting('max_connections') AS max_connections,
        CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT) - ${clock.now()} AS off_ms`);
      if (!facts) return [];
      const unsafe = (["fsync", "synchronous_commit", "full_page_writes"] as const).filter(
        (one) => facts[one] === "off",
      );
      return [
        ok("database", `PostgreSQL ${facts.server_version}, at most ${facts.max_connections} connections`),
        unsafe.length === 0
          ? ok("durability", "fsync, synchronous_commit and full_page_writes are on")
          : bad(
              "durability",
              `${unsafe.join(", ")} off: what was acknowledged can be lost`,
              "turn them on in postgresql.conf",
            ),
        Math.abs(facts.off_ms) <= clockOffMsMax
          ? ok("database clock", `within ${Math.abs(facts.off_ms)} ms of this machine's`)
          : warning(
              "database clock",
              `${Math.abs(facts.off_ms)} ms off this machine's`,
              "set both clocks by NTP",
            ),
      ];
    } finally {
      await store.close();
    }
  } catch (error) {
    return [
      bad("database", error instanceof Error ? error.message : String(error), "look at SVC_DATABASE_URL"),
    ];
  }
}

const gigabyte = 1_000_000_000;
const othersMay = 0o077;

function ofFile(file: string): Finding[] {
  const folder = dirname(file);
  if (!existsSync(folder)) return [ok("disk", `${folder} is not there yet: the first start makes it`)];
  const { bavail, bsize } = statfsSync(folder);
  const free = bavail * bsize;
  const text = `${(free / gigabyte).toFixed(1)} GB free at ${folder}`;
  const findings = [
    free >= freeBytesMin ? ok("disk", text) : bad("disk", text, "make room: a full disk stops every write"),
  ];
  for (const name of [".ssvc_bootstrap_key.json", ".svc_master_key"]) {
    const key = resolve(folder, name);
    if (!existsSync(key)) continue;
    findings.push(
      (statSync(key).mode & othersMay) === 0
        ? ok("key files", `${key} is the owner's alone`)
        : bad("key files", `${key} can be read by others`, `chmod 600 ${key}`),
    );
  }
  return findings;
}

/** The first line that a NATS server says. */
const natsHello = (host: string, port: number): Promise<string> =>
  new Promise((done, fail) => {
    const socket = openSocket({ host, port, timeout: doctorMsMax });
    const end = (finish: () => void) => {
      socket.destroy();
      finish();
    };
    socket.once("data", (bytes) => end(() => done(String(bytes).split("\r\n", 1)[0]!)));
    socket.once("timeout", () => end(() => fail(new Error("it does not answer in time"))));
    socket.once("error", (error) => end(() => fail(error)));
  });

async function ofNats(list: string): Promise<Finding[]> {
  const asked = list.split(",").map(async (one): Promise<Finding> => {
    const { hostname, port } = new URL(one.trim());
    const place = `${hostname}:${port || 4222}`;
    try {
      const hello = await natsHello(hostname, Number(port || 4222));
      const facts = JSON.parse(/^INFO (\{.*\})/.exec(hello)?.[1] ?? "{}") as {
        version?: string;
        jetstream?: boolean;
      };
      if (facts.version === undefined) return bad("NATS", `${place} is no NATS server`, "look at NATS_URL");
      const mode = facts.jetstream ? "with JetStream" : "without JetStream";
      return facts.jetstream
        ? ok("NATS", `${place}: ${facts.version} ${mode}`)
        : warning(
            "NATS",
            `${place}: ${facts.version} ${mode}`,
            "start it with -js: leaders are elected there",
          );
    } catch (error) {
      return bad(
        "NATS",
        `${place}: ${error instanceof Error ? error.message : error}`,
        "look at NATS_URL, and at the NATS server",
      );
    }
  });
  return Promise.all(asked);
}

async function ofMachine(io: Io, database: string | undefined): Promise<Finding[]> {
  const { SVC_DATABASE_URL: postgres, SVC_DB: file, NATS_URL: nats } = io.environment;
  const profiles = profilesFileOf(io);
  return [
    ...(existsSync(profiles) ? [ok("profiles", `${profiles} is the owner's alone`)] : []),
    ...(database === undefined && postgres
      ? await ofPostgres(postgres, io)
      : ofFile(resolve(io.folder, database ?? (file || ".svc/svc.db")))),
    ...(nats ? await ofNats(nats) : []),
  ];
}

/** `svc doctor`: looks at everything that a first user gets wrong. */
export function addDoctor(program: Command, io: Io): void {
  const command = program
    .command("doctor")
    .description(
      "Looks at the server, the key, the clocks, the store, NATS and the disk, and says what to do.",
    )
    .option("--db <file>", "The database file to look at [SVC_DB, else .svc/svc.db].");
  addCommon(command).action(async () => {
    const flags = command.optsWithGlobals() as CommonFlags & { db?: string };
    targetOf(flags, io);
    const asking = askingOf(io, flags, doctorMsMax);
    const { findings, reached } = await reaches(asking);
    const all = [...findings, ...(reached ? await ofCaller(asking) : []), ...(await ofMachine(io, flags.db))];
    if (asking.form === "json") await io.out(`${JSON.stringify({ version, findings: all }, null, 2)}\n`);
    else if (asking.form === "jsonl") await io.out(all.map((one) => `${JSON.stringify(one)}\n`).join(""));
    else {
      await io.out(
        tableOf(
          all.map(({ check, state, found }) => ({ check, state, found })),
          { io, paint: paintOf(io) },
        ),
      );
      for (const { check, remedy } of all) if (remedy) await io.out(`${check}: ${shownText(remedy)}\n`);
    }
    if (!reached) throw new CommandFailure(exitCodes.unreachable, "no svc server answers");
    const wrong = all.filter(({ state }) => state === "bad").length;
    if (wrong > 0)
      throw new CommandFailure(exitCodes.refused, `${wrong} of ${all.length} looks found something bad`);
  });
}
