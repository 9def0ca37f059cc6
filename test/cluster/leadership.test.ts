import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { BusTransport, Hold } from "../../src/bus/bus.ts";
import { localNetwork } from "../../src/bus/local.ts";
import { systemClock, type TestClock, testClock } from "../../src/kit/clock.ts";
import { silentLog } from "../../src/kit/log.ts";
import { sql } from "../../src/kit/sql.ts";
import { dutyLoop } from "../../src/nodes/duties.ts";
import { Deposed, type Leadership, leadership, writeAsLeader } from "../../src/nodes/leader.ts";
import { openStore } from "../../src/store/open.ts";
import type { Store } from "../../src/store/store.ts";
import { sharedPostgres } from "../support/postgres.ts";
import { until } from "../support/until.ts";

/** Two nodes over one PostgreSQL, with a clock that only the test moves. */
interface Node {
  lead: Leadership;
  bus: BusTransport;
  /** The node reaches no bus while this is set. */
  away: boolean;
  uncertaintyMs: number;
}

describe("leadership", () => {
  let store: Store;
  let clock: TestClock;
  let duty = "";
  let count = 0;

  beforeAll(async () => {
    const postgres = await sharedPostgres();
    clock = testClock();
    store = await openStore({
      clock: systemClock(),
      log: silentLog,
      databaseUrl: await postgres.createDatabase(),
      // A pause of this process shall end no transaction.
      limits: { idleInTransactionMs: 60_000 },
    });
    await store.write((session) => session.run(sql`CREATE TABLE written (epoch BIGINT NOT NULL)`));
  });
  afterAll(() => store.close());

  const house = (nodes: number, more: readonly string[] = []): Node[] => {
    duty = `duty-${++count}`;
    const hub = localNetwork();
    return Array.from({ length: nodes }, (_, at) => {
      const nodeId = `n${at + 1}`;
      const bus = hub({ clock, nodeId, onError: () => {} });
      const node: Node = {
        bus,
        away: false,
        uncertaintyMs: 0,
        lead: leadership({
          store,
          clock,
          log: silentLog,
          nodeId,
          duties: [duty, ...more],
          uncertaintyMs: () => node.uncertaintyMs,
          bus: {
            hold: async (name): Promise<Hold> => (node.away ? "unreachable" : bus.hold(name)),
            release: async (name) => (node.away ? undefined : bus.release(name)),
          },
        }),
      };
      return node;
    });
  };
  const round = async (...nodes: Node[]) => {
    for (const node of nodes) await node.lead.campaignOnce();
    await clock.advance(1_000);
  };
  const epochs = (...nodes: Node[]) => nodes.map((node) => node.lead.epochOf(duty));

  test("one leads and goes on leading; the others do not", async () => {
    const [a, b] = house(2) as [Node, Node];
    for (let n = 0; n < 10; n++) {
      await round(a, b);
      expect(epochs(a, b)).toEqual([1, undefined]);
    }
  });

  test("who resigns is followed at once", async () => {
    const [a, b] = house(2) as [Node, Node];
    await round(a, b);
    await a.lead.resign();
    // Health tells of a duty that nobody leads by how long its lease has been over.
    const left = (await a.lead.leaders()).find((row) => row.duty === duty)!;
    expect(left.lease_until).toBe(clock.now());
    await round(b, a);
    expect(epochs(a, b)).toEqual([undefined, 2]);
  });

  test("who falls silent is followed when its lease is over, not before", async () => {
    const [a, b] = house(2) as [Node, Node];
    await round(a, b);
    // The bus has given the name away already.
    await a.bus.release(`duty.${duty}`);
    await round(b);
    expect(epochs(b)).toEqual([undefined]);
    await clock.advance(1_000);
    expect(epochs(a)).toEqual([undefined]);
    await round(b);
    expect(epochs(a, b)).toEqual([undefined, 2]);
  });

  test("without a bus the holder goes on, and another takes over when it stops", async () => {
    const [a, b] = house(2) as [Node, Node];
    await round(a, b);
    a.away = true;
    b.away = true;
    for (let n = 0; n < 10; n++) await round(a, b);
    expect(epochs(a, b)).toEqual([1, undefined]);
    for (let n = 0; n < 4; n++) await round(b);
    expect(epochs(a, b)).toEqual([undefined, 2]);
    await round(a, b);
    expect(epochs(a, b)).toEqual([undefined, 2]);
  });

  test("a holder that finds the name with another gives the duty up", async () => {
    const [a, b] = house(2) as [Node, Node];
    await round(a, b);
    await a.bus.release(`duty.${duty}`);
    await b.bus.hold(`duty.${duty}`);
    await round(b, a);
    expect(epochs(a, b)).toEqual([undefined, undefined]);
    await round(b, a);
    expect(epochs(a, b)).toEqual([undefined, 2]);
  });

  test("who is not sure of the time does not lead", async () => {
    const [a, b] = house(2) as [Node, Node];
    await round(a, b);
    a.uncertaintyMs = 251;
    await round(a);
    expect(epochs(a)).toEqual([undefined]);
    a.uncertaintyMs = 0;
    await round(a, b);
    expect(epochs(a, b)).toEqual([2, undefined]);
  });

  test("a leader that was frozen past its lease writes nothing, even if it believes it leads", async () => {
    const [a, b] = house(2) as [Node, Node];
    await round(a, b);
    const told: string[] = [];
    const log = { ...silentLog, warn: (event: string) => void told.push(event) };
    // Frozen between the look at its epoch and its write: the loop believes it leads for ever.
    const frozen = dutyLoop(
      { store, log, leadership: { epochOf: () => 1 } },
      {
        duty,
        name: "written",
        about: "Writes.",
        everyMs: 1_000,
        tick: (write) =>
          write((session) => session.run(sql`INSERT INTO written (epoch) VALUES (1)`)).then(() => {}),
      },
    );
    await frozen.tick();
    expect(told).toEqual([]);
    await a.bus.release(`duty.${duty}`);
    for (let n = 0; n < 4; n++) await round(b);
    expect(epochs(b)).toEqual([2]);
    await frozen.tick();
    expect(told).toEqual(["cluster.deposed"]);
    expect(await store.all(sql`SELECT epoch FROM written`)).toEqual([{ epoch: 1 }]);
    const late = writeAsLeader(store, duty, 1, async () => {});
    expect(await late.catch((error: unknown) => error)).toBeInstanceOf(Deposed);
  });

  test("a duty whose row a write holds keeps no other from its renewal", async () => {
    const beside = [1, 2, 3].map((n) => `beside-${n}`);
    const [a] = house(1, beside) as [Node];
    await round(a);
    const leases = async () => {
      const rows = await a.lead.leaders();
      return beside.map((name) => rows.find((row) => row.duty === name)!.lease_until);
    };
    const before = await leases();
    let keeping: Promise<void> = Promise.resolve();
    await writeAsLeader(store, duty, 1, async () => {
      keeping = a.lead.campaignOnce();
      await until(async () => (await leases()).every((at, place) => at > before[place]!), {
        about: "the other leases",
      });
    });
    await keeping;
    expect(epochs(a)).toEqual([1]);
    await clock.advance(2_500);
    expect([duty, ...beside].map(a.lead.epochOf)).toEqual([1, 1, 1, 1]);
  });

  test("nobody takes over in the middle of a leader's transaction", async () => {
    const [a, b] = house(2) as [Node, Node];
    await round(a, b);
    await clock.advance(5_000);
    await a.bus.release(`duty.${duty}`);
    let taking: Promise<void> = Promise.resolve();
    const seen = await writeAsLeader(store, duty, 1, async (session) => {
      taking = b.lead.campaignOnce();
      await session.one(sql`SELECT pg_sleep(0.2)`);
      return b.lead.epochOf(duty);
    });
    expect(seen).toBeUndefined();
    await taking;
    expect(epochs(b)).toEqual([2]);
  });
});
