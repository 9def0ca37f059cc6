import { afterAll, beforeAll, expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { isRunning } from "../../cluster/processes.ts";
import { until } from "../support/until.ts";
import { type ClusterFolder, openClusterFolder, tools } from "./up-tools.ts";

const all = ["postgres", "nats-1", "nats-2", "nats-3", "node-1", "node-2", "node-3"];

let cluster: ClusterFolder;

beforeAll(async () => {
  cluster = await openClusterFolder();
  const { out, err, code } = await cluster.tool("up.ts", "--detach", "--ports", "0");
  expect({ err, code }).toEqual({ err: "", code: 0 });
  for (const name of all) expect(out).toMatch(new RegExp(`^${name} .* started `, "m"));
}, 120_000);
afterAll(() => cluster?.close(), 60_000);

test("three nodes answer, and an event that one takes is read on another", async () => {
  expect(cluster.running()).toEqual(all);
  const [first, second, third] = await cluster.nodes();
  for (const node of [first, second, third]) {
    expect(await node?.api("/ready", { key: null })).toMatchObject({
      status: 200,
      body: { status: "ready" },
    });
  }
  const emitted = await second?.rpc("SvcService", "Emit", { event: "crossed" });
  expect(emitted?.status).toBe(200);
  const read = await third?.api(`/api/v1/events/${emitted?.body.eventId}`);
  expect(read).toMatchObject({ status: 200, body: { id: emitted?.body.eventId } });
  // What the shell says goes to every node, and stays said.
  expect(cluster.state().settings).toEqual({ SVC_POLL_HOLD_MS: "1234" });
});

test("up again changes nothing, and starts only what died", async () => {
  const before = cluster.marks();
  const again = await cluster.tool("up.ts", "--detach");
  expect(again).toMatchObject({ err: "", code: 0 });
  expect(again.out).not.toContain(" started ");
  expect(cluster.marks()).toEqual(before);

  process.kill(cluster.markOf("node-2").pid, "SIGKILL");
  await until(() => !cluster.running().includes("node-2"), { about: "the kill" });
  expect(await cluster.tool("up.ts", "--detach")).toMatchObject({ err: "", code: 0 });
  expect(cluster.running()).toEqual(all);
  const after = cluster.marks();
  expect(after.get("node-2")).not.toEqual(before.get("node-2"));
  for (const name of all.filter((one) => one !== "node-2")) expect(after.get(name)).toEqual(before.get(name));
}, 90_000);

test("a process that has the number of ours, but started at another time, is left alone", async () => {
  const stranger = Bun.spawn(["sleep", "60"]);
  const mark = { pid: stranger.pid, startedAt: cluster.markOf("node-1").startedAt };
  expect(isRunning(mark)).toBe(false);
  stranger.kill();
  await stranger.exited;
});

test("one part at a time: a node is added and leaves again, a NATS server is replaced", async () => {
  expect(await cluster.tool("up.ts", "--only", "node-4")).toMatchObject({ err: "", code: 0 });
  expect(cluster.running()).toEqual([...all, "node-4"]);
  const drained = await cluster.tool("down.ts", "--only", "node-4", "--wipe");
  expect(drained).toMatchObject({ err: "", code: 0 });
  expect(drained.out).toMatch(/^node-4 \(process \d+\) stopped\nnode-4 forgotten\n$/);
  expect(cluster.running()).toEqual(all);

  expect(await cluster.tool("down.ts", "--only", "nats-1", "--wipe")).toMatchObject({ err: "", code: 0 });
  expect(existsSync(join(cluster.folder, "nats-1"))).toBe(false);
  const [first] = await cluster.nodes();
  expect(await first?.rpc("SvcService", "Emit", { event: "meanwhile" })).toMatchObject({ status: 200 });
  expect(await cluster.tool("up.ts", "--only", "nats-1")).toMatchObject({ err: "", code: 0 });
  expect(cluster.running()).toEqual(all);
  await until(async () => (await first?.api("/ready", { key: null }))?.status === 200, { about: "node-1" });
}, 120_000);

test("what stands is not moved, and unknown parts are named", async () => {
  expect(await cluster.tool("up.ts", "--detach", "--ports", "9123")).toMatchObject({
    code: 2,
    err: expect.stringContaining("holds a cluster with other ports of nodes"),
  });
  expect(await cluster.tool("down.ts", "--only", "nats-7")).toMatchObject({
    code: 2,
    err: "there is no part nats-7; there are postgres, nats-1, nats-2, nats-3, node-1, node-2, node-3\n",
  });
});

test("down --wipe leaves no process and no folder", async () => {
  const { postgresFolder } = cluster.state();
  const ours = [...cluster.marks().values()];
  const { out, err, code } = await cluster.tool("down.ts", "--wipe");
  expect({ err, code }).toEqual({ err: "", code: 0 });
  expect(out).not.toContain("killed");
  // Nodes leave first, the database last.
  expect(
    out
      .split("\n")
      .slice(0, -2)
      .map((line) => line.split("-")[0]?.split(" ")[0]),
  ).toEqual([...["node", "node", "node", "nats", "nats", "nats", "postgres"]]);
  expect(ours.filter((mark) => isRunning(mark))).toEqual([]);
  expect([existsSync(cluster.folder), existsSync(postgresFolder as string)]).toEqual([false, false]);
  expect(await cluster.tool("down.ts")).toMatchObject({
    code: 2,
    err: `there is no cluster in ${cluster.folder}\n`,
  });
}, 120_000);

test("the commands of package.json are these", () => {
  const { scripts } = JSON.parse(readFileSync(join(tools, "../package.json"), "utf8"));
  expect(scripts["cluster:up"]).toBe("bun run cluster/up.ts");
  expect(scripts["cluster:down"]).toBe("bun run cluster/down.ts");
});
