import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { plant } from "../support/plant.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";

describe.each(engines)("what functions one environment may have on %s", (engine) => {
  let server: TestServer;
  let otherKey: string;
  const register = async (id: string, more: object = {}, key = server.adminKey) => {
    const { status, body } = await server.rpc("SvcService", "RegisterFunction", { id, ...more }, { key });
    return { status, code: body.code, message: body.message };
  };
  const ok = { status: 200 };
  const full = (text: string) => ({
    status: 429,
    code: "resource_exhausted",
    message: `at most ${text} in one environment`,
  });
  const crons = (count: number) => ({
    triggers: Array.from({ length: count }, (_, at) => ({ cron: `${at} 0 1 1 *` })),
  });
  /** As if so many more were registered. */
  const planted = (count: number, values: Record<string, string>) =>
    plant(server.running.domain.store, "functions", count, {
      environment_id: `'${server.env}'`,
      id: "'planted-' || n",
      slug: "'planted-' || n",
      status: "'archived'",
      definition: "'{}'",
      ...values,
    });
  const removePlanted = () =>
    server.running.domain.store.write((session) =>
      session.run(sql`DELETE FROM functions WHERE id LIKE 'planted-%'`),
    );

  beforeAll(async () => {
    server = await startTestServer({ engine });
    const { id } = (await server.api("/api/v1/environments", { body: { name: "other" } })).body;
    otherKey = (await server.api("/api/v1/apikeys", { body: { name: "other", env_id: id } })).body.key;
  });
  afterAll(() => server.stop());

  test("5,000 functions; those that are there may change", async () => {
    expect(await register("first")).toMatchObject(ok);
    await planted(4_999, {});
    expect(await register("one-more")).toEqual(full("5000 functions"));
    expect(await register("first", { description: "changed" })).toMatchObject(ok);
    expect(await register("theirs", {}, otherKey)).toMatchObject(ok);
    await removePlanted();
    expect(await register("one-more")).toMatchObject(ok);
  });

  test("1,000 cron triggers; fewer of them are always welcome", async () => {
    expect(await register("many", crons(50))).toMatchObject(ok);
    await planted(19, { cron_count: "50" });
    expect(await register("extra", crons(1))).toEqual(full("1000 cron triggers"));
    expect(await register("plain")).toMatchObject(ok);
    expect(await register("many", crons(49))).toMatchObject(ok);
    expect(await register("extra", crons(1))).toMatchObject(ok);
    expect(await register("extra", crons(2))).toEqual(full("1000 cron triggers"));
    expect(await register("theirs", crons(50), otherKey)).toMatchObject(ok);
    await removePlanted();
  });

  test("16 MiB of definitions", async () => {
    await planted(1, { definition_bytes: `${16 * 1024 * 1024 - 2_000}` });
    const metadata = { text: "x".repeat(4_000) };
    expect(await register("wordy", { metadata })).toEqual(full("16777216 bytes of function definitions"));
    await removePlanted();
    expect(await register("wordy", { metadata })).toMatchObject(ok);
  });

  test("a cron expression of more than 512 bytes is refused by its field", async () => {
    const cron = `${Array.from({ length: 300 }, () => "1").join(",")} * * * *`;
    expect(await register("long", { triggers: [{ event: "e" }, { cron }] })).toMatchObject({
      status: 400,
      code: "invalid_argument",
      message: "triggers[1].cron: must be at most 512 bytes",
    });
  });
});
