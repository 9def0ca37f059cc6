import { describe, expect, test } from "bun:test";
import { Type } from "@sinclair/typebox";
import { unary } from "../../src/kit/operation.ts";
import { sql } from "../../src/kit/sql.ts";
import { isNight } from "../support/night.ts";
import { engines } from "../support/server.ts";
import { tryDoors } from "./doors.suite.ts";

const options = { seed: 1, long: false, engines, log: () => {} };

describe("what comes in by any door leaves by every door", () => {
  // By day all doors are tried on libSQL, with planted breaches: below.
  test.if(isNight).each(engines)(
    "on %s",
    async (engine) => {
      const { attempts, breaches } = await tryDoors(engine, options);
      expect(breaches).toEqual([]);
      expect(attempts).toBeGreaterThan(2_000);
    },
    480_000,
  );

  test("a door that nobody tries, and a value that is another at some door, are found", async () => {
    const planted = unary({
      name: "planted.free",
      action: "runs:read",
      summary: "Takes any JSON, and gives it.",
      input: Type.Object({ anything: Type.Optional(Type.Unknown()) }),
      output: Type.Object({ anything: Type.Unknown() }),
      rest: "POST /api/v1/planted",
      handle: async () => ({ anything: 1 }),
    });
    const { breaches } = await tryDoors("libsql", options, {
      operations: [planted],
      async meddle({ running }, { eventIds, runIds }) {
        const { store } = running.domain;
        await store.write(async (session) => {
          await session.run(sql`UPDATE events SET data = ${'{"other":1}'} WHERE id = ${eventIds[3]!}`);
          await session.run(sql`UPDATE runs SET output = ${"[7]"} WHERE id = ${runIds[4]!}`);
        });
      },
    });
    const found = breaches.join("\n");
    expect(breaches.filter((breach) => breach.includes("no door of this suite"))).toEqual([
      "planted.free takes free JSON and no door of this suite tries it",
      "planted.free gives free JSON and no door of this suite tries it",
    ]);
    for (const door of [
      "GET event",
      "GET events",
      "GetRun, output, over grpc",
      "Subscribe, replay, over connect binary",
      "/ws, replay",
    ])
      expect(found).toContain(` at ${door}: `);
    expect(found).not.toContain(" at /ws, live: ");
  }, 480_000);
});
