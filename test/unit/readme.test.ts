import { describe, expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { configurationTable } from "../../src/settings/settings.ts";

const root = join(import.meta.dir, "../..");
const readmePath = join(root, "README.md");
const readme = await Bun.file(readmePath).text();

describe("the README", () => {
  test("says of a setting what the code says (copy the row of src/REFERENCE.md, without its values)", () => {
    const short = (line: string) => {
      const cells = line.split("|").map((cell) => cell.trim());
      return [...cells.slice(1, 4), cells.at(-2)].join(" | ");
    };
    const rows = /## Settings\n([\s\S]*)/
      .exec(readme)![1]!
      .split("\n")
      .filter((line) => line.startsWith("| `--"));
    const written = configurationTable().split("\n").map(short);
    expect(rows).toHaveLength(5);
    expect(rows.map(short).filter((row) => !written.includes(row))).toEqual([]);
  });

  test("names only files and folders that are there", () => {
    const house = /## The house\n([\s\S]*?)\n## /.exec(readme)?.[1] ?? "";
    const named = [...house.matchAll(/`([\w./]+)`/g)]
      .map((match) => match[1]!)
      .filter((name) => name.includes("/"));
    expect(named.length).toBeGreaterThan(10);
    expect(named.filter((name) => !existsSync(join(root, name)))).toEqual([]);
  });

  test("stays short", () => {
    const words = readme.replace(/\| Flag[\s\S]*?\n\n/, "");
    expect(words.split("\n").length).toBeLessThan(170);
  });
});

test("the snippets of both READMEs are right, each page's in one piece", async () => {
  const folder = await mkdtemp(join(tmpdir(), "svc-snippets-"));
  try {
    for (const page of ["README.md", "src/sdk/README.md"]) {
      const text = await Bun.file(join(root, page)).text();
      const snippets = [...text.matchAll(/```ts\n([\s\S]*?)```/g)].map((match) => match[1]!);
      expect(snippets.length).toBeGreaterThan(0);
      await Bun.write(join(folder, `${page.replaceAll("/", "-")}.ts`), snippets.join("\n"));
    }
    const config = {
      extends: join(root, "tsconfig.json"),
      compilerOptions: {
        paths: { svc: [join(root, "src/sdk/index.ts")] },
        typeRoots: [join(root, "node_modules/@types")],
      },
      include: ["*.ts"],
    };
    await Bun.write(join(folder, "tsconfig.json"), JSON.stringify(config));
    const checked = Bun.spawn([join(root, "node_modules/.bin/tsc"), "-p", folder], { stdout: "pipe" });
    expect(await new Response(checked.stdout).text()).toBe("");
    expect(await checked.exited).toBe(0);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}, 120_000);
