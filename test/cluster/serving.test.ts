import { afterAll, beforeAll, expect, test } from "bun:test";
import { type Home, makeHome, type SpawnedServer, spawnServer } from "../support/server.ts";
import { until } from "../support/until.ts";

let home: Home;
let nodes: SpawnedServer[] = [];

beforeAll(async () => {
  home = await makeHome("postgres");
  for (const _ of [1, 2]) nodes.push(await spawnServer({ engine: "postgres", home }));
}, 120_000);
afterAll(async () => {
  await Promise.all(nodes.map((node) => node.stop()));
  nodes = [];
  await home?.remove();
}, 120_000);

test("a worker at another node serves; without one, each node says that nothing does", async () => {
  const [here, there] = nodes as [SpawnedServer, SpawnedServer];
  const unserved = async (node: SpawnedServer, event: string) =>
    (await node.rpc("SvcService", "Emit", { event, tellUnserved: true })).body.unserved;
  for (const id of ["served", "alone"])
    await here.rpc("SvcService", "RegisterFunction", { id, triggers: [{ event: id }] });
  for (const node of nodes) expect(await unserved(node, "served")).toEqual(["served"]);
  const registered = { body: { function_ids: ["served"] } };
  expect((await there.api("/api/v1/workers/w/register", registered)).status).toBe(200);
  expect(await unserved(there, "served")).toBeUndefined();
  // Without a bus this node reads it within a look.
  await until(async () => (await unserved(here, "served")) === undefined, {
    about: "the worker of the other node",
    deadlineMs: 20_000,
  });
  for (const node of nodes)
    await until(async () => (await unserved(node, "alone"))?.[0] === "alone", {
      about: "what still has no worker",
      deadlineMs: 20_000,
    });
}, 90_000);
