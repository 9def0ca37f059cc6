import { afterAll, beforeAll, expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { isRunning } from "../../cluster/processes.ts";
import type { Caller } from "../support/server.ts";
import { until } from "../support/until.ts";
import { type ClusterFolder, openClusterFolder, tools } from "./up-tools.ts";

// A cluster of this machine whose PostgreSQL fails over, by the words of the runbook.

const all = ["postgres", "standby", "nats-1", "nats-2", "nats-3", "node-1", "node-2"];
const runbook = readFileSync(join(tools, "README.md"), "utf8");
const replicas = "SELECT application_name, sync_state FROM pg_stat_replication";

/** The first commands of the runbook behind that place. */
const commandsBehind = (place: string): string => {
  const [, commands] = /^```sh\n(.*?)^```$/ms.exec(runbook.slice(runbook.indexOf(place))) ?? [];
  if (!runbook.includes(place) || !commands) throw new Error(`the runbook has no commands behind "${place}"`);
  return commands;
};

let cluster: ClusterFolder;
let nodes: Caller[];

/** As superuser of the server that can be written. */
const asked = (query: string) => cluster.shell(`psql -tA "$CLUSTER_ADMIN_URL" -c "${query}"`);
const emits = async (node: Caller, event: string) => {
  const { status, body } = await node.rpc("SvcService", "Emit", { event, data: {} });
  return status === 200 ? (body.eventId as string) : undefined;
};
const allReady = async () => {
  const answers = await Promise.all(nodes.map((node) => node.api("/ready", { key: null })));
  return answers.every(({ status }) => status === 200);
};

beforeAll(async () => {
  cluster = await openClusterFolder();
  const { out, err, code } = await cluster.tool(
    ...(["up.ts", "--standby", "--detach", "--ports", "0", "--nodes", "2"] as const),
  );
  expect({ err, code }).toEqual({ err: "", code: 0 });
  for (const name of all) expect(out).toMatch(new RegExp(`^${name} .* started `, "m"));
  nodes = await cluster.nodes();
}, 120_000);
afterAll(() => cluster?.close(), 60_000);

test("--standby starts a second PostgreSQL that every commit waits for, and tells nodes and shells of both", async () => {
  expect(cluster.running()).toEqual(all);
  expect(await asked(replicas)).toMatchObject({ err: "", out: "standby|sync\n" });
  const hosts = cluster.state().parts.flatMap(({ kind, port }) => (kind === "postgres" ? [port] : []));
  expect(hosts).toHaveLength(2);
  const both = hosts.map((port) => `127.0.0.1:${port}`).join(",");
  const { out } = await cluster.shell('echo "$CLUSTER_DATABASE_URL"');
  expect(out).toContain(`@${both}/svc?target_session_attrs=read-write`);
  // Once it is there it stays, also where nobody asks for it again.
  const again = await cluster.tool("up.ts", "--detach");
  expect(again).toMatchObject({ err: "", code: 0 });
  expect(again.out).not.toContain(" started ");
}, 120_000);

test("the primary is lost, and the runbook's promotion makes the nodes go on by themselves", async () => {
  const before = await Promise.all(nodes.map((node) => emits(node, "acknowledged.before")));
  const marks = cluster.marks();
  process.kill(cluster.markOf("postgres").pid, "SIGKILL");
  await until(async () => !(await allReady()), { about: "/ready to say that the primary is gone" });

  const promoted = await cluster.shell(commandsBehind("**Fail over.**"));
  expect(promoted).toMatchObject({ err: "", code: 0 });
  expect(promoted.out).toStartWith("t\n");
  await until(allReady, { about: "both nodes to be ready", everyMs: 50 });
  for (const node of nodes) {
    expect(await emits(node, "acknowledged.after")).toBeDefined();
    for (const id of before) expect(await node.api(`/api/v1/events/${id}`)).toMatchObject({ status: 200 });
  }
  const after = cluster.marks();
  for (const name of all) expect(after.get(name)).toEqual(marks.get(name));
}, 90_000);

test("the old primary comes back as a standby of the new one, by the runbook", async () => {
  const commands = commandsBehind("The old primary comes back as a standby")
    .replaceAll("bun run cluster/", `${process.execPath} run ${tools}/`)
    .replaceAll(/(up|down)\.ts /g, `$1.ts --dir ${cluster.folder} `);
  expect(await cluster.shell(commands)).toMatchObject({ err: "", code: 0 });
  expect(await asked(replicas)).toMatchObject({ err: "", out: "postgres|sync\n" });
  expect(cluster.running()).toEqual(all);
  await until(allReady, { about: "both nodes to be ready" });
}, 90_000);

test("down ends both PostgreSQL servers with the rest, and up brings each back as what it was", async () => {
  const ended = await cluster.tool("down.ts");
  expect(ended).toMatchObject({ err: "", code: 0 });
  expect(ended.out).not.toContain("killed");
  expect(cluster.running()).toEqual([]);
  for (const part of ["postgres", "standby"])
    expect(await cluster.tool("up.ts", "--only", part)).toMatchObject({ err: "", code: 0 });
  expect(cluster.running()).toEqual(["postgres", "standby"]);
  await until(async () => (await asked(replicas)).out === "postgres|sync\n", {
    about: "the standby to follow",
  });

  const { postgresFolder, folder } = cluster.state();
  const ours = [...cluster.marks().values()];
  const removed = await cluster.tool("down.ts", "--wipe");
  expect(removed).toMatchObject({ err: "", code: 0 });
  expect(ours.filter((mark) => isRunning(mark))).toEqual([]);
  expect([folder, postgresFolder as string].filter((path) => existsSync(path))).toEqual([]);
}, 120_000);
