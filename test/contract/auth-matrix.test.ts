import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { builtInRoles } from "../../src/gate/actions.ts";
import { askEverywhere, askers, entryOf, matrixPath, matrixText } from "../support/auth-matrix.ts";
import { everyWay } from "../support/every-route.ts";
import { isNight } from "../support/night.ts";
import { startTestServer, type TestServer } from "../support/server.ts";

describe("who is let in where", () => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine: "libsql", settings: { pollHoldMs: 1 } });
  });
  afterAll(() => server?.stop());

  const written = () => Bun.file(matrixPath).text();

  test("is as written down, with all actions and policies (`bun run refresh` writes it)", async () => {
    expect(matrixText(server.running.registry)).toBe(await written());
  });

  test("is written down for every operation and every built-in role", async () => {
    const text = await written();
    const unwritten = server.running.registry.filter(({ name }) => !text.includes(`  ${name}  `));
    expect(unwritten.map(({ name }) => name)).toEqual([]);
    const asked = new Set(askers.map(({ role }) => role));
    expect([...asked].sort()).toEqual([...builtInRoles, "nobody"].sort());
    // Each role in its own place, and in one that is not its own.
    for (const role of builtInRoles)
      expect(askers.filter((asker) => asker.role === role).length).toBeGreaterThanOrEqual(4);
  });

  test("is so on a running server, way by way; a foreign environment looks like a missing one", async () => {
    const { text, differences } = await askEverywhere(server);
    const specified = new Set(matrixText(server.running.registry).split("\n"));
    // Lines of the server that the specification (`entryOf`) does not have.
    expect(text.split("\n").filter((line) => !specified.has(line))).toEqual([]);
    expect(differences).toEqual([]);
  }, 120_000);

  test("is told apart from everything denied and everything open", async () => {
    const { registry } = server.running;
    const text = await written();
    expect(matrixText(registry, () => "refused")).not.toBe(text);
    expect(matrixText(registry, () => "unknown")).not.toBe(text);
    expect(matrixText(registry, () => "in")).not.toBe(text);
    const ways = everyWay(registry);
    // Somebody is let in everywhere, so a server that refuses all is found at every single way.
    const refusesAll = ways.filter((way) => !askers.some((asker) => entryOf(way, asker) === "in"));
    expect(refusesAll.map((way) => way.operation.name)).toEqual([]);
    // And nobody everywhere but where it is public, so an open one is, too.
    const open = ways.filter((way) => askers.every((asker) => entryOf(way, asker) === "in"));
    expect(open.every((way) => way.operation.action === null)).toBe(true);
  });

  test.if(isNight)(
    "a server that lets everybody in is found out",
    async () => {
      const dev = await startTestServer({ engine: "libsql", settings: { dev: true, pollHoldMs: 1 } });
      const lines = new Set((await askEverywhere(dev)).text.split("\n"));
      const unseen = (await written())
        .split("\n")
        .filter(
          (line) => line !== "" && !line.startsWith("#") && !line.includes("  public  ") && lines.has(line),
        );
      expect(unseen).toEqual([]);
      await dev.stop();
    },
    120_000,
  );
});
