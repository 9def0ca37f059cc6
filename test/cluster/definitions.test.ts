import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { startNats } from "../support/nats.ts";
import { isNight } from "../support/night.ts";
import { freePort } from "../support/process.ts";
import {
  type Caller,
  callerOf,
  type Home,
  makeHome,
  type SpawnedServer,
  spawnServer,
} from "../support/server.ts";
import { until } from "../support/until.ts";
import { concurrently, type Tenant, tenantsIn } from "./load.ts";

const environments = 20;
const functionsEach = isNight ? 50 : 6;

/** A bus's address, and what happens to the bus once the nodes are up. */
const buses: { bus: string; open(): Promise<{ url?: string; stop?(): Promise<void> }> }[] = [
  { bus: "without a bus", open: async () => ({}) },
  {
    bus: "with a bus that was never there",
    open: async () => ({ url: `nats://127.0.0.1:${await freePort()}` }),
  },
  { bus: "with a bus that went away", open: () => startNats() },
];

describe.each(buses)("two nodes $bus", ({ open }) => {
  let home: Home;
  let nodes: SpawnedServer[] = [];
  let tenants: Tenant[];

  beforeAll(async () => {
    home = await makeHome("postgres");
    tenants = await tenantsIn(home, environments);
    const { url, stop } = await open();
    nodes = await Promise.all(
      [1, 2].map(() => spawnServer({ engine: "postgres", home, ...(url !== undefined && { nats: url }) })),
    );
    await stop?.();
  }, 90_000);
  afterAll(async () => {
    await Promise.all(nodes.map((node) => node.stop()));
    await home?.remove();
  }, 120_000);

  /** What a call answers. A busy machine makes a database slow: then it says so, and is asked again. */
  const takenBy = async (node: Caller, method: string, message: object) => {
    const ask = () => node.rpc("SvcService", method, message);
    const about = `an answer to ${method}`;
    const answer = await until(() => ask().then((one) => one.status !== 503 && one), { about });
    expect(answer).toMatchObject({ status: 200 });
    return answer.body;
  };

  test("a function registered on one triggers on the next event of the other, every time", async () => {
    const started: string[] = [];
    await concurrently(environments, 8, async (number) => {
      const { key } = tenants[number]!;
      const [first, second] = nodes.map(({ url }) =>
        callerOf(
          () => url,
          () => key,
        ),
      ) as [ReturnType<typeof callerOf>, ReturnType<typeof callerOf>];
      // The other node knows the definitions from before: an emit that started nothing has read them.
      await second.rpc("SvcService", "Emit", { event: "warm.up" });
      for (let count = 0; count < functionsEach; count++) {
        const [a, b] = count % 2 === 0 ? [first, second] : [second, first];
        const id = `function-${number}-${count}`;
        const triggers = [{ event: `event.${count}` }];
        await takenBy(a, "RegisterFunction", { id, triggers });
        const body = await takenBy(b, "Emit", { event: `event.${count}`, idempotencyKey: id });
        if (body.runIds?.length === 1) started.push(id);
      }
    });
    expect(started).toHaveLength(environments * functionsEach);
  }, 120_000);
});
