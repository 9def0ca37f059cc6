import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { type LivedTime, livedTime } from "../support/lived.ts";
import { isNight } from "../support/night.ts";
import { until } from "../support/until.ts";
import { chanceOf } from "./faults.ts";
import { startWorld, type World, type WorldNode } from "./world.ts";

interface Lead {
  duty: string;
  node_id: string;
  epoch: number;
}

const takeoverMs = 5_000;
const awayMs = Number(process.env.SVC_TEST_AWAY_MS ?? 12_000);

describe("leadership of three nodes", () => {
  let world: World;
  let time: LivedTime;
  beforeAll(async () => {
    world = await startWorld();
    time = await livedTime(world.home.place.databaseUrl);
  }, 120_000);
  afterAll(async () => {
    await time?.stop();
    await world?.stop();
  }, 120_000);

  const idOf = (node: WorldNode) => `node-${world.nodes.indexOf(node) + 1}`;
  const leadSeenBy = async (node: WorldNode): Promise<Lead | undefined> => {
    const { body } = await node.server.api("/api/v1/cluster/health");
    return body.leaders.find((lead: Lead) => lead.duty === "retention");
  };
  const led = (): Promise<{ lead: Lead; node: WorldNode }> =>
    until(
      async () => {
        const lead = await leadSeenBy(world.nodes[0]!);
        const node = world.nodes.find((one) => idOf(one) === lead?.node_id);
        return lead && node && { lead, node };
      },
      { about: "a leader", everyMs: 50 },
    );
  const successorOf = (lead: Lead, seenFrom: WorldNode) =>
    until(
      async () => {
        const next = await leadSeenBy(seenFrom);
        return next && next.epoch > lead.epoch ? next : undefined;
      },
      { about: "another leader", everyMs: 20 },
    );
  const signal = (name: NodeJS.Signals) => async (node: WorldNode) => {
    process.kill(node.server.pid(), name);
  };
  const other = (node: WorldNode) => world.nodes.find((one) => one !== node)!;

  test.each([
    ["killed", (node: WorldNode) => node.server.kill9(), (node: WorldNode) => node.server.restart()],
    ["frozen", signal("SIGSTOP"), signal("SIGCONT")],
  ] as const)(
    "a leader that is %s is followed within five seconds, and does not lead when it is back",
    async (_, harm, undo) => {
      const { lead, node } = await led();
      const harmedAt = time.now();
      await harm(node);
      const next = await successorOf(lead, other(node));
      expect(time.now() - harmedAt).toBeLessThan(takeoverMs);
      expect(next.node_id).not.toBe(lead.node_id);
      await undo(node);
      const back = await until(() => leadSeenBy(node), { about: "the node to be back", everyMs: 50 });
      expect(back.node_id).not.toBe(lead.node_id);
      // Unless its successor was held up in turn, and the third leads.
      if (back.epoch === next.epoch) expect(back.node_id).toBe(next.node_id);
      expect(back.epoch).toBeGreaterThanOrEqual(next.epoch);
    },
    90_000,
  );

  test("a leader that is told to stop is followed at once", async () => {
    const { lead, node } = await led();
    await node.server.terminate();
    const endedAt = time.now();
    const next = await successorOf(lead, other(node));
    expect(time.now() - endedAt).toBeLessThan(2_000);
    expect(next.node_id).not.toBe(lead.node_id);
    await node.server.restart();
  }, 90_000);

  test.if(isNight)(
    "while NATS is away the leader stays, accepting and running go on, and nobody is confused afterwards",
    async () => {
      const { lead } = await led();
      await Promise.all(world.nats.servers.map((server) => server.shutDown()));
      await world.load(chanceOf(1), (acked) =>
        Promise.all([Bun.sleep(awayMs), until(() => acked() > 100, { about: "accepting to go on" })]),
      );
      expect(await world.check()).toEqual([]);
      expect(await leadSeenBy(world.nodes[0]!)).toMatchObject({ epoch: lead.epoch, node_id: lead.node_id });
      await Promise.all(world.nats.servers.map((server) => server.restart()));
      const health = () => world.nodes[0]!.server.api("/api/v1/cluster/health");
      const healthy = await until(
        async () => {
          const { body } = await health();
          return body.status === "healthy" ? body : undefined;
        },
        { about: "a healthy cluster", deadlineMs: 40_000, everyMs: 100 },
      );
      expect(healthy.nodes.length).toBe(3);
      // One a duty.
      expect(healthy.leaders.map((leader: { duty: string }) => leader.duty).sort()).toEqual([
        "alerts",
        "cron",
        "outbox",
        "retention",
      ]);
    },
    150_000 + awayMs,
  );
});
