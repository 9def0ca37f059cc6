import { describe, expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { readmePath, withSettings } from "../support/readme.ts";

const readme = await Bun.file(readmePath).text();

describe("the README", () => {
  test("has the settings as the code has them (bun run test/support/readme.ts writes them)", () => {
    expect(readme).toBe(withSettings(readme));
  });

  test("names only files and folders that are there", () => {
    const house = /## The house\n([\s\S]*?)\n## /.exec(readme)?.[1] ?? "";
    const named = [...house.matchAll(/`([\w./]+)`/g)]
      .map((match) => match[1]!)
      .filter((name) => name.includes("/"));
    expect(named.length).toBeGreaterThan(10);
    expect(named.filter((name) => !existsSync(join(import.meta.dir, "../..", name)))).toEqual([]);
  });

  test("stays short", () => {
    // Its own words: the table of settings is as long as there are settings.
    const words = readme.split("\n").filter((line) => !/^\| (`|\|)/.test(line));
    expect(words.length).toBeLessThan(170);
  });
});
