import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import * as rows from "../../src/domain/record/audit/rows.ts";
import { headSignature, rowHash } from "../../src/domain/record/audit/rules.ts";
import { sql } from "../../src/kit/sql.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";

const orgId = "org_forged";
const guessed = "a key that the forger made up";

/** Whoever has the database, knows how a chain is built, and has no master key. */
describe.each(engines)("a chain that was built anew without the key, on %s", (engine) => {
  let server: TestServer;
  let key: string;
  let kept: { rows: rows.StoredRow[]; head: Awaited<ReturnType<typeof rows.headOf>> };
  const store = () => server.running.domain.store;

  beforeAll(async () => {
    server = await startTestServer({ engine });
    const wanted = { orgId, environmentId: "env_default", name: "admin", roleIds: ["role_admin"] };
    ({ key } = await server.running.domain.keys.create(wanted));
    for (let count = 0; count < 6; count++)
      await server.api("/api/v1/roles/role_viewer", { method: "DELETE", key });
    await server.running.tick("audit.flush");
    kept = { rows: await rows.rowsAfter(store(), orgId, 0, 100), head: await rows.headOf(store(), orgId) };
    expect(kept.rows).toHaveLength(6);
  }, 120_000);
  afterAll(() => server.stop());

  const verify = async () => (await server.api("/api/v1/audit/verify", { key })).body;
  const putBack = (all: readonly rows.StoredRow[], head = kept.head!) =>
    store().write(async (session) => {
      await session.run(sql`DELETE FROM auth_audit WHERE org_id = ${orgId}`);
      await rows.insertRows(session, all);
      await rows.updateHeads(session, [head]);
    });
  beforeEach(async () => {
    await putBack(kept.rows);
    expect(await verify()).toMatchObject({ valid: true, checked: 6 });
  });

  /** Hashes from the row at `from` on, and the head, with the forger's key. */
  function rebuilt(all: readonly rows.StoredRow[], from: number, keyId: string) {
    let before = from === 0 ? kept.head!.floorHash : all[from - 1]!.hash;
    const forged = all.map((row, at) => {
      if (at < from) return row;
      const own = { ...row, sequence: at + 1, keyId };
      before = rowHash(guessed, before, own);
      return { ...own, hash: before };
    });
    const head = { ...kept.head!, sequence: forged.length, hash: before, keyId };
    return { forged, head: { ...head, signature: headSignature(guessed, head) } };
  }
  const innocent = () => kept.rows.map((row) => ({ ...row, callerId: "ak_somebody_else" }));

  test("from its first row, under the name of the key that is", async () => {
    const { forged, head } = rebuilt(innocent(), 0, kept.head!.keyId);
    await putBack(forged, head);
    expect(await verify()).toMatchObject({ valid: false, broken: { sequence: 1 } });
  });

  test("under the name of a key of the forger's own", async () => {
    const { forged, head } = rebuilt(innocent(), 0, "key_of_the_forger");
    await putBack(forged, head);
    const { broken } = await verify();
    expect(broken).toEqual({ sequence: 1, reason: "hashed with a key that this installation never had" });
  });

  test("from a row in its middle", async () => {
    const { forged, head } = rebuilt(
      innocent().map((row, at) => (at < 3 ? kept.rows[at]! : row)),
      3,
      kept.head!.keyId,
    );
    await putBack(forged, head);
    expect(await verify()).toMatchObject({ valid: false, broken: { sequence: 4 } });
  });

  test("without one of its rows, the others moved up", async () => {
    const { forged, head } = rebuilt(kept.rows.toSpliced(2, 1), 2, kept.head!.keyId);
    await putBack(forged, head);
    expect(await verify()).toMatchObject({ valid: false, broken: { sequence: 3 } });
  });

  test("with two rows in each other's place", async () => {
    const swapped = kept.rows
      .with(1, { ...kept.rows[2]!, sequence: 2 })
      .with(2, { ...kept.rows[1]!, sequence: 3 });
    await putBack(swapped);
    expect(await verify()).toMatchObject({ valid: false, broken: { sequence: 2 } });
  });

  test("shorter by its tail, with a head that the forger signed", async () => {
    const { forged, head } = rebuilt(kept.rows.slice(0, 4), 4, kept.head!.keyId);
    await putBack(forged, head);
    const { valid, broken } = await verify();
    expect(valid).toBe(false);
    expect(broken.sequence).toBe(4);
  });
});
