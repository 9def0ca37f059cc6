import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const strangersCount = 300;
/** Those that run, and those that begin while the attempt is counted; 16 of them take a second. */
const hashesMax = 16;
const password = "correct horse battery staple";

describe.each(engines)("a crowd of strangers on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { trustProxy: true } });
    for (const name of ["known", "new"]) {
      const body = { email: `${name}@example.com`, name, password, roles: ["viewer"] };
      expect((await server.api("/api/v1/users", { body })).status).toBe(201);
    }
    expect((await login("known@example.com", "192.0.2.1")).status).toBe(200);
  });
  afterAll(() => server.stop());

  const login = (email: string, address: string, secret = password) =>
    server.api("/api/v1/auth/login", {
      ...{ body: { email, password: secret }, key: null },
      headers: { "x-forwarded-for": address },
    });

  // A hash takes as long as the machine lets it: what a person waits for is counted in hashes of others.
  test.each(["known", "new"])(
    "keeps a person (%s) from signing in for a few hashes",
    async (who) => {
      let hashed = 0;
      let refused = 0;
      const crowd = Array.from({ length: strangersCount }, async (_, place) => {
        const address = `10.${who.length}.${place >> 8}.${place & 255}`;
        const { status } = await login(`${who}${place}@example.org`, address, "guess");
        if (status === 401) hashed++;
        else refused++;
        return status;
      });
      // All of them have come, and those who wait are as many as may.
      await until(() => hashed + refused >= strangersCount - 55, { about: "the crowd" });
      const before = hashed;
      expect((await login(`${who}@example.com`, "192.0.2.1")).status).toBe(200);
      expect(hashed - before).toBeLessThan(hashesMax);
      expect([...new Set(await Promise.all(crowd))].sort()).toEqual([401, 429]);
    },
    60_000,
  );
});
