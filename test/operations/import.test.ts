import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdtemp, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { requireRow } from "../../src/app/import-readers.ts";
import { importOrg, seedOf } from "../../src/cli/import.ts";
import { idsFor } from "../../src/cli/import-rows.ts";
import { rawCommands } from "../../src/cli/raw-commands.ts";
import { type SystemClock, systemClock } from "../../src/kit/clock.ts";
import { type Sql, sql } from "../../src/kit/sql.ts";
import { exportedTables } from "../../src/store/exported-tables.ts";
import { makeCli } from "../support/cli.ts";
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
    for (let batch = 0; batch < 12; batch++)
      await org.rpc("TriggerBatch", {
        events: Array.from({ length: 100 }, (_, at) => ({
          ...{ event: "many.events", data: { number: 100 * batch + at, big: 2 ** 60, text: "\u2028é\n" } },
        })),
      });
    for (let version = 0; version < 3; version++)
      await org.api("/svc.v1.EntityStreamService/AppendEvent", {
        body: {
          ...{ entityId: "stream-1", entityType: "thing", eventName: "thing.changed" },
          ...{ data: { version }, expectedVersion: -1 },
        },
      });
    // Names that no emit would take: an invoke logs its event by them.
    await org.rpc("RegisterFunction", { id: "..dots...in.." });
    await org.rpc("InvokeFunction", { functionId: "..dots...in..", data: {} });
    const projection = (method: string, body: object) =>
      org.api(`/svc.v1.ProjectionService/${method}`, { body: { name: "same", ...body } });
    const { events } = await projection("PollProjectionEvents", { batchSize: 10 });
    const { id, seq } = events.at(-1);
    await projection("SaveProjectionState", {
      ...{ partitionKey: "__global__", state: { seen: events.length }, lastEventId: id, lastEventSeq: seq },
    });
    original = await exportOf(server.url, org.key);
    await server.stop();
    home = await makeHome(engine);
    await (await startTestServer({ engine, home })).stop();
  }, 120_000);
  afterAll(async () => {
    await home.remove();
    await removeFolder(folder);
  });

  async function wordsOf(text: string): Promise<string[]> {
    const file = join(folder, "export.ndjson");
    await writeFile(file, text);
    const { databaseUrl, db } = home.place;
    return [file, ...(databaseUrl === undefined ? ["--db", db] : ["--database-url", databaseUrl])];
  }

  const importing = (text: string, ...further: string[]) => importingAt(systemClock(), text, ...further);

  async function importingAt(clock: SystemClock, text: string, ...further: string[]) {
    const said: string[] = [];
    const command = { environment: {}, clock, say: (line: string) => void said.push(line) };
    const outcome = await importOrg({ ...command, requireRow, argv: [...(await wordsOf(text)), ...further] });
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
  const endedHere = { status: "cancelled", trouble: "cancelled", cancellation_cause: "imported" };

  /** Lines without what an import changes: ids by their first appearance, and runs that were not over. */
  function comparable({ lines, meta }: ReadExport) {
    const names = new Map<string, string>();
    const anonymous = (id: unknown) => {
      if (typeof id !== "string" || /^role_(admin|developer|viewer)$/.test(id)) return id;
      if (!names.has(id)) names.set(id, `${id.slice(0, id.indexOf("_"))} ${names.size}`);
      return names.get(id)!;
    };
    const head = {
      ...meta,
      ...{ exported_at: "", org: {} },
      environments: meta.environments.map((one: { id: string }) => ({ ...one, id: anonymous(one.id) })),
    };
    const rows = lines.filter(({ section, kind }) => kind !== undefined && !left.has(section));
    return [
      head,
      ...rows.map(({ environment_id, row, ...line }) => {
        const { ids } = exportedTables.find((table) => table.table === line.kind)!;
        const moved = { ...row };
        for (const name of ids) if (name in row) moved[name] = anonymous(row[name]);
        if (row.role_ids) moved.role_ids = row.role_ids.map(anonymous);
        if (line.kind === "runs" && row.status === "active") {
          Object.assign(moved, endedHere, { ended_at: Date.parse(meta.exported_at) });
        }
        return { ...line, environment_id: anonymous(environment_id), row: moved };
      }),
    ];
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
      [
        "a role of the platform",
        sealed(altered('"base":""', '"base":"platform_admin"')),
        "base: must be one of",
      ],
      [
        "an environment",
        sealed(
          altered('"kind":"environments","row":{"id":"env_', '"kind":"environments","row":{"id":"env_x'),
        ),
        "first line's environments",
      ],
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

  const target = "org_target";
  /** The database refuses a row in the middle, because its id is taken; `mend` takes that away. */
  async function broken(startedAt: number) {
    const taken = original.rowsOf("events")[650]!.id as string;
    const blocker = idsFor(seedOf({ org_id: target, started_at: startedAt }))(taken)!;
    const change = (text: Sql) =>
      withServer(({ running }) => running.domain.store.write((session) => session.run(text)));
    await change(sql`INSERT INTO orgs (id, name, created_at, updated_at) VALUES (${target}, 'target', 1, 1)
      ON CONFLICT (id) DO NOTHING`);
    await change(sql`INSERT INTO events (environment_id, position, id, name, version, data, source, at)
      VALUES ('env_block', 1, ${blocker}, 'block', 1, 'null', 'api', 1)`);
    const clock = { ...systemClock(), now: () => startedAt };
    const { did, reasons } = await importingAt(clock, original.text, "--org", target);
    expect(did).toBe("nothing: refused");
    expect(reasons.join("\n")).toContain("the same command goes on");
    await change(sql`DELETE FROM events WHERE id = ${blocker}`);
  }

  test("an import that broke off is seen by nobody, and can be taken back", async () => {
    await broken(1_700_000_000_000);
    const cli = makeCli({}, { rawCommands, rowReader: async () => requireRow });
    const stopped = await cli.run(["import", ...(await wordsOf(original.text))], {
      isInterruptedMidway: true,
    });
    cli.remove();
    expect(stopped.code).toBe(130);
    const [, done, all] = /^svc: interrupted after (\d+) of (\d+) lines\n/.exec(stopped.err) ?? [];
    expect(Number(done)).toBeWithin(502, Number(all));
    expect(stopped.err).toContain("the same command goes on");
    const found = (text: Sql) => withServer(({ running }) => running.domain.store.all(text));
    expect(await found(sql`SELECT id FROM environments WHERE org_id = ${target}`)).toEqual([]);
    expect((await importing(original.text, "--undo")).said).toContain("taken back");
    expect(
      await found(sql`SELECT id FROM projects WHERE org_id = ${target} UNION ALL SELECT org_id FROM imports`),
    ).toEqual([]);
    // The purge deletes what is left of them.
    expect(await found(sql`SELECT id FROM deleted_environments WHERE org_id = ${target}`)).toHaveLength(1);
  });

  test("an org comes back as it left, whole, and goes on", async () => {
    // The first attempt breaks off, and the second goes on where it stood.
    await broken(1_700_000_000_001);
    const first = await importing(original.text);
    expect(first.reasons).toEqual([]);
    expect(first.said).toContain("going on behind line 5");
    expect(first.orgId).toBe(target);
    const { again, report, emitted, environment } = await exportAgain(first.orgId);
    expect(comparable(again)).toEqual(comparable(original));
    expect(report.checks.filter(({ count }: { count: number }) => count > 0)).toEqual([]);
    expect(report.balanced).toBe(true);
    expect(Number(emitted.sequence)).toBe(original.meta.environments[0].position + 1);
    expect(environment).not.toBe(org.environmentId);

    expect(again.rowsOf("projection_states")).toHaveLength(1);

    // Beside the first, in the same installation: other ids, and nobody twice. Its projection had moved while it was read.
    const cursor = original.rowsOf("projection_generations")[0]!.cursor_position as number;
    expect(cursor).toBeGreaterThan(0);
    const torn = original.text.replace(`"cursor_position":${cursor}`, '"cursor_position":1');
    const second = await importing(sealed(torn));
    expect(second.reasons).toEqual([]);
    expect(second.said).toContain("1 users are left out");
    expect(second.orgId).not.toBe(first.orgId);
    const beside = await exportAgain(second.orgId);
    expect(beside.report.balanced).toBe(true);
    expect(beside.again.rowsOf("projection_generations")).toMatchObject([
      { name: "same", cursor_position: 0 },
    ]);
    expect(beside.again.rowsOf("projection_states")).toEqual([]);
    expect(beside.again.meta.org.name).toBe(original.meta.org.name);
    expect(beside.again.rowsOf("events").length).toBe(original.rowsOf("events").length);
  });
});
