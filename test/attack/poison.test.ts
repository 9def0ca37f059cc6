import { describe, expect, test } from "bun:test";
import { engines } from "../support/server.ts";
import { runPoison, suite } from "./poison.suite.ts";
import { sharedTrouble } from "./poison-triggers.ts";
import { combiners, unpoisonable } from "./poison-ways.ts";

describe("poison", () => {
  test.each([...engines])(
    "one bad item fails alone on %s",
    async (engine) => {
      const result = await suite.run({ seed: 12, long: false, engines: [engine], log: () => {} });
      expect(result.breaches).toEqual([]);
      expect(result.attempts).toBeGreaterThan(10);
    },
    60_000,
  );

  test("neighbours that fail are seen", async () => {
    const result = await runPoison({
      ...{ seed: 12, long: false, engines: ["postgres"], log: () => {} },
      codes: [sharedTrouble],
      only: ["emit", "publish", "completed", "ack"],
    });
    for (const name of ["emit", "publish", "completed", "ack"])
      expect(
        result.breaches.some((one) => one.startsWith(`${name} with`) && one.includes("neighbours")),
      ).toBe(true);
  }, 120_000);

  test("every combiner is attacked", async () => {
    const opened = new Set<string>();
    for await (const file of new Bun.Glob("**/*.ts").scan({ cwd: "src" })) {
      if (file === "kit/combine.ts" || file === "kit/flush-queue.ts") continue;
      const text = await Bun.file(`src/${file}`).text();
      for (const [, name] of text.matchAll(/\b(?:combine|flushQueue)(?:<[^(]*>)?\(\{\s*name: "([^"]+)"/g))
        opened.add(name!);
      const calls = text.match(/\b(?:combine|flushQueue)(?:<[^(]*>)?\(/g)?.length ?? 0;
      const named = text.match(/\b(?:combine|flushQueue)(?:<[^(]*>)?\(\{\s*name: "/g)?.length ?? 0;
      expect([file, named]).toEqual([file, calls]);
    }
    expect([...opened].sort()).toEqual([...combiners, ...unpoisonable.keys()].sort());
  });
});
