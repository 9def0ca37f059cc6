import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdir, mkdtemp, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { version } from "../../src/kit/version.ts";
import { program } from "../support/package-program.ts";
import {
  findProgram,
  freePort,
  lastWordsOf,
  type RunningProgram,
  removeFolder,
  run,
  startProgram,
} from "../support/process.ts";
import { until } from "../support/until.ts";

const root = resolve(import.meta.dir, "../..");

describe("the server as one executable", () => {
  let folder: string;
  let url: string;
  let server: RunningProgram;
  let variables: Record<string, string>;

  const started = (words: string[], place: string) =>
    startProgram(
      ["env", "-i", ...Object.entries(variables).map(([name, value]) => `${name}=${value}`), ...words],
      place,
    );
  async function said(words: string[], place = folder): Promise<string> {
    const child = Bun.spawn(words, { cwd: place, env: variables, stdout: "pipe", stderr: "pipe" });
    const [out, errors] = await Promise.all([
      new Response(child.stdout).text(),
      new Response(child.stderr).text(),
    ]);
    if ((await child.exited) !== 0) throw new Error(`${words.join(" ")}: ${out}${errors}`);
    return out;
  }
  const svc = (...words: string[]) => said([join(folder, "bin/svc"), ...words]);
  const answers = (address: string) =>
    until(async () => ((await fetch(address).catch(() => undefined))?.ok ? true : undefined), {
      about: address,
      deadlineMs: 20_000,
    });

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "svc-one-file-"));
    await Promise.all(["bin", "home", "data"].map((name) => mkdir(join(folder, name))));
    await run([process.execPath, join(root, "src/build/binary.ts"), join(folder, "bin/svc")]);
    const port = `${await freePort()}`;
    url = `http://127.0.0.1:${port}`;
    variables = {
      PATH: `${join(folder, "bin")}:/usr/bin:/bin`,
      HOME: join(folder, "home"),
      SVC_SERVER_URL: url,
      SVC_GRPC_PORT: "0",
    };
    const begin = performance.now();
    server = started(["svc", "serve", "--dev", "--port", port], join(folder, "data"));
    await answers(`${url}/ready`);
    console.log(`ready after ${Math.round(performance.now() - begin)} ms from an empty folder`);
  }, 120_000);
  afterAll(async () => {
    server?.signal("SIGTERM");
    await server?.exited;
    server?.release();
    await removeFolder(folder);
  });

  test("has its pages inside, and finds nothing wrong with itself", async () => {
    expect(await svc("version")).toBe(`${version}\n`);
    await svc("doctor");
    const page = await (await fetch(`${url}/dashboard`)).text();
    const documents = ["", "/start", "/api", "/api/swagger-ui-bundle.js", "/api/swagger-ui.css"].map(
      (path) => `/docs${path}`,
    );
    const assets = [...page.matchAll(/(?:src|href)="(\/dashboard\/[^"]+)"/g)].map(([, path]) => path!);
    expect(assets).toHaveLength(2);
    for (const path of [...assets, ...documents])
      expect({ path, status: (await fetch(url + path)).status }).toEqual({ path, status: 200 });
  });

  test("makes a project whose SDK completes a run, whose events SQL reads and folds", async () => {
    await svc("init", "shop");
    const shop = join(folder, "shop");
    const own = await Bun.file(join(shop, "package.json")).json();
    expect(own.dependencies).toEqual({ svc: `file:vendor/svc-${version}.tgz` });
    expect(own.scripts.dev).toBe("svc dev --worker src/worker.ts");
    // Without a network: its compilers are left out.
    await writeFile(join(shop, "package.json"), JSON.stringify({ ...own, devDependencies: {} }));
    await said([findProgram(["npm"], "npm"), "install", "--offline", "--no-audit", "--no-fund"], shop);

    const fold = "INSERT INTO proj_names (id, name) VALUES (:event_id, :data.name)";
    const table = "CREATE TABLE proj_names (id text PRIMARY KEY, name text)";
    const folds = ["--event", "greet-own", "--event-handler", JSON.stringify({ "greet-own": fold })];
    await svc("projection", "create", "names", "--sql", table, ...folds);
    await writeFile(join(shop, "own.mjs"), program('import { createClient, createWorker } from "svc";'));
    expect(await said([findProgram(["node"], "nodejs"), "own.mjs", "own"], shop)).toContain(
      "said Hello Ada\n",
    );
    const counted = await svc(
      "sql",
      "SELECT count(*) AS n FROM runs WHERE status = 'completed'",
      "--format",
      "csv",
    );
    expect(counted.trim().split(/\s+/)).toEqual(["n", "1"]);
    await until(
      async () =>
        (await svc("sql", "SELECT name FROM proj_names", "--format", "csv")).includes("Ada")
          ? true
          : undefined,
      { about: "the projection to have the event", deadlineMs: 20_000 },
    );
  }, 60_000);

  test("runs a worker's source with svc dev, without a Bun beside it", async () => {
    const port = `${await freePort()}`;
    const dev = started(
      ["svc", "dev", "--port", port, "--fresh", "--worker", "src/worker.ts"],
      join(folder, "shop"),
    );
    try {
      await answers(`http://127.0.0.1:${port}/ready`);
      const words = [
        "emit",
        "user.joined",
        "--data",
        '{"name":"Ada"}',
        "--server",
        `http://127.0.0.1:${port}`,
      ];
      await until(
        async () => {
          await svc(...words);
          return (await lastWordsOf(join(folder, "shop"))).includes("greet  completed") || undefined;
        },
        { about: "the worker to complete a run", deadlineMs: 20_000 },
      );
    } catch (error) {
      throw new Error(await lastWordsOf(join(folder, "shop")), { cause: error });
    } finally {
      dev.signal("SIGTERM");
      await dev.exited;
      dev.release();
    }
  }, 60_000);
});
