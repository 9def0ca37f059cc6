import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdtemp, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { importOrg, seedOf } from "../../src/cli/import.ts";
import { idsFor } from "../../src/cli/import-rows.ts";
import { type SystemClock, systemClock } from "../../src/kit/clock.ts";
import { sql } from "../../src/kit/sql.ts";
import { exportOf, type ReadExport, sealed } from "../support/exports.ts";
import { type FurnishedOrg, furnishOrg } from "../support/furnished-org.ts";
import { removeFolder } from "../support/process.ts";
import { engines, type Home, makeHome, startTestServer, type TestServer } from "../support/server.ts";

describe.each(engines)("imports on %s", (engine) => {
  let folder: string;
  let org: FurnishedOrg;
  let original: ReadExport;
  /** Another installation, whose server stands still. */
  let home: Home;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "svc-import-"));
    const server = await startTestServer({ engine });
    org = await furnishOrg(server, "moves");
    for (let number = 0; number < 700; number++)
      await org.rpc("Emit", { event: "many.events", data: { number, big: 2 ** 60, text: "\u2028é\n" } });
    for (let version = 0; version < 3; version++)
      await org.api("/svc.v1.EntityStreamService/AppendEvent", {
        body: {
          ...{ entityId: "stream-1", entityType: "thing", eventName: "thing.changed" },
          ...{ data: { version }, expectedVersion: -1 },
        },
      });
    original = await exportOf(server.url, org.key);
    await server.stop();
    home = await makeHome(engine);
    await (await startTestServer({ engine, home })).stop();
  }, 60_000);
  afterAll(async () => {
    await home.remove();
    await removeFolder(folder);
  });

  const importing = (text: string, ...further: string[]) => importingAt(systemClock(), text, ...further);

  async function importingAt(clock: SystemClock, text: string, ...further: string[]) {
    const file = join(folder, "export.ndjson");
    await writeFile(file, text);
    const place =
      home.place.databaseUrl === undefined
        ? ["--db", home.place.db]
        : ["--database-url", home.place.databaseUrl];
    const said: string[] = [];
    const command = { environment: {}, clock, say: (line: string) => void said.push(line) };
    const outcome = await importOrg({ ...command, argv: [file, ...place, ...further] });
    return { ...outcome, said: said.join("\n"), orgId: /org (org_\w+)/.exec(said.join("\n"))?.[1] ?? "" };
  }

  const withServer = async <T>(work: (server: TestServer) => Promise<T>): Promise<T> => {
    const server = await startTestServer({ engine, home });
    try {
      return await work(server);
    } finally {
      await server.stop();
    }
  };

  const left = new Set(["audit", "webhooks", "end"]);
  /** Lines without what an import changes: ids by their first appearance, and the times that it names. */
  function comparable({ lines }: ReadExport, { isFirst }: { isFirst: boolean }) {
    const names = new Map<string, string>();
    const anonymous = (text: string) =>
      text.replaceAll(/\b(evt|run|env|proj|org|role|pol|usr|snap)_[0-9a-z]+\b/g, (id, kind) => {
        if (/^role_(admin|developer|viewer)$/.test(id)) return id;
        if (!names.has(id)) names.set(id, `${kind}#${names.size}`);
        return names.get(id)!;
      });
    return lines
      .filter(({ section }) => !left.has(section))
      .map((line) => {
        const { exported_at, ...own } = line;
        if (own.section === "meta") return { ...own, org: { name: own.org.name } };
        const wasActive = own.kind === "runs" && own.row.status === "active";
        const row = wasActive
          ? {
              ...own.row,
              ...{ status: "cancelled", trouble: "cancelled", cancellation_cause: "imported" },
              ended_at: Date.parse(original.meta.exported_at),
            }
          : own.row;
        return { ...own, row: isFirst ? row : own.row };
      })
      .map((line) => JSON.parse(anonymous(JSON.stringify(line))));
  }

  async function exportAgain(orgId: string) {
    return withServer(async (server) => {
      const { keys, store } = server.running.domain;
      const found = await store.one<{ id: string }>(sql`SELECT id FROM environments WHERE org_id = ${orgId}`);
      const environment = found!.id;
      const made = { orgId, environmentId: environment, name: "again", roleIds: ["role_admin"] };
      const { key } = await keys.create(made);
      const again = await exportOf(server.url, key);
      const report = await server.api("/api/v1/integrity", { key, environment });
      const emitted = await server.rpc("SvcService", "Emit", { event: "goes.on" }, { key, environment });
      return { again, report: report.body, emitted: emitted.body, environment };
    });
  }

  const orgCount = () =>
    withServer(async ({ running }) => {
      const { store } = running.domain;
      const one = await store.one<{ count: number }>(sql`SELECT (SELECT count(*) FROM orgs)
        + (SELECT count(*) FROM imports) + (SELECT count(*) FROM environments) AS count`);
      return one!.count;
    });

  test("a file that is cut, altered, of another version or hostile changes nothing", async () => {
    const before = await orgCount();
    const { text } = original;
    const altered = (from: string, to: string) => {
      expect(text).toContain(from);
      return text.replace(from, to);
    };
    const event = original.rowsOf("events")[5]!;
    const bad: [name: string, file: string, reason: string][] = [
      ["empty", "", "empty"],
      ["cut in a line", text.slice(0, text.length / 2), "cut"],
      ["cut between lines", text.slice(0, text.lastIndexOf("\n", text.length - 2) + 1), "cut"],
      ["altered", altered('"number":7', '"number":8'), "altered"],
      ["counts", text.replace(/"streams":(\d+)/, '"streams":1$1'), "counts"],
      ["version", sealed(altered('"format_version":1', '"format_version":2')), "format_version 2"],
      ["a part", sealed(altered('"whole":true', '"whole":false')), "a part of an org"],
      ["no JSON", sealed(altered('"kind":"streams",', '"kind":"streams",,')), "no JSON"],
      [
        "a foreign table",
        sealed(altered('"kind":"streams"', '"kind":"api_keys"')),
        "unknown section or kind",
      ],
      ["a foreign column", sealed(altered('"entity_type":"same', '"lease_hash":"same')), "unknown column"],
      [
        "a foreign environment",
        sealed(altered(`"environment_id":"${org.environmentId}"`, '"environment_id":"env_default"')),
        "environment_id",
      ],
      [
        "a number",
        sealed(altered(`"position":${event.position}`, '"position":"6"')),
        "position must be an integer",
      ],
      ["a gap", sealed(text.replace(/\{[^\n]*"kind":"events"[^\n]*"position":6,[^\n]*\n/, "")), "gap"],
      ["an id", sealed(altered(`"id":"${event.id}"`, '"id":"x"')), "no id of ours"],
      [
        "stream versions",
        sealed(text.replace(/("entity_id":"stream-1","entity_type":"thing","version":)3/, "$15")),
        "versions of its streams",
      ],
    ];
    for (const [name, file, reason] of bad) {
      const { did, reasons } = await importing(file);
      expect({ name, did }).toEqual({ name, did: "nothing: refused" });
      expect(reasons.join("\n"), name).toContain(reason);
    }
    // The last two were found late: the org that was made for them is empty.
    expect(await orgCount()).toBeLessThanOrEqual(before + 2);
    expect((await importing(original.text, "--org", "org_default")).reasons.join()).toContain("not empty");
    expect((await importing(original.text, "--org", "org_none")).reasons.join()).toContain("not found");
    expect((await importing(original.text, "--undo")).reasons.join()).toContain("no import");
  });

  test("an import that broke off goes on, or is taken back; the org is then as it was", async () => {
    const seen: string[] = [];
    // The database refuses one row in the middle: an id that is taken.
    const taken = original.rowsOf("events")[650]!.id as string;
    const orgId = "org_target";
    const clock = { ...systemClock(), now: () => 1_700_000_000_000 };
    const blocker = idsFor(seedOf({ org_id: orgId, started_at: clock.now() }))(taken)!;
    await withServer(async ({ running }) => {
      await running.domain.store.write(async (session) => {
        await session.run(
          sql`INSERT INTO orgs (id, name, created_at, updated_at) VALUES (${orgId}, 'target', 1, 1)`,
        );
        await session.run(sql`INSERT INTO events (environment_id, position, id, name, version, data, source, at)
          VALUES ('env_block', 1, ${blocker}, 'block', 1, 'null', 'api', ${clock.now()})`);
      });
    });
    const broken = await importingAt(clock, original.text, "--org", orgId);
    expect(broken.did).toBe("nothing: refused");
    expect(broken.reasons.join("\n")).toContain("the same command goes on");
    await withServer(async ({ running }) => {
      const { store } = running.domain;
      // Nobody sees it before it is whole.
      expect(await store.all(sql`SELECT id FROM environments WHERE org_id = ${orgId}`)).toEqual([]);
      await store.write((session) => session.run(sql`DELETE FROM events WHERE id = ${blocker}`));
    });
    const undone = await importing(original.text, "--undo");
    expect(undone.said).toContain("taken back");
    await withServer(async ({ running }) => {
      const { store } = running.domain;
      expect(
        await store.all(sql`SELECT id FROM projects WHERE org_id = ${orgId}
        UNION ALL SELECT org_id FROM imports`),
      ).toEqual([]);
      seen.push(
        ...(
          await store.all<{ id: string }>(sql`SELECT id FROM deleted_environments
        WHERE org_id = ${orgId}`)
        ).map(({ id }) => id),
      );
    });
    expect(seen).toHaveLength(1);
  });

  test("an org comes back as it left, whole, and goes on", async () => {
    const first = await importing(original.text);
    expect(first.reasons).toEqual([]);
    const { again, report, emitted, environment } = await exportAgain(first.orgId);
    expect(comparable(again, { isFirst: false })).toEqual(comparable(original, { isFirst: true }));
    expect(report.checks.filter(({ count }: { count: number }) => count > 0)).toEqual([]);
    expect(report.balanced).toBe(true);
    expect(Number(emitted.sequence)).toBe(original.meta.environments[0].position + 1);
    expect(environment).not.toBe(org.environmentId);

    // Beside the first, in the same installation: other ids, and nobody twice.
    const second = await importing(original.text);
    expect(second.reasons).toEqual([]);
    expect(second.said).toContain("1 users are left out");
    expect(second.orgId).not.toBe(first.orgId);
    const beside = await exportAgain(second.orgId);
    expect(beside.report.balanced).toBe(true);
    expect(beside.again.rowsOf("events").length).toBe(original.rowsOf("events").length);
  });
});
