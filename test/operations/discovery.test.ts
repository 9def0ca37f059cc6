import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { announceServer, ownAddress } from "../../src/kit/discovery-file.ts";
import { discoveredServer } from "../../src/sdk/wire/discovery.ts";
import { makeCli } from "../support/cli.ts";
import { freePort, startProgram } from "../support/process.ts";
import { until } from "../support/until.ts";

const root = resolve(import.meta.dir, "../..");
let home = "";
beforeAll(() => {
  home = mkdtempSync(join(tmpdir(), "svc-found-"));
});
afterAll(() => rmSync(home, { recursive: true, force: true }));

const folderOf = (name: string) => {
  const folder = join(home, name, "below", "deeper");
  mkdirSync(folder, { recursive: true });
  return { folder, top: join(home, name), file: join(home, name, ".svc/engine.json") };
};
const written = async (name: string, said: unknown, mode = 0o600) => {
  const made = folderOf(name);
  await Bun.write(made.file, typeof said === "string" ? said : JSON.stringify(said));
  chmodSync(made.file, mode);
  return made;
};
const good = { version: 1, url: "http://127.0.0.1:9123", api_key: "ifkey_x", environment: "default" };

describe("the file of a folder", () => {
  test("is found from below, is its owner's alone, and goes with who wrote it", () => {
    const { folder, top, file } = folderOf("whole");
    const server = { url: "http://127.0.0.1:4000", apiKey: "ifkey_y", environment: "default" };
    const leaveFirst = announceServer(top, { ...server, url: "http://127.0.0.1:4001" });
    const leave = announceServer(top, server);
    expect(discoveredServer(folder)).toEqual({ ...server, file });
    expect(statSync(file).mode & 0o777).toBe(0o600);
    expect(statSync(join(top, ".svc")).mode & 0o777).toBe(0o700);
    leaveFirst();
    expect(existsSync(file)).toBe(true);
    for (const isOff of ["1", "true"]) expect(discoveredServer(folder, isOff)).toBeUndefined();
    expect(discoveredServer(folder, "0")?.url).toBe(server.url);
    leave();
    leave();
    expect(discoveredServer(folder)).toBeUndefined();
    symlinkSync(tmpdir(), join(home, "whole", "below", ".svc"));
    expect(() => announceServer(join(top, "below"), server)).toThrow("is no folder");
  });

  test("names the server before it again when a second one of the folder ends, unless that is gone", async () => {
    const { folder, top, file } = folderOf("second");
    const server = (port: number) => ({
      ...{ url: `http://127.0.0.1:${port}`, apiKey: "", environment: "default" },
    });
    const leaves = [4001, 4002, 4003].map((port) => announceServer(top, server(port)));
    expect(discoveredServer(folder)?.url).toBe(server(4003).url);
    leaves[1]!();
    expect(discoveredServer(folder)?.url).toBe(server(4003).url);
    leaves[2]!();
    expect(discoveredServer(folder)).toEqual({ ...server(4001), file });
    expect(statSync(file).mode & 0o777).toBe(0o600);
    leaves[0]!();
    expect(existsSync(file)).toBe(false);
    const gone = Bun.spawn(["true"]);
    await gone.exited;
    await written("second", { ...good, pid: gone.pid });
    announceServer(top, server(4004))();
    expect(existsSync(file)).toBe(false);
  });

  test("that names another machine is refused, whatever it looks like, and shows nothing of what it says", async () => {
    const urls = [
      ..."http://evil.example http://10.0.0.7:9123 http://127.0.0.1.evil.example http://127.0.0.1@evil.example".split(
        " ",
      ),
      ..."http://evil.example#127.0.0.1 ftp://127.0.0.1 http://0.0.0.0:9123 http://[::ffff:10.0.0.7]".split(
        " ",
      ),
      ..."http://key:pw@127.0.0.1 http://127.0.0.1/proxy http://127.0.0.1?x=1 //127.0.0.1 http://localhost.evil".split(
        " ",
      ),
      ...["", 7, null],
    ];
    for (const [at, url] of urls.entries()) {
      const { folder, file } = await written(`url${at}`, { ...good, url });
      let message = "";
      try {
        discoveredServer(folder);
      } catch (error) {
        message = (error as Error).message;
      }
      expect([url, message]).toEqual([url, expect.stringContaining(file)]);
      expect(message).not.toMatch(/evil|ifkey|pw/);
      expect(message).toContain("SVC_NO_DISCOVERY=1");
    }
    for (const url of ["http://127.9.9.9:1", "https://[::1]:9123", "http://localhost:9123/"]) {
      const { folder } = await written("own", { ...good, url });
      expect(discoveredServer(folder)?.url).toBe(url.replace(/\/$/, ""));
    }
  });

  test("that others may read or change, that is too long or no such file, is refused; a stranger's is passed over", async () => {
    for (const mode of [0o644, 0o640, 0o606, 0o660]) {
      const { folder } = await written(`mode${mode}`, good, mode);
      expect(() => discoveredServer(folder)).toThrow("chmod 600");
    }
    for (const [at, text] of [
      "{",
      "null",
      "[]",
      '{"version":2}',
      `{"x":"${"x".repeat(70_000)}"}`,
    ].entries()) {
      const { folder } = await written(`text${at}`, text);
      expect(() => discoveredServer(folder)).toThrow("engine.json");
    }
    const { folder: typed } = await written("typed", { ...good, api_key: { a: 1 } });
    expect(() => discoveredServer(typed)).toThrow("must be texts");
    // A link leads to what may be another's file.
    const real = await written("real", good);
    const linked = folderOf("linked");
    mkdirSync(join(linked.top, ".svc"));
    symlinkSync(real.file, linked.file);
    expect(discoveredServer(linked.folder)).toBeUndefined();
    const { top, file: folder, folder: below } = folderOf("folder");
    mkdirSync(folder, { recursive: true });
    expect(discoveredServer(below)).toBeUndefined();
    const server = { url: "http://127.0.0.1:1", apiKey: "ifkey_z", environment: "default" };
    expect(() => announceServer(top, server)).toThrow();
    expect(readdirSync(join(top, ".svc"))).toEqual(["engine.json"]);
    // Only root can give files away.
    if (process.getuid?.() === 0) {
      const { folder, file } = await written("stranger", good);
      chownSync(file, 4_711, 4_711);
      expect(discoveredServer(folder)).toBeUndefined();
    }
  });

  test("names an address of this machine for whatever the server listens on", () => {
    expect(ownAddress("http://0.0.0.0:9123")).toBe("http://127.0.0.1:9123");
    expect(ownAddress("https://[::]:9123")).toBe("https://[::1]:9123");
    expect(ownAddress("http://127.0.0.1:9123/")).toBe("http://127.0.0.1:9123");
    expect(ownAddress("http://10.1.2.3:9123")).toBeUndefined();
  });
});

describe("a server that is asked to say where it is", () => {
  const program = `import { createClient } from "${join(root, "src/sdk/index.ts")}";
    const client = createClient();
    const { url } = client.transport;
    const { authorization = "none" } = await client.transport.headers();
    console.log(url, authorization, (await client.listFunctions()).length);`;

  /** What a program of the folder finds; its variables are these alone. */
  async function found(folder: string, variables: Record<string, string> = {}) {
    await Bun.write(join(home, "program.ts"), program);
    const { PATH = "" } = process.env;
    const child = Bun.spawn([process.execPath, "run", join(home, "program.ts")], {
      ...{ cwd: folder, env: { PATH, ...variables }, stdout: "pipe", stderr: "pipe" },
    });
    const [out, err] = await Promise.all([
      new Response(child.stdout).text(),
      new Response(child.stderr).text(),
      child.exited,
    ]);
    return child.exitCode === 0 ? out.trim() : err;
  }

  async function started(name: string, ...flags: string[]) {
    const made = folderOf(name);
    const port = await freePort();
    const words = [
      "serve",
      "--port",
      `${port}`,
      "--grpc-port",
      "0",
      "--db",
      join(made.top, "svc.db"),
      ...flags,
    ];
    const { PATH = "" } = process.env;
    const server = startProgram(
      [
        "env",
        "-i",
        "-C",
        made.top,
        `PATH=${PATH}`,
        process.execPath,
        "run",
        join(root, "src/main.ts"),
        ...words,
      ],
      made.top,
    );
    await until(() => existsSync(made.file), { about: "the file of the server", deadlineMs: 60_000 });
    const stop = async () => {
      server.signal("SIGTERM");
      await server.exited;
      server.release();
    };
    return { ...made, url: `http://127.0.0.1:${port}`, stop };
  }

  test("--dev does; programs and commands of the folder find it, and no other key goes there", async () => {
    const { folder, file, url, stop } = await started("dev", "--dev");
    const cli = makeCli();
    try {
      expect(JSON.parse(await Bun.file(file).text())).toEqual({
        ...{ version: 1, url, api_key: "", environment: "default", pid: expect.any(Number) },
      });
      expect(await found(folder)).toBe(`${url} none 0`);
      expect(await found(folder, { SVC_NO_DISCOVERY: "1" })).toContain(
        "http://127.0.0.1:9123 does not answer",
      );
      // Who names a key means the server that it is for.
      expect(await found(folder, { SVC_API_KEY: "ifkey_of_prod" })).toContain("http://127.0.0.1:9123");
      const elsewhere = await found(folder, { SVC_SERVER_URL: "http://127.0.0.1:1" });
      expect(elsewhere).toContain("http://127.0.0.1:1 does not answer");
      // An editor starts it in the folder that it shows.
      const editor = new Client({ name: "editor", version: "1" });
      await editor.connect(
        new StdioClientTransport({
          ...{ command: process.execPath, args: [join(root, "src/main.ts"), "mcp"], cwd: folder },
          env: { PATH: process.env.PATH ?? "", HOME: home },
        }),
      );
      const environments = await editor.callTool({ name: "svc_list_environments", arguments: {} });
      await editor.close();
      expect(JSON.stringify(environments)).toContain("env_default");
      announceServer(cli.folder, { url, apiKey: "", environment: "default" });
      const listed = await cli.run(["env", "list", "--json"]);
      expect([listed.code, listed.err]).toEqual([0, ""]);
      expect(JSON.parse(listed.out)).toMatchObject([{ name: "default" }]);
      // A profile in use is passed over, with a word; what it keeps stays at home.
      const add = ["profile", "add", "prod", "--server", "http://127.0.0.1:1", "--key-file", "key"];
      await Bun.write(join(cli.folder, "key"), "ifkey_of_prod");
      expect(await cli.run(add)).toMatchObject({ code: 0 });
      const beside = await cli.run(["env", "list", "--json"]);
      expect([beside.code, beside.err]).toEqual([
        0,
        expect.stringContaining(`asks ${url}, which ${cli.folder}`),
      ]);
      expect((await cli.run(["env", "list", "--profile", "prod"])).code).toBe(3);
      const off = await cli.run(["env", "list"], { environment: { SVC_NO_DISCOVERY: "1" } });
      expect([off.code, off.err]).toEqual([3, expect.stringContaining("127.0.0.1:1 ")]);
      await Bun.write(
        join(cli.folder, ".svc/engine.json"),
        JSON.stringify({ ...good, url: "http://evil.example" }),
      );
      const hostile = await cli.run(["env", "list"]);
      expect([hostile.code, hostile.err]).toEqual([2, expect.stringContaining("this machine alone")]);
    } finally {
      cli.remove();
      await stop();
    }
    expect(existsSync(file)).toBe(false);
  }, 120_000);

  test("--discovery does with the first key, whoever reads it being its owner; a plain server does not", async () => {
    const { folder, file, url, stop } = await started("asked", "--discovery");
    try {
      const { api_key: key } = (await Bun.file(file).json()) as { api_key: string };
      expect(key).toMatch(/^ifkey_/);
      expect(await found(folder)).toBe(`${url} Bearer ${key} 0`);
    } finally {
      await stop();
    }
    expect(existsSync(file)).toBe(false);
  }, 120_000);
});
