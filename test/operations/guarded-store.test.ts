import { afterEach, describe, expect, test } from "bun:test";
import { Type } from "@sinclair/typebox";
import { type Operation, unary } from "../../src/kit/operation.ts";
import { sql } from "../../src/kit/sql.ts";
import type { Session, Store } from "../../src/store/store.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";

const query = sql`SELECT 1 AS one`;

/** What a careless service may do between BEGIN and COMMIT. */
const careless: Record<string, (store: Store, session: Session) => Promise<unknown>> = {
  one: (store) => store.one(query),
  all: (store) => store.all(query),
  write: (store) => store.write((session) => session.one(query)),
  deep: async (store, session) => {
    await session.one(query);
    await Promise.all([session.one(query), Promise.resolve().then(() => store.one(query))]);
  },
};

describe.each(engines)("on %s, every server of a test", (engine) => {
  let server: TestServer | undefined;
  afterEach(async () => {
    await server?.stop();
  });

  const planted = (work: (session: Session) => Promise<unknown>): Operation =>
    unary({
      name: "planted.write",
      action: "functions:list",
      scope: "none",
      summary: "Made up for the test.",
      input: Type.Object({}),
      output: Type.Object({}),
      rest: "POST /api/v1/planted",
      handle: async () => {
        await server!.running.domain.store.write(work);
        return {};
      },
    });
  const ask = async (work: (session: Session) => Promise<unknown>) => {
    server = await startTestServer({ engine, operations: [planted(work)] });
    return (await server.api("/api/v1/planted", { method: "POST", body: {} })).status;
  };

  test.each(Object.keys(careless))(
    "refuses and remembers `%s` of the pool inside a transaction",
    async (name) => {
      const status = await ask((session) => careless[name]!(server!.running.domain.store, session));
      const stopped = server!.stop();
      server = undefined;
      expect(status).toBe(500);
      await expect(stopped).rejects.toThrow(/inside a transaction/);
    },
  );

  test("leaves alone what asks its session, and what goes on after the commit", async () => {
    const later: Promise<unknown>[] = [];
    let committed = () => {};
    const commit = new Promise<void>((resolve) => {
      committed = resolve;
    });
    const status = await ask(async (session) => {
      later.push(commit.then(() => server!.running.domain.store.one(query)));
      await session.one(query);
    });
    committed();
    expect(status).toBeLessThan(300);
    expect(await later[0]).toEqual({ one: 1 });
  });
});
