import { expect } from "bun:test";
import { mkdtemp, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { exportOf } from "../support/exports.ts";
import { removeFolder, run } from "../support/process.ts";
import { until } from "../support/until.ts";
import type { Promises } from "./worlds.ts";

const mainFile = resolve(import.meta.dir, "../../src/main.ts");

/** Once all other promises were kept, one after the other: what they left behind. */
export const promisesAtRest: Promises = {
  async "no loop failed"({ server }) {
    // What a loop missed while the store was away is told by `store.trouble`: a node without processor is cut off.
    const failed = (await server.output())
      .split("\n")
      .filter((line) => line.includes('"event":"loop.failed"'));
    expect(failed).toEqual([]);
  },
  async "nothing is out of balance, and the server is healthy"({ api }) {
    const unbalanced = async () =>
      (await api("/api/v1/integrity")).body.checks
        .filter(({ count }: { count: number }) => count > 0)
        .map(({ name, count }: { name: string; count: number }) => `${name}: ${count}`);
    await until(async () => (await unbalanced()).length === 0, { about: "balance", everyMs: 200 }).catch(
      async () => expect(await unbalanced()).toEqual([]),
    );
    expect((await api("/health", { key: null })).body).toMatchObject({ status: "healthy" });
  },
  async "no call met a defect"({ server }) {
    const lines = (await server.output()).split("\n");
    expect(lines.filter((line) => line.includes('"request.defect"') || line.includes("unhandled"))).toEqual(
      [],
    );
  },
  async "an export comes back as another org, and a restart loses nothing"(inside) {
    const { client, server, url, adminKey, world } = inside;
    const text = await exportOf(url, adminKey);
    const { eventId } = await client.emit("rest.last", { of: "İ" });
    await server.terminate();
    const folder = await mkdtemp(join(tmpdir(), "svc-world-"));
    try {
      const file = join(folder, "export.ndjson");
      await writeFile(file, text.text);
      const { databaseUrl, db } = server.home.place;
      const place = databaseUrl === undefined ? ["--db", db] : ["--database-url", databaseUrl];
      const program = [process.execPath, "run", mainFile, "import", file, ...place];
      expect(await run([...(world.command ?? []), ...program])).toContain("org_");
    } finally {
      await removeFolder(folder);
      await server.restart();
    }
    expect((await client.events.get(eventId)).data).toEqual({ of: "İ" });
  },
};
