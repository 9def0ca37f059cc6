import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { copyFile, mkdir, mkdtemp, readdir, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import packageFile from "../../package.json" with { type: "json" };
import { version } from "../../src/kit/version.ts";
import { firstRun, firstRunPage, recordFirstRun } from "../support/first-run.ts";
import { program } from "../support/package-program.ts";
import {
  executableVariable,
  findProgram,
  freePort,
  type RunningProgram,
  removeFolder,
  run,
  startProgram,
} from "../support/process.ts";
import { until } from "../support/until.ts";

const root = resolve(import.meta.dir, "../..");

/** Packages that a program finds when it follows imports from ours, as `name version: licence`. */
async function foundPackages(): Promise<Set<string>> {
  const found = new Map<string, string>();
  const follow = async (needs: Record<string, string>, from: string): Promise<void> => {
    for (const name of Object.keys(needs)) {
      let place = from;
      while (!existsSync(join(place, "node_modules", name)) && place !== root) place = dirname(place);
      const folder = join(place, "node_modules", name);
      if (found.has(folder)) continue;
      const {
        version: own,
        license,
        dependencies = {},
      } = await Bun.file(join(folder, "package.json")).json();
      found.set(folder, `${name} ${own}: ${license.replace(/[()]/g, "")}`);
      await follow(dependencies, folder);
    }
  };
  await follow(packageFile.dependencies, root);
  return new Set(found.values());
}

interface Component {
  name: string;
  version: string;
  licenses: { license?: { id: string }; expression?: string }[];
}

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
    const built = process.env[executableVariable];
    if (built === undefined)
      await run([process.execPath, join(root, "src/build/binary.ts"), join(folder, "bin/svc")]);
    else
      for (const name of ["svc", "sbom.json", "LICENSES.txt"])
        await copyFile(join(dirname(built), name), join(folder, "bin", name));
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
    // The folder has no say in it: a profile that is not there would be refused.
    const cloned = join(folder, "cloned");
    await mkdir(cloned);
    await Bun.write(join(cloned, ".env"), "SVC_PROFILE=nowhere\n");
    await said([join(folder, "bin/svc"), "runs"], cloned);
    const page = await (await fetch(`${url}/dashboard`)).text();
    const documents = ["", "/start", "/api", "/api/swagger-ui-bundle.js", "/api/swagger-ui.css"].map(
      (path) => `/docs${path}`,
    );
    const assets = [...page.matchAll(/(?:src|href)="(\/dashboard\/[^"]+)"/g)].map(([, path]) => path!);
    expect(assets).toHaveLength(2);
    for (const path of [...assets, ...documents])
      expect({ path, status: (await fetch(url + path)).status }).toEqual({ path, status: 200 });
  });

  test("says which packages are inside, each with a licence that may ship", async () => {
    const page = await svc("licenses");
    expect(page).toBe(await Bun.file(join(folder, "bin/LICENSES.txt")).text());
    const { components }: { components: Component[] } = await Bun.file(join(folder, "bin/sbom.json")).json();
    const listed = components.map(({ name, version: own, licenses: [one] }) => ({
      ...{ name, text: `${name} ${own}: ${one?.license?.id ?? one?.expression}` },
    }));
    const texts = listed.map(({ text }) => text);
    expect([...(await foundPackages())].filter((text) => !texts.includes(text))).toEqual([]);
    expect(texts.filter((text) => !page.includes(`${text}\n`))).toEqual([]);
    expect(texts.filter((text) => /^(bun |typescript |@types\/)/.test(text))).toEqual([
      expect.stringContaining(`bun ${Bun.version}: MIT AND LGPL`),
    ]);
    const mayShip = /: (MIT(-0)?|ISC|Apache-2\.0|BSD-[23]-Clause|Unlicense|0BSD|CC0-1\.0| AND )+$/;
    expect(listed.filter(({ name, text }) => name !== "bun" && !mayShip.test(text))).toEqual([]);
  });

  test("has beside it what the image copies", async () => {
    const image = await Bun.file(join(root, "cluster/Containerfile")).text();
    const copied = [...image.matchAll(/^COPY --from=build (.+) \S+$/gm)].flatMap(([, paths]) =>
      paths!.split(" "),
    );
    expect(copied.map((path) => path.replace("/out/", "")).sort()).toEqual(
      (await readdir(join(folder, "bin"))).sort(),
    );
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
  }, 120_000);

  test("what the first page shows can be typed, without a Bun beside svc, in less than two minutes", async () => {
    const page = await Bun.file(firstRunPage).text();
    const shown = [...page.matchAll(/^\$ (.+)$/gm)].map(([, command]) => command!);
    expect(shown).toEqual([...firstRun.project, firstRun.server, ...firstRun.event]);
    const begin = performance.now();
    const { first, second } = await recordFirstRun(join(folder, "bin"));
    expect(performance.now() - begin).toBeLessThan(120_000);
    expect(first).not.toMatch(/npm (warn|notice|error)/i);
    expect(first).toMatch(/ 1 pass\n[\s\S]* greet {2}completed/);
    expect(second).toContain("Hello Ada");
  }, 600_000);
});
