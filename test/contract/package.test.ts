import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdtemp, readdir, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { checkPackage, createPackageFromTarballData } from "@arethetypeswrong/core";
import packageFile from "../../package.json" with { type: "json" };
import { createClient, createWorker } from "../../src/sdk/index.ts";
import { inChrome } from "../support/chrome.ts";
import { nodeMajors, nodeProgram } from "../support/node-versions.ts";
import { program } from "../support/package-program.ts";
import { removeFolder } from "../support/process.ts";
import { startTestServer, type TestServer } from "../support/server.ts";

const root = resolve(import.meta.dir, "../..");

const names = `
  const events = defineEvents<{ "user.joined": { name: string } }>();
  const client = createClient({ events, url: "http://127.0.0.1:1", apiKey: "key" });
  const greet = client.createFunction({ id: "greet", event: "user.joined" }, async ({ event, step }) => {
    const text: string = await step.run("write", () => \`Hello \${event.data.name}\`);
    return text;
  });
  export const worker = createWorker({ client, functions: [greet] });
  // @ts-expect-error: an event has the data that it was declared with
  export const wrong = () => client.emit("user.joined", { name: 1 });
`;
const typed = `import { createClient, createWorker, defineEvents } from "svc";${names}`;
const page = `
  import { type ClientOptions, createClient } from "svc/client";
  export async function greet(options: ClientOptions): Promise<unknown> {
    const client = createClient(options);
    const { runId } = await client.invokeFunction("greet-page", { name: "Ada" });
    const { status, output } = await client.waitForRun(runId);
    return { status, output };
  }
  Object.assign(globalThis, { greet });
`;

const strict = {
  ...{ noEmit: true, strict: true, skipLibCheck: false, target: "es2022", lib: ["es2022"], types: ["node"] },
  ...{ exactOptionalPropertyTypes: true, noUncheckedIndexedAccess: true, noImplicitOverride: true },
  ...{ noPropertyAccessFromIndexSignature: true, noImplicitReturns: true, isolatedModules: true },
};
const projects = {
  node16: { compilerOptions: { ...strict, module: "node16" }, files: ["typed.mts", "typed.cts"] },
  bundler: {
    compilerOptions: { ...strict, module: "preserve", moduleResolution: "bundler" },
    files: ["typed.mts"],
  },
  // A page has no types of Node.
  page: {
    compilerOptions: { ...strict, module: "preserve", lib: ["es2022", "dom"], types: [] },
    files: ["page.ts"],
  },
};

const fromEsm = program('import { createClient, createWorker } from "svc";');
const fromCjs = program('const { createClient, createWorker } = require("svc");');

describe("the SDK as a package", () => {
  let folder: string;
  let server: TestServer;
  let tarball: string;

  async function run(command: string[], cwd = folder): Promise<string> {
    const env = { ...process.env, SVC_SERVER_URL: server.url, SVC_API_KEY: server.adminKey };
    const child = Bun.spawn(command, { cwd, env, stdout: "pipe", stderr: "pipe", timeout: 60_000 });
    const [out, errors] = await Promise.all([
      new Response(child.stdout).text(),
      new Response(child.stderr).text(),
    ]);
    if ((await child.exited) !== 0) throw new Error(`${command.join(" ")}: ${out}${errors}`);
    return out;
  }

  beforeAll(async () => {
    server = await startTestServer({ engine: "libsql" });
    folder = await mkdtemp(join(tmpdir(), "svc-package-"));
    await run([process.execPath, "run", "build:sdk"], root);
    const packed = await run(
      ["npm", "pack", "--silent", "--pack-destination", folder],
      join(root, "dist/sdk"),
    );
    tarball = join(folder, packed.trim());
    await writeFile(join(folder, "package.json"), '{ "name": "own", "private": true }');
    // Without a network: there is nothing else to fetch.
    await run(["npm", "install", "--offline", "--no-audit", "--no-fund", tarball]);
  }, 120_000);
  afterAll(async () => {
    await server?.stop();
    await removeFolder(folder);
  });

  test("brings its two entries and their types, and nothing of the server", async () => {
    const installed = join(folder, "node_modules/svc");
    const { dependencies, version } = await Bun.file(join(installed, "package.json")).json();
    expect({ dependencies, version }).toEqual({ dependencies: undefined, version: packageFile.version });
    expect((await readdir(installed)).sort()).toEqual(
      ["README.md", "browser.cjs", "browser.js", "index.cjs", "index.js", "package.json", "types"].sort(),
    );
    for (const file of ["browser.js", "browser.cjs"])
      expect(await Bun.file(join(installed, file)).text()).not.toMatch(/["']node:/);
  });

  test("has types for every way to resolve modules, under every strict option", async () => {
    await symlink(join(root, "node_modules/@types"), join(folder, "node_modules/@types"));
    await symlink(join(root, "node_modules/undici-types"), join(folder, "node_modules/undici-types"));
    for (const name of ["typed.mts", "typed.cts"]) await writeFile(join(folder, name), typed);
    await writeFile(join(folder, "page.ts"), page);
    for (const [name, project] of Object.entries(projects)) {
      await writeFile(join(folder, `${name}.json`), JSON.stringify(project));
      for (const compiler of ["typescript", "typescript-api"])
        await run(["node", join(root, "node_modules", compiler, "bin/tsc"), "-p", `${name}.json`]);
    }
  }, 120_000);

  test("has at no entry what `arethetypeswrong` knows to break for somebody", async () => {
    const checked = await checkPackage(createPackageFromTarballData(await Bun.file(tarball).bytes()));
    if (!checked.types) throw new Error("no types were found in the package");
    expect(Object.keys(checked.entrypoints).sort()).toEqual([".", "./client", "./package.json", "./sdk"]);
    expect(checked.problems).toEqual([]);
  }, 120_000);

  test.each([
    ...nodeMajors.map((major) => [`Node ${major}`, () => nodeProgram(major)] as const),
    ["Bun", () => Promise.resolve(process.execPath)] as const,
  ])(
    "completes a run on %s, as a module and as CommonJS",
    async (runtime, find) => {
      const command = await find();
      for (const [form, text] of Object.entries({ mjs: fromEsm, cjs: fromCjs })) {
        const file = join(folder, `run.${form}`);
        await writeFile(file, text);
        expect(await run([command, file, `${runtime.replace(" ", "-")}-${form}`])).toContain(
          "said Hello Ada\n",
        );
      }
    },
    // The registry is asked for a Node once a machine.
    120_000,
  );

  test("a page that imports it has nothing of Node, and invokes a function whose run completes", async () => {
    await writeFile(join(folder, "page.ts"), page);
    const built = await Bun.build({
      entrypoints: [join(folder, "page.ts")],
      ...{ target: "browser", format: "iife" },
    });
    const script = await built.outputs[0]!.text();
    expect(script).not.toMatch(/["']node:|\brequire\(/);
    const options = { url: server.url, apiKey: server.adminKey };
    const client = createClient(options);
    const greet = client.createFunction({ id: "greet-page" }, ({ event, step }) =>
      step.run("write", () => `Hello ${(event.data as { name: string }).name}`),
    );
    const worker = createWorker({ client, functions: [greet] });
    await worker.start();
    try {
      await inChrome(async (chrome) => {
        const opened = await chrome.newPage();
        // Of another origin than the calls of the page.
        await opened.goto(`${server.url.replace("127.0.0.1", "localhost")}/health`);
        await opened.evaluate(script);
        expect(await opened.evaluate(`greet(${JSON.stringify(options)})`)).toEqual({
          ...{ status: "completed", output: "Hello Ada" },
        });
      });
    } finally {
      await worker.stop();
    }
  }, 300_000);
});
