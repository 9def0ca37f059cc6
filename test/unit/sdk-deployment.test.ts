import { expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createFunction, createWorker } from "../../src/sdk/index.ts";
import { builtDeployment } from "../../src/sdk/worker/deployment.ts";

const sdk = resolve(import.meta.dir, "../../src/sdk");
const one = createFunction({ id: "one" }, () => 1);
const two = createFunction({ id: "two" }, () => 2);

/** What a process of its own says of the program that it runs. */
async function printed(file: string, text: string): Promise<string> {
  await Bun.write(file, text);
  const { stdout, exited } = Bun.spawn([process.execPath, file], { stdout: "pipe" });
  const said = await new Response(stdout).text();
  expect(await exited).toBe(0);
  return said.trim();
}

test("all processes of a build say the same, and those of changed code something else", async () => {
  const folder = mkdtempSync(join(tmpdir(), "svc-deployment-"));
  try {
    const program = (handler: string, more = "") => `
      import { createFunction } from "${sdk}/index.ts";
      import { builtDeployment } from "${sdk}/worker/deployment.ts";
      ${more}
      console.log(await builtDeployment([createFunction({ id: "f" }, ${handler})]));`;
    const file = join(folder, "worker.ts");
    const first = await printed(file, program("() => 1"));
    expect(first).toMatch(/^[0-9a-f]{16}$/);
    expect(await printed(file, program("() => 1"))).toBe(first);
    expect(await printed(join(folder, "elsewhere.ts"), program("() => 1"))).toBe(first);
    const others = [
      await printed(file, program("() => 2")),
      await printed(file, program("() => 1", "export const help = 1;")),
    ];
    expect(new Set([first, ...others]).size).toBe(3);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("functions count in the order of their ids, with their code, also where no module can be read", async () => {
  expect(await builtDeployment([one, two])).toBe(await builtDeployment([two, one]));
  const [, own] = process.argv;
  try {
    const said: string[] = [];
    for (const path of [join(tmpdir(), "no", "such", "file"), tmpdir()]) {
      process.argv[1] = path;
      said.push(await builtDeployment([one]), await builtDeployment([two]));
    }
    expect(new Set(said).size).toBe(2);
  } finally {
    process.argv[1] = own!;
  }
});

test("one that is no such name is a TypeError that names the option, or the variable", () => {
  const make = (deployment?: unknown) =>
    createWorker({ url: "http://127.0.0.1:1", functions: [one], handleSignals: false, deployment } as never);
  const rule = "must be 1 to 128 letters, digits and ._:/@+-, the first a letter or digit";
  for (const wrong of ["", "a b", "-a", "é", "a\n", "a".repeat(129), 7, null])
    expect(() => make(wrong)).toThrow(new TypeError(`deployment ${rule}`));
  for (const right of ["a", "9", "a._:/@+-", "a".repeat(128), undefined]) expect(make(right)).toBeDefined();
  try {
    process.env.SVC_DEPLOYMENT = "not one";
    expect(() => make()).toThrow(new TypeError(`SVC_DEPLOYMENT ${rule}`));
    expect(make("said")).toBeDefined();
  } finally {
    delete process.env.SVC_DEPLOYMENT;
  }
});
