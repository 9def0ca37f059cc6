import { describe, expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { freePort } from "../support/process.ts";
import { engines, makeHome, spawnServer, startTestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const mainFile = resolve(import.meta.dir, "../../src/main.ts");

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
    const server = await spawnServer({ engine });
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
  const both = await Promise.all([spawnServer({ engine, home }), spawnServer({ engine, home })]);
  try {
    const outputs = await Promise.all(both.map((server) => server.output()));
    const issued = outputs.filter((output) => output.includes("BOOTSTRAP_ADMIN_KEY_ISSUED"));
    expect(issued).toHaveLength(1);
  } finally {
    await Promise.all(both.map((server) => server.stop()));
    await home.remove();
  }
}, 90_000);
