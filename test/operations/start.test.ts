import { describe, expect, test } from "bun:test";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { freePort, lastWordsOf, outputOf, removeFolder } from "../support/process.ts";
import { engines, makeHome, readKey, spawnServer, startTestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const root = resolve(import.meta.dir, "../..");
const mainFile = join(root, "src/main.ts");
/** The sources, as people start them. */
const program = [process.execPath, "run", mainFile];

async function command(argv: string[], variables: Record<string, string> = {}) {
  const environment = { PATH: process.env.PATH ?? "", ...variables };
  const child = Bun.spawn([process.execPath, "run", mainFile, ...argv], {
    env: environment,
    stdout: "pipe",
    stderr: "pipe",
  });
  const [out, err, code] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
    child.exited,
  ]);
  return { out, err, code };
}

describe("the command line", () => {
  test("bad settings end with 2 and every reason", async () => {
    const { err, code } = await command(["serve", "--prot", "1"], { SVC_PROT: "1" });
    expect(code).toBe(2);
    expect(err).toBe(
      "svc: --prot: unknown flag, did you mean --port?\n" +
        "svc: SVC_PROT: unknown variable, did you mean SVC_PORT? see: svc help\n",
    );
  }, 90_000);

  test("--dev is refused where others can reach it", async () => {
    const { err, code } = await command(["--dev", "--host", "0.0.0.0", "--port", "0"]);
    expect(code).toBe(2);
    expect(err).toContain("--host must be a loopback address, not 0.0.0.0");
  }, 90_000);

  test("help, version and an unknown command", async () => {
    const help = await command(["help"]);
    expect(help).toMatchObject({ code: 0, err: "" });
    expect(help.out).toContain("--database-url URL");
    expect((await command(["--help"])).out).toBe(help.out);
    expect((await command(["version"])).out).toMatch(/^\d+\.\d+\.\d+\n$/);
    expect(await command(["sreve"])).toMatchObject({
      code: 2,
      err: "svc: unknown command sreve, did you mean serve? see: svc help\n",
    });
  }, 90_000);

  test("a port in use, a database in use and a database that is away: one clear line, and 1", async () => {
    const server = await startTestServer({ engine: "libsql" });
    const other = await makeHome("libsql", { isEmpty: true });
    try {
      const { port } = server.running;
      const samePort = await command(["--port", String(port), "--db", other.place.db]);
      expect(samePort).toMatchObject({
        code: 1,
        err: `svc: 127.0.0.1:${port} is in use: stop the program that has it, or choose another --port\n`,
      });
      const sameFile = await command(["--port", "0", "--db", server.home.place.db], { LOG_LEVEL: "silent" });
      expect(sameFile.code).toBe(1);
      expect(sameFile.err).toContain(`is open in process ${process.pid}`);
      expect(sameFile.err.trimEnd()).not.toContain("\n");
      const nobody = `postgres://svc:hush@127.0.0.1:${await freePort()}/svc`;
      const away = await command(["--port", "0", "--database-url", nobody]);
      expect(away.code).toBe(1);
      expect(away.err).toStartWith("svc: the database cannot be reached: ");
      expect(away.err + away.out).not.toContain("hush");
    } finally {
      await server.stop();
      await other.remove();
    }
  }, 90_000);
});

describe.each(engines)("a process on %s", (engine) => {
  test("says where it listens and where its key is, keeps both over a kill, and drains to 0", async () => {
    const server = await spawnServer({ engine, program });
    try {
      expect(server.adminKey).toMatch(/^ifkey_/);
      const shown = await until(
        async () => {
          const text = await server.output();
          return text.includes("bun run demo") && text;
        },
        { about: "the banner" },
      );
      expect(shown).toContain(server.url);
      expect(shown).toContain(`${server.home.keyFile} (new)`);
      expect(shown).not.toContain(server.adminKey);
      // An unknown route is public knowledge; what matters is that something answers.
      expect((await server.api("/nowhere")).status).toBe(404);

      const { url, adminKey } = server;
      await server.kill9();
      await server.restart();
      expect(server.url).toBe(url);
      expect(server.adminKey).toBe(adminKey);
      expect(await server.output()).not.toContain("BOOTSTRAP_ADMIN_KEY_ISSUED");
      expect(await server.terminate()).toBe(0);
      expect(await server.output()).toContain('"server.stopped"');
      expect(existsSync(server.home.keyFile)).toBe(true);
    } finally {
      await server.stop();
    }
  }, 90_000);
});

test("two processes that start at once on one empty database issue one key", async () => {
  const engine = "postgres";
  const home = await makeHome(engine, { isEmpty: true });
  const both = await Promise.all([
    spawnServer({ engine, home, program }),
    spawnServer({ engine, home, program }),
  ]);
  try {
    const outputs = await Promise.all(both.map((server) => server.output()));
    const issued = outputs.filter((output) => output.includes("BOOTSTRAP_ADMIN_KEY_ISSUED"));
    expect(issued).toHaveLength(1);
  } finally {
    await Promise.all(both.map((server) => server.stop()));
    await home.remove();
  }
}, 90_000);

/** The command lines of a group's processes, without those that have ended and wait to be asked how. */
function runningIn(group: number): string[] {
  return readdirSync("/proc").flatMap((name) => {
    if (!/^\d+$/.test(name)) return [];
    try {
      const status = readFileSync(`/proc/${name}/stat`, "utf8");
      // The name of the program comes before, and may have any character.
      const [state, , its] = status.slice(status.lastIndexOf(")") + 2).split(" ");
      if (Number(its) !== group || state === "Z") return [];
      return [readFileSync(`/proc/${name}/cmdline`, "utf8").replaceAll("\0", " ")];
    } catch {
      return []; // It ended meanwhile.
    }
  });
}

test("SIGTERM to the command that the README starts a server with ends all that it started", async () => {
  const typed = "bun run start";
  expect(await Bun.file(join(root, "README.md")).text()).toContain(`\n${typed}\n`);
  const folder = await mkdtemp(join(tmpdir(), "svc-start-"));
  const keyFile = join(folder, "key.json");
  const url = `http://127.0.0.1:${await freePort()}`;
  const log = Bun.file(join(folder, "output.log"));
  const child = Bun.spawn([process.execPath, ...typed.split(" ").slice(1)], {
    cwd: root,
    env: {
      ...{ PATH: process.env.PATH, SVC_PORT: new URL(url).port, SVC_GRPC_PORT: "0" },
      ...{ SVC_DB: join(folder, "svc.db"), SVC_BOOTSTRAP_KEY_FILE: keyFile },
    },
    stdio: ["ignore", log, log],
    // A group of its own, as a shell gives to what is typed.
    detached: true,
  });
  try {
    await until(async () => (await fetch(`${url}/ready`).catch(() => undefined))?.ok === true, {
      ...{ about: "the server", deadlineMs: 60_000 },
    });
    // SQL over a file has a process of its own.
    const asked = await fetch(`${url}/svc.v1.QueryService/ExecuteSQL`, {
      method: "POST",
      headers: { authorization: `Bearer ${await readKey(keyFile)}`, "content-type": "application/json" },
      body: JSON.stringify({ query: "SELECT 1 AS one" }),
    });
    expect(asked.status).toBe(200);
    expect(runningIn(child.pid)).toContainEqual(expect.stringContaining("libsql-program.ts"));

    child.kill("SIGTERM");
    expect({ code: await child.exited, signal: child.signalCode }).toEqual({ code: 0, signal: null });
    await until(() => runningIn(child.pid).length === 0, { about: "the last process", deadlineMs: 10_000 });
    expect(await outputOf(folder)).toContain("server.stopped");
  } catch (error) {
    throw new Error(await lastWordsOf(folder), { cause: error });
  } finally {
    if (runningIn(child.pid).length > 0) process.kill(-child.pid, "SIGKILL");
    await removeFolder(folder);
  }
}, 90_000);

test("a server keeps its free memory, in the process that was started, unless it is told what to keep", async () => {
  const unset = ["env", "-u", "MIMALLOC_PURGE_DELAY", "-u", "MIMALLOC_PURGE_HOLES"];
  const server = await spawnServer({ engine: "libsql", command: unset });
  const told = await spawnServer({ engine: "libsql", command: [...unset, "MIMALLOC_PURGE_DELAY=100"] });
  const variables = ({ pid }: { pid(): number }) =>
    readFileSync(`/proc/${pid()}/environ`, "utf8")
      .split("\0")
      .filter((one) => one.startsWith("MIMALLOC_"))
      .sort();
  try {
    expect(variables(server)).toEqual(["MIMALLOC_PURGE_DELAY=60000", "MIMALLOC_PURGE_HOLES=0"]);
    expect(variables(told)).toEqual(["MIMALLOC_PURGE_DELAY=100"]);
    expect(await server.terminate()).toBe(0);
  } finally {
    await Promise.all([server.stop(), told.stop()]);
  }
}, 90_000);
